import { Rpc } from '@rookery/replication';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { askProcess } from './ask-process.js';

/** Who is there is in the memory of the process that writes; syncs are answered by all. */
describe('presence in a server of several processes', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  const calls: string[] = [];

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 3 },
      settings: { rc_presence: { per_user: { per_second: 1_000, burst_count: 1_000 } } },
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
