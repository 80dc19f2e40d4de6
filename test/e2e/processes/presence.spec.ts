import { Rpc } from '@rookery/replication';
import { createTestHomeserver, eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { shownMetric } from '../../support/shown-metric.js';
import { askProcess } from './ask-process.js';

/** Who is there is in the memory of the process that writes; syncs are answered by all. */
describe('presence in a server of several processes', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  const calls: string[] = [];

  beforeAll(async () => {
    const resources = [{ names: ['client', 'federation', 'metrics'] }];
    const listeners = [{ port: await freePort(), bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 3 },
      settings: {
        ...{ enable_metrics: true, listeners },
        rc_presence: { per_user: { per_second: 1_000, burst_count: 1_000 } },
      },
    });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    await bob.request('POST', `/join/${encodeURIComponent(created.body.room_id)}`, {});
    for (const server of homeserver.servers) {
      const rpc = server.service(Rpc);
      const call = rpc.call.bind(rpc);
      rpc.call = (method, ...more) => {
        if (method.name.startsWith('presence_')) calls.push(method.name);
        return call(method, ...more);
      };
    }
  });
  afterAll(() => homeserver?.stop());

  const sync = (process: number, presence?: string): Promise<unknown> =>
    askProcess(homeserver, process, alice, 'GET', `/sync${presence === undefined ? '' : `?set_presence=${presence}`}`);
  const seen = async (process: number): Promise<unknown> => {
    const path = `/presence/${encodeURIComponent(alice.userId)}/status`;
    return (await askProcess<{ presence: string }>(homeserver, process, bob, 'GET', path)).presence;
  };
  const isSeen = (presence: string): Promise<unknown> =>
    eventually(
      async () => (await seen(0)) === presence && (await seen(1)) === presence && (await seen(2)) === presence,
    );
  const say = (process: number, presence: string): Promise<unknown> => {
    const path = `/presence/${encodeURIComponent(alice.userId)}/status`;
    return askProcess(homeserver, process, alice, 'PUT', path, { presence });
  };

  it('asks little of the process that writes, however often a client syncs', async () => {
    await sync(1);
    await isSeen('online');
    calls.length = 0;
    const syncs = 40;
    for (let n = 0; n < syncs; n++) await sync(1);
    expect(calls.filter((name) => name !== 'presence_changes').length).toBeLessThan(syncs / 2);
  });

  it('is seen in what the processes count of each other', async () => {
    const shown = (process: number, name: string, label: string): Promise<number> =>
      shownMetric(`http://127.0.0.1:${homeserver.servers[process]!.addresses[0]!.port}`, name, label);
    const asked = 'synapse_outgoing_replication_requests_total';
    const said = 'name="presence_syncing",code="200"';
    const before = await shown(1, asked, said);
    expect(before).toBeGreaterThan(0);
    await sync(1, 'unavailable');
    await eventually(async () => (await shown(1, asked, said)) > before);
    // The one that writes asks nobody.
    expect(await shown(0, asked, said)).toBe(0);
    const pending = 'synapse_pending_outgoing_replication_requests';
    await eventually(async () => (await shown(1, pending, 'name="presence_syncing"')) === 0);
    const news = 'stream_name="presence"';
    await eventually(async () => (await shown(0, 'synapse_replication_tcp_resource_stream_updates_total', news)) > 0);
    await eventually(
      async () => (await shown(1, 'synapse_replication_tcp_protocol_inbound_rdata_count_total', news)) > 0,
    );
  });

  it('is what the next sync says, whichever process that is at, after a user said something else', async () => {
    for (const [said, by] of [
      [1, 1],
      [1, 2],
      [0, 1],
      [2, 1],
    ] as const) {
      await sync(by);
      await isSeen('online');
      await sync(by);
      await say(said, 'unavailable');
      await isSeen('unavailable');
      await sync(by);
      await isSeen('online');
    }
  });

  it('is what the last sync says of a device whose syncs go from process to process', async () => {
    await sync(1);
    await isSeen('online');
    await sync(1);
    await sync(2, 'unavailable');
    await isSeen('unavailable');
    await sync(1);
    await isSeen('online');
  });
});
