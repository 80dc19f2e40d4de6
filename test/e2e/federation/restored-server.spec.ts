import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@rookery/testing';
import { burn, rookery } from '../../support/operators.js';
import { databaseKinds } from '../../support/server-process.js';
import { FederatingProcesses, ProcessUser } from './server-processes.js';

const part = encodeURIComponent;
/** For what both servers have to agree on, on a slow machine. */
const patienceMs = 120_000;

interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly content: { readonly body?: string };
}

interface Sync {
  readonly next_batch: string;
  readonly device_lists?: { readonly changed?: readonly string[] };
  readonly to_device?: { readonly events: readonly { readonly content: { readonly n?: number } }[] };
  readonly rooms?: { readonly join?: Record<string, { readonly timeline: { readonly events: readonly WireEvent[] } }> };
}

/** Two programs, one of which burns down and is brought back from a backup that is older than what the other has seen of it. */
describe.each(databaseKinds)('a server that was restored, and another one (%s)', (database) => {
  const programs = new FederatingProcesses(database);
  let alice: ProcessUser;
  let zoe: ProcessUser;
  let outside: string;
  let count = 0;

  beforeAll(async () => {
    const federation = {
      ...{ destination_min_retry_interval: '1s', destination_max_retry_interval: '2s' },
      ...{ max_long_retry_delay: '2s', client_timeout: '20s' },
    };
    outside = await mkdtemp(join(tmpdir(), 'rookery-backup-'));
    alice = await ProcessUser.register(await programs.start({ federation }), 'alice');
    zoe = await ProcessUser.register(await programs.start({ federation }), 'zoe');
  }, 240_000);
  afterAll(async () => {
    await programs.remove();
    if (outside) await rm(outside, { recursive: true, force: true });
  });

  const say = async (user: ProcessUser, roomId: string, body: string): Promise<string> => {
    const path = `/rooms/${part(roomId)}/send/m.room.message/r${(count += 1)}`;
    return (await user.call<{ event_id: string }>('PUT', path, { msgtype: 'm.text', body })).event_id;
  };
  const setName = async (user: ProcessUser, roomId: string, name: string): Promise<void> => {
    await user.call('PUT', `/rooms/${part(roomId)}/state/m.room.name`, { name });
  };
  const nameOf = async (user: ProcessUser, roomId: string): Promise<unknown> =>
    (await user.try('GET', `/rooms/${part(roomId)}/state/m.room.name`)).body?.['name'];
  const seen = async (user: ProcessUser, roomId: string): Promise<string[]> => {
    const { chunk } = await user.call<{ chunk: WireEvent[] }>('GET', `/rooms/${part(roomId)}/messages?dir=b&limit=500`);
    return chunk.map((event) => event.event_id);
  };
  const reaches = (user: ProcessUser, roomId: string, ...eventIds: readonly string[]): Promise<unknown> =>
    eventually(async () => {
      const ids = new Set(await seen(user, roomId));
      return eventIds.every((id) => ids.has(id));
    }, patienceMs);
  const stateOf = async (user: ProcessUser, roomId: string): Promise<string> =>
    (await user.call<WireEvent[]>('GET', `/rooms/${part(roomId)}/state`))
      .map((event) => event.event_id)
      .sort()
      .join();
  const tell = (from: ProcessUser, to: ProcessUser, n: number): Promise<unknown> =>
    from.call('PUT', `/sendToDevice/org.example.note/n${(count += 1)}`, {
      messages: { [to.userId]: { [to.deviceId]: { n } } },
    });

  it('get back together: what was lost comes from the other, and what both say arrives', async () => {
    const { room_id: roomId } = await alice.call<{ room_id: string }>('POST', '/createRoom', {
      preset: 'public_chat',
      power_level_content_override: { state_default: 0 },
    });
    await zoe.call('POST', `/join/${part(roomId)}?via=${part(alice.home.name)}`, {});
    const kept = [await say(alice, roomId, 'kept'), await say(zoe, roomId, 'kept, too')];
    await reaches(alice, roomId, ...kept);
    await alice.call('POST', '/keys/upload', {
      device_keys: {
        ...{ user_id: alice.userId, device_id: alice.deviceId, algorithms: ['m.olm'] },
        ...{ keys: { [`ed25519:${alice.deviceId}`]: 'x' }, signatures: {} },
      },
    });
    await tell(alice, zoe, 1);

    const server = alice.home.process;
    const backups = join(outside, database);
    const made = await rookery('backup', '-c', server.configFile, '--to', backups);
    expect(made).toMatchObject({ code: 0 });

    // Lost at home, known elsewhere: what alice says and does, and what zoe does.
    const lost: string[] = [];
    for (let i = 0; i < 12; i++) lost.push(await say(i % 3 === 0 ? zoe : alice, roomId, `lost ${i}`));
    await setName(alice, roomId, 'named in the time that was lost');
    await tell(alice, zoe, 2);
    await reaches(zoe, roomId, ...lost);
    await eventually(async () => (await nameOf(zoe, roomId)) !== undefined, patienceMs);
    let since = '';
    const notes: (number | undefined)[] = [];
    const sync = async (user: ProcessUser): Promise<Sync> => {
      const news = await user.call<Sync>('GET', `/sync?timeout=1000${since === '' ? '' : `&since=${part(since)}`}`);
      since = news.next_batch;
      notes.push(...(news.to_device?.events ?? []).map(({ content }) => content.n));
      return news;
    };
    await eventually(async () => {
      await sync(zoe);
      return notes.includes(2);
    }, patienceMs);
    const aliceSince = (await alice.call<Sync>('GET', '/sync')).next_batch;

    await server.stop('SIGKILL');
    await burn(server.folder, server.database);
    const meanwhile = await say(zoe, roomId, 'where are you?');
    expect(await rookery('restore', '--from', backups)).toMatchObject({ code: 0 });
    // The other one says what it knows as soon as it can: not before this was looked at.
    zoe.home.process.signal('SIGSTOP');
    try {
      await server.start();
      expect(await nameOf(alice, roomId)).toBeUndefined();
    } finally {
      zoe.home.process.signal('SIGCONT');
    }

    // What one says now that knows nothing of the lost time, and what the other says that does.
    const ahead = await say(alice, roomId, 'back again');
    await reaches(zoe, roomId, ahead);
    const behind = await say(zoe, roomId, 'welcome back');
    await reaches(alice, roomId, ...kept, ...lost, meanwhile, ahead, behind);
    await reaches(zoe, roomId, ...kept, ...lost, meanwhile, ahead, behind);
    await eventually(async () => (await stateOf(alice, roomId)) === (await stateOf(zoe, roomId)), patienceMs);
    expect(await nameOf(alice, roomId)).toBe('named in the time that was lost');

    // Alice's client goes on from where it was; zoe's hears of her devices, and takes nothing new for something it knows.
    const news = await alice.call<Sync>('GET', `/sync?since=${part(aliceSince)}`);
    expect(news.rooms?.join?.[roomId]?.timeline.events.map((event) => event.event_id)).toContain(behind);
    await tell(alice, zoe, 3);
    const changed = new Set<string>();
    await eventually(async () => {
      for (const userId of (await sync(zoe)).device_lists?.changed ?? []) changed.add(userId);
      return notes.includes(3) && changed.has(alice.userId);
    }, patienceMs);
    expect(notes).toEqual([1, 2, 3]);
    const final = await say(alice, roomId, 'and on it goes');
    await reaches(zoe, roomId, final);
  }, 400_000);
});
