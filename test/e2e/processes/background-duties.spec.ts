import { SystemClock } from '@rookery/platform';
import { createTestHomeserver, eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { shownMetric } from '../../support/shown-metric.js';
import { createRoom, ok, say } from '../rooms/rooms-client.js';

const hourMs = 3_600_000;
/** Tasks of every hour run all the time. */
class HastyClock extends SystemClock {
  override every(periodMs: number, fn: () => void): ReturnType<SystemClock['every']> {
    return super.every(periodMs === hourMs ? 300 : periodMs, fn);
  }
}

interface Found {
  readonly search_categories: {
    readonly room_events: { readonly count: number; readonly results: readonly { result: { event_id: string } }[] };
  };
}
interface Tasks {
  readonly background_tasks: readonly { name: string; role: string; process: string; runs: number; failures: number }[];
}

describe('Background work of a server of several processes', () => {
  let home: TestHomeserver;
  let alice: TestUser;
  let root: TestUser;
  let roomId: string;

  beforeAll(async () => {
    const resources = [{ names: ['client', 'federation', 'metrics'] }];
    const listeners = [{ port: await freePort(), bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    home = await createTestHomeserver({
      ...{ database: 'postgres', processes: 4, clock: new HastyClock() },
      settings: {
        ...{ enable_metrics: true, listeners, media_retention: { local_media_lifetime: '1s' } },
        ...{ stats: { enabled: true }, experimental_features: { msc4354_enabled: true }, user_ips_max_age: '1d' },
      },
    });
    alice = await home.registerUser('alice');
    root = await home.registerAdministrator('root');
    roomId = await createRoom(alice, { preset: 'public_chat' });
  });
  afterAll(() => home?.stop());

  const shown = (metric: string): Promise<number[]> =>
    Promise.all(home.servers.map(({ addresses }) => shownMetric(`http://127.0.0.1:${addresses[0]?.port}`, metric)));
  const transactions = (desc: string): Promise<number[]> =>
    shown(`synapse_storage_transaction_time_count_total\\{[^}]*desc="${desc}"[^}]*\\}`);
  const runs = (task: string): Promise<number[]> =>
    shown(`synapse_background_process_start_count_total\\{[^}]*name="${task}"[^}]*\\}`);
  const found = async (term: string): Promise<{ count: number; ids: string[] }> => {
    const criteria = { search_term: term, order_by: 'recent', filter: { limit: 100 } };
    const answer = await ok<Found>(alice, 'POST', '/search', { search_categories: { room_events: criteria } });
    const { count, results } = answer.search_categories.room_events;
    return { count, ids: results.map(({ result }) => result.event_id).reverse() };
  };
  const tasks = async (): Promise<Tasks['background_tasks']> =>
    (await ok<Tasks>(root, 'GET', '/_synapse/admin/v1/background_tasks')).background_tasks;
  const send = async (path: string, body: string): Promise<string> => {
    const url = `${home.baseUrl}/_matrix/client/v3/rooms/${roomId}/send/m.room.message/${path}`;
    const headers = { authorization: `Bearer ${alice.accessToken}` };
    const answer = await fetch(url, { method: 'PUT', headers, body: JSON.stringify({ msgtype: 'm.text', body }) });
    return ((await answer.json()) as { event_id: string }).event_id;
  };

  it('makes messages found at once, whoever indexes them: one process, which does not write', async () => {
    // It was the one that writes, until the first other one came.
    await eventually(async () => {
      await say(alice, roomId, 'before');
      await found('before');
      return (await transactions('index_messages')).slice(1).some((count) => count > 0);
    });
    const before = await transactions('index_messages');
    const events: string[] = [];
    for (let n = 0; n < 5; n++) {
      events.push(await say(alice, roomId, `needle ${n}`));
      expect(await found('needle')).toEqual({ count: n + 1, ids: events });
    }
    const after = await transactions('index_messages');
    const by = after.flatMap((count, index) => (count > before[index]! ? [index] : []));
    expect([by.length, by.includes(0)]).toEqual([1, false]);
  });

  it('counts users, deletes old media and purges what has expired in the process that has the duty, and tells of it', async () => {
    const isElsewhere = ({ role, process }: { role: string; process: string }): boolean =>
      !['background', 'media'].includes(role) || process !== 'main';
    await eventually(async () => (await tasks()).every(isElsewhere));
    const upload = await fetch(`${home.baseUrl}/_matrix/media/v3/upload`, {
      ...{ method: 'POST', headers: { authorization: `Bearer ${alice.accessToken}` }, body: 'some bytes' },
    });
    const { content_uri: uri } = (await upload.json()) as { content_uri: string };
    await eventually(async () => {
      const path = `/_matrix/client/v1/media/download/${uri.slice('mxc://'.length)}`;
      return (await alice.request('GET', path)).status === 404;
    });
    await createRoom(alice);
    await eventually(async () => (await transactions('count_joined_rooms')).slice(1).some((count) => count > 0));
    const named = Object.fromEntries((await tasks()).map(({ name, process }) => [name, process]));
    expect([named['delete_stale_devices'], named['sweep_presence']]).toEqual(['main', 'main']);
    for (const task of ['media_retention', 'purge_expired_rows']) {
      const place = home.servers.findIndex((_, index) => named[task] === `process${index}`);
      expect(place).toBeGreaterThan(0);
      const before = await runs(task);
      await eventually(async () => (await runs(task))[place]! > before[place]! + 1);
      const after = await runs(task);
      expect(after.filter((count, index) => count > before[index]!)).toHaveLength(1);
      const told = (await tasks()).find(({ name }) => name === task);
      expect(told?.runs).toBeGreaterThan(1);
    }
    expect((await runs('delete_stale_devices')).slice(1)).toEqual([0, 0, 0]);
    // What each of them writes may be written by any process.
    const moved = (all: Tasks['background_tasks']): Tasks['background_tasks'] =>
      all.filter(({ role }) => ['background', 'media'].includes(role));
    await eventually(async () => moved(await tasks()).every((task) => task.runs > 0));
    expect(moved(await tasks()).filter((task) => task.failures > 0)).toEqual([]);
    expect(moved(await tasks()).map(({ name }) => name)).toEqual([
      ...['delete_unused_sync_connections', 'forget_former_device_changes', 'forget_sticky_events'],
      ...[
        'forget_to_device_requests',
        'forget_transaction_answers',
        'media_retention',
        'purge_expired_rows',
        'purge_sso_sessions',
      ],
      'remove_stray_media',
    ]);
  });

  it('goes on where its process leaves in the middle, and nothing is missed or found twice', async () => {
    const placeOf = async (task: string): Promise<string | undefined> =>
      (await tasks()).find(({ name }) => name === task)?.process;
    const before = await transactions('index_messages');
    const events: string[] = [];
    for (let n = 0; n < 5; n++) events.push(await send(`a${n}`, `thread ${n}`));
    await found('thread');
    const after = await transactions('index_messages');
    const holder = after.findIndex((count, index) => count > before[index]!);
    const media = Number((await placeOf('media_retention'))?.slice('process'.length));
    const leaving = [...new Set([holder, media])].map((index) => home.servers[index]!.stop());
    for (let n = 0; n < 10; n++) events.push(await send(`b${n}`, `thread ${n}`));
    await Promise.all(leaving);
    for (let n = 0; n < 5; n++) events.push(await send(`c${n}`, `thread ${n}`));
    const isComplete = async (): Promise<boolean> => {
      const url = `${home.baseUrl}/_matrix/client/v3/search`;
      const headers = { authorization: `Bearer ${alice.accessToken}` };
      const criteria = { search_term: 'thread', order_by: 'recent', filter: { limit: 100 } };
      const body = JSON.stringify({ search_categories: { room_events: criteria } });
      const answer = (await (await fetch(url, { method: 'POST', headers, body })).json()) as Found;
      const { count, results } = answer.search_categories.room_events;
      const ids = results.map(({ result }) => result.event_id).reverse();
      return count === events.length && ids.join() === events.join();
    };
    await eventually(isComplete);
    await eventually(async () => {
      const answer = await fetch(`${home.baseUrl}/_synapse/admin/v1/background_tasks`, {
        headers: { authorization: `Bearer ${root.accessToken}` },
      });
      const { background_tasks: left } = (await answer.json()) as Tasks;
      const now = left.find(({ name }) => name === 'media_retention')?.process;
      return now !== undefined && now !== 'main' && now !== `process${media}`;
    });
  });
});
