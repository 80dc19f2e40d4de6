import { eventually } from '@rookery/testing';
import { setTimeout as sleep } from 'node:timers/promises';
import { databaseKinds } from '../../support/server-process.js';
import { type FederatingProcess, FederatingProcesses, ProcessUser } from './server-processes.js';

const part = encodeURIComponent;
/** For what both servers have to agree on, on a slow machine. */
const patienceMs = 120_000;

interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly state_key?: string;
  readonly content: Record<string, unknown>;
}

interface Sync {
  readonly next_batch: string;
  readonly to_device?: { readonly events: readonly { readonly type: string; readonly content: { n?: string } }[] };
  readonly rooms?: { readonly invite?: Record<string, unknown>; readonly join?: Record<string, unknown> };
}

/** Two programs, one of which is killed in the middle of something, and started again. */
describe.each(databaseKinds)('two servers, one of them killed (%s)', (database) => {
  const programs = new FederatingProcesses(database);
  let alice: ProcessUser;
  let zoe: ProcessUser;
  let count = 0;

  beforeAll(async () => {
    const federation = {
      ...{ destination_min_retry_interval: '1s', destination_max_retry_interval: '2s' },
      ...{ max_long_retry_delay: '2s', client_timeout: '20s' },
    };
    const here = await programs.start({ federation });
    const there = await programs.start({ federation });
    alice = await ProcessUser.register(here, 'alice');
    zoe = await ProcessUser.register(there, 'zoe');
  }, 240_000);
  afterAll(() => programs.remove());

  const create = async (options: object): Promise<string> =>
    (await alice.call<{ room_id: string }>('POST', '/createRoom', options)).room_id;
  const join = (user: ProcessUser, roomId: string): ReturnType<ProcessUser['try']> =>
    user.try('POST', `/join/${part(roomId)}?via=${part(alice.home.name)}`, {});
  const restart = async ({ process }: FederatingProcess): Promise<void> => {
    await process.stop('SIGKILL');
    await process.start();
  };
  /** The id of a message that was acknowledged. */
  const say = async (user: ProcessUser, roomId: string, body: string): Promise<string | undefined> => {
    const answer = await user.try<{ event_id: string }>(
      'PUT',
      `/rooms/${part(roomId)}/send/m.room.message/k${(count += 1)}`,
      { msgtype: 'm.text', body },
    );
    return answer.ok ? answer.body?.event_id : undefined;
  };
  const seen = async (user: ProcessUser, roomId: string): Promise<string[]> => {
    const ids: string[] = [];
    let from = '';
    for (;;) {
      const path = `/rooms/${part(roomId)}/messages?dir=b&limit=1000${from}`;
      const { chunk, end } = await user.call<{ chunk: WireEvent[]; end?: string }>('GET', path);
      ids.push(...chunk.map((event) => event.event_id));
      if (end === undefined) return ids;
      from = `&from=${part(end)}`;
    }
  };
  const stateOf = async (user: ProcessUser, roomId: string): Promise<string[]> =>
    (await user.call<WireEvent[]>('GET', `/rooms/${part(roomId)}/state`)).map((event) => event.event_id).sort();
  const membership = async (user: ProcessUser, roomId: string): Promise<unknown> =>
    (await user.try('GET', `/rooms/${part(roomId)}/state/m.room.member/${part(zoe.userId)}`)).body?.['membership'];

  /** Both can talk, and see the same room. */
  const agree = async (roomId: string, acknowledged: readonly string[] = []): Promise<void> => {
    const wanted = [...acknowledged];
    for (const user of [alice, zoe]) {
      wanted.push(await eventually(() => say(user, roomId, 'are you there?'), patienceMs));
    }
    for (const user of [alice, zoe]) {
      await eventually(async () => {
        const ids = new Set(await seen(user, roomId));
        return wanted.every((id) => ids.has(id));
      }, patienceMs);
    }
    await eventually(async () => {
      const [one, two] = await Promise.all([stateOf(alice, roomId), stateOf(zoe, roomId)]);
      return one.join() === two.join();
    }, patienceMs);
    const [one, two] = [await seen(alice, roomId), await seen(zoe, roomId)];
    expect(new Set(one).size).toBe(one.length);
    expect(new Set(two).size).toBe(two.length);
  };

  it.each(['receiver', 'sender'] as const)(
    'lose nothing that was acknowledged, as the %s of a burst',
    async (victim) => {
      const roomId = await create({ preset: 'public_chat' });
      await join(zoe, roomId);
      expect(await membership(zoe, roomId)).toBe('join');
      const since = (await zoe.call<Sync>('GET', '/sync')).next_batch;
      const acknowledged: string[] = [];
      const told: string[] = [];
      let isOver = false;
      const talk = async (user: ProcessUser): Promise<void> => {
        while (!isOver) {
          const eventId = await say(user, roomId, 'a burst');
          if (eventId !== undefined) acknowledged.push(eventId);
          // What one says while the other is away is fetched in the end, and that takes its time.
          await sleep(eventId === undefined ? 20 : 10);
        }
      };
      const tell = async (): Promise<void> => {
        while (!isOver) {
          const n = `d${(count += 1)}`;
          const messages = { [zoe.userId]: { [zoe.deviceId]: { n } } };
          const answer = await alice.try('PUT', `/sendToDevice/test.burst/${n}`, { messages });
          if (answer.ok) told.push(n);
          await sleep(10);
        }
      };
      const talking = Promise.all([talk(alice), talk(alice), talk(zoe), talk(zoe), tell()]);
      await eventually(() => acknowledged.length > 60, patienceMs);
      await restart(victim === 'receiver' ? zoe.home : alice.home);
      const before = acknowledged.length;
      await eventually(() => acknowledged.length > before + 40, patienceMs);
      isOver = true;
      await talking;
      await agree(roomId, acknowledged);
      const heard: string[] = [];
      let token = since;
      await eventually(async () => {
        const sync = await zoe.call<Sync>('GET', `/sync?since=${part(token)}&timeout=1000`);
        token = sync.next_batch;
        for (const { type, content } of sync.to_device?.events ?? [])
          if (type === 'test.burst' && content.n !== undefined) heard.push(content.n);
        return told.every((n) => heard.includes(n));
      }, patienceMs);
      // None twice, though transactions were repeated.
      expect(heard.filter((n, index) => heard.indexOf(n) !== index)).toEqual([]);
    },
    400_000,
  );

  it.each(['joining', 'resident'] as const)(
    'join in the end, when the %s server is killed meanwhile',
    async (victim) => {
      for (const delayMs of [10, 40]) {
        const roomId = await create({ preset: 'public_chat', name: 'A room' });
        const joining = join(zoe, roomId);
        await sleep(delayMs);
        await restart(victim === 'joining' ? zoe.home : alice.home);
        const wasAnswered = (await joining).ok;
        if (wasAnswered) expect(await membership(zoe, roomId)).toBe('join');
        await eventually(async () => (await join(zoe, roomId)).ok, patienceMs);
        await agree(roomId);
        expect(await membership(alice, roomId)).toBe('join');
      }
    },
    400_000,
  );

  it.each(['inviting', 'invited'] as const)(
    'invite in the end, when the %s server is killed meanwhile',
    async (victim) => {
      for (const delayMs of [10, 40]) {
        const roomId = await create({ preset: 'private_chat' });
        const invite = (): ReturnType<ProcessUser['try']> =>
          alice.try('POST', `/rooms/${part(roomId)}/invite`, { user_id: zoe.userId });
        const inviting = invite();
        await sleep(delayMs);
        await restart(victim === 'inviting' ? alice.home : zoe.home);
        const wasAnswered = (await inviting).ok;
        if (wasAnswered) {
          expect(await membership(alice, roomId)).toBe('invite');
          expect((await zoe.call<Sync>('GET', '/sync')).rooms?.invite).toHaveProperty([roomId]);
        } else await eventually(async () => (await invite()).ok, patienceMs);
        await eventually(async () => (await zoe.call<Sync>('GET', '/sync')).rooms?.invite?.[roomId], patienceMs);
        await eventually(async () => (await join(zoe, roomId)).ok, patienceMs);
        await agree(roomId);
        expect((await zoe.call<Sync>('GET', '/sync')).rooms?.invite?.[roomId]).toBeUndefined();
      }
    },
    400_000,
  );
});
