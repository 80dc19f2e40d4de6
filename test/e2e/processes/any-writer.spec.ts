import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { askProcess } from './ask-process.js';

interface Sync {
  readonly next_batch: string;
  readonly account_data?: { readonly events: readonly { readonly type: string; readonly content: { n?: number } }[] };
  readonly to_device?: { readonly events: readonly { readonly content: { n?: number } }[] };
  readonly rooms?: {
    readonly join?: Record<
      string,
      {
        readonly timeline: { readonly events: readonly { readonly event_id: string }[] };
        readonly ephemeral: { readonly events: readonly { readonly type: string; readonly content: object }[] };
        readonly account_data: { readonly events: readonly { readonly type: string; readonly content: object }[] };
        readonly unread_notifications: { readonly notification_count: number };
      }
    >;
  };
}

const part = encodeURIComponent;

/** What lies in rows alone is written by whichever process is asked. */
describe('What any process of a server writes', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let room: string;
  let count = 0;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database: 'postgres', processes: 3 });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    roomId = created.body.room_id;
    room = `/rooms/${part(roomId)}`;
    expect((await bob.request('POST', `/join/${part(roomId)}`, {})).status).toBe(200);
  });
  afterAll(() => homeserver?.stop());

  const ask = <T>(process: number, user: TestUser, method: string, path: string, body?: object): Promise<T> =>
    askProcess(homeserver, process, user, method, path, body);
  const say = async (user: TestUser): Promise<string> => {
    const path = `${room}/send/m.room.message/t${++count}`;
    return (await ask<{ event_id: string }>(count % 3, user, 'PUT', path, { msgtype: 'm.text', body: 'hi' })).event_id;
  };
  const tell = (process: number, to: string, deviceId: string, n: number): Promise<unknown> =>
    ask(process, alice, 'PUT', `/sendToDevice/org.example.note/d${++count}`, {
      messages: { [to]: { [deviceId]: { n } } },
    });
  const sync = (process: number, user: TestUser, since: string | undefined, timeoutMs = 0): Promise<Sync> =>
    ask(process, user, 'GET', `/sync?timeout=${timeoutMs}${since === undefined ? '' : `&since=${part(since)}`}`);

  /** Names of the transactions that each process makes while something is done. */
  async function written(work: () => Promise<unknown>): Promise<string[][]> {
    const restore: (() => void)[] = [];
    const names = homeserver.servers.map((server) => {
      const mine: string[] = [];
      const database = server.service(Database);
      const write = database.write.bind(database);
      database.write = (fn, options) => {
        const outcome = write(fn, options);
        void outcome.then(
          () => mine.push(options?.name ?? ''),
          () => undefined,
        );
        return outcome;
      };
      restore.push(() => (database.write = write));
      return mine;
    });
    try {
      await work();
    } finally {
      for (const each of restore) each();
    }
    return names;
  }

  it('is written where it is asked for, and found by all', async () => {
    const eventId = await say(alice);
    const account = `/user/${part(bob.userId)}/account_data/org.example.n`;
    const inRoom = `/user/${part(bob.userId)}${room}/account_data/org.example.n`;
    const tags = `/user/${part(bob.userId)}${room}/tags`;
    const works: readonly (readonly [name: string, work: (process: number) => Promise<unknown>])[] = [
      ['account_data', (process) => ask(process, bob, 'PUT', account, { n: process })],
      ['account_data', (process) => ask(process, bob, 'PUT', inRoom, { n: process })],
      ['account_data', (process) => ask(process, bob, 'PUT', `${tags}/u.${process}`, {})],
      [
        'receipts',
        async (process) => {
          const id = process === 0 ? eventId : await say(alice);
          await ask(process, bob, 'POST', `${room}/receipt/m.read/${id}`, {});
        },
      ],
      ['to_device_send', (process) => tell(process, bob.userId, bob.deviceId, process)],
    ];
    for (const [name, work] of works)
      for (const process of [1, 2, 0]) {
        const names = await written(() => work(process));
        expect([name, process, names.map((each) => each.includes(name))]).toEqual([
          ...[name, process],
          [0, 1, 2].map((each) => each === process),
        ]);
      }
    for (const other of [0, 1, 2]) {
      expect(await ask(other, bob, 'GET', account)).toEqual({ n: 0 });
      expect(await ask(other, bob, 'GET', inRoom)).toEqual({ n: 0 });
      expect(await ask(other, bob, 'GET', tags)).toEqual({ tags: { 'u.0': {}, 'u.1': {}, 'u.2': {} } });
    }
  });

  it('comes to a client once each and in order, whoever wrote it and whoever tells it', async () => {
    let since = (await sync(0, bob, undefined)).next_batch;
    const got: number[] = [];
    const data = new Map<string, unknown>();
    const pull = async (process: number): Promise<void> => {
      const answer = await sync(process, bob, since, 2_000);
      since = answer.next_batch;
      got.push(...(answer.to_device?.events ?? []).map(({ content }) => content.n ?? -1));
      for (const { type, content } of answer.account_data?.events ?? []) data.set(type, content.n);
    };
    let isOver = false;
    const pulling = (async () => {
      for (let n = 0; !isOver; n++) await pull(n % 3);
    })();
    const total = 90;
    const lanes = [0, 1, 2].map(async (lane) => {
      for (let n = lane; n < total; n += 3) {
        await tell(n % 3, bob.userId, bob.deviceId, n);
        await ask((n + 1) % 3, bob, 'PUT', `/user/${part(bob.userId)}/account_data/org.example.${n % 10}`, { n });
      }
    });
    await Promise.all(lanes);
    isOver = true;
    await pulling;
    // Whoever was answered finds it at once.
    await pull(count % 3);
    expect(got.toSorted((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, n) => n));
    // What one client says one after the other comes in that order.
    for (const lane of [0, 1, 2]) {
      const own = got.filter((n) => n % 3 === lane);
      expect(own).toEqual(own.toSorted((a, b) => a - b));
    }
    const stored = new Map<string, unknown>();
    for (let n = 0; n < 10; n++) {
      const type = `org.example.${n}`;
      const path = `/user/${part(bob.userId)}/account_data/${type}`;
      stored.set(type, (await ask<{ n: number }>(n % 3, bob, 'GET', path)).n);
    }
    expect(new Map([...data].filter(([type]) => stored.has(type)))).toEqual(stored);
  });

  it('is found at once by whoever is asked next', async () => {
    let since = (await sync(0, bob, undefined)).next_batch;
    for (let n = 0; n < 30; n++)
      for (const [writer, reader] of [
        [1, 0],
        [2, 0],
        [0, 1],
        [1, 2],
      ] as const) {
        await tell(writer, bob.userId, bob.deviceId, n);
        const answer = await sync(reader, bob, since);
        since = answer.next_batch;
        expect([writer, reader, answer.to_device?.events[0]?.content.n]).toEqual([writer, reader, n]);
      }
  });

  it('wakes whoever waits, at whichever process', async () => {
    for (const [writer, reader] of [
      [1, 0],
      [1, 2],
      [0, 1],
    ] as const) {
      const { next_batch: since } = await sync(reader, bob, undefined);
      const waiting = sync(reader, bob, since, 30_000);
      await new Promise((resolve) => setTimeout(resolve, 200));
      await tell(writer, bob.userId, bob.deviceId, 1_000 + count);
      expect((await waiting).to_device?.events.length).toBe(1);
    }
  });

  it('counts where events are stored: what was read, and who is not wanted', async () => {
    const unread = async (process: number): Promise<number> => {
      const answer = await sync(process, bob, undefined);
      return answer.rooms?.join?.[roomId]?.unread_notifications.notification_count ?? -1;
    };
    for (const process of [1, 2, 0]) {
      const eventId = await say(alice);
      for (const other of [0, 1, 2]) expect(await unread(other)).toBe(1);
      await ask(process, bob, 'POST', `${room}/read_markers`, { 'm.read': eventId, 'm.fully_read': eventId });
      for (const other of [2, 1, 0]) expect(await unread(other)).toBe(0);
      const { rooms } = await sync(process === 2 ? 0 : 2, bob, undefined);
      expect(rooms?.join?.[roomId]?.account_data.events).toContainEqual({
        type: 'm.fully_read',
        content: { event_id: eventId },
      });
    }
    const ignored = `/user/${part(bob.userId)}/account_data/m.ignored_user_list`;
    await ask(1, bob, 'PUT', ignored, { ignored_users: { [alice.userId]: {} } });
    await say(alice);
    expect(await unread(2)).toBe(0);
    await ask(2, bob, 'PUT', ignored, { ignored_users: {} });
    await say(alice);
    expect(await unread(1)).toBeGreaterThan(0);
  });

  it('ends a sliding sync that begins anew elsewhere, at all of them', async () => {
    const lists = { lists: { all: { ranges: [[0, 9]], timeline_limit: 1, required_state: [] } } };
    const sliding = async (process: number, pos?: string): Promise<{ pos?: string; errcode?: string }> => {
      const [address] = homeserver.servers[process]!.addresses;
      const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0';
      const response = await fetch(
        `http://127.0.0.1:${address!.port}${path}${pos === undefined ? '' : `&pos=${part(pos)}`}`,
        {
          method: 'POST',
          headers: { authorization: `Bearer ${bob.accessToken}`, 'content-type': 'application/json' },
          body: JSON.stringify(lists),
        },
      );
      return (await response.json()) as { pos?: string; errcode?: string };
    };
    for (const [one, other] of [
      [1, 2],
      [2, 0],
      [0, 1],
    ] as const) {
      const { pos } = await sliding(one);
      expect((await sliding(one, pos)).errcode).toBeUndefined();
      const anew = await sliding(other);
      expect((await sliding(one, pos)).errcode).toBe('M_UNKNOWN_POS');
      expect((await sliding(one, anew.pos)).errcode).toBeUndefined();
    }
  });

  it('goes to the process that knows where it has to go', async () => {
    const names = await written(() => tell(1, '@zoe:elsewhere.test', 'PHONE', 1));
    expect(names.map((each) => each.includes('to_device_send'))).toEqual([true, false, false]);
  });
});
