import { Database } from '@rookery/database';
import { E2eePorts } from '@rookery/e2ee';
import { Bus, Streams } from '@rookery/replication';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { askProcess, requestProcess } from './ask-process.js';

interface Sync {
  readonly next_batch: string;
  readonly account_data?: { readonly events: readonly { readonly type: string; readonly content: { n?: number } }[] };
  readonly to_device?: { readonly events: readonly { readonly content: { n?: number } }[] };
  readonly device_lists?: { readonly changed?: readonly string[] };
  readonly device_one_time_keys_count?: Readonly<Record<string, number>>;
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
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 3 },
      settings: { experimental_features: { msc4306_enabled: true } },
    });
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

  /** What a device uploads: so many one-time keys whose ids begin so. */
  const oneTimeKeys = (name: string, total: number): object => ({
    one_time_keys: Object.fromEntries(
      Array.from({ length: total }, (_, n) => [
        `signed_curve25519:${name}${n}`,
        { key: `k${name}${n}`, signatures: {} },
      ]),
    ),
  });
  const deviceKeys = (user: TestUser, n: number): object => ({
    device_keys: {
      ...{ user_id: user.userId, device_id: user.deviceId, algorithms: ['m.olm.v1.curve25519-aes-sha2'] },
      keys: { [`ed25519:${user.deviceId}`]: `ed${n}`, [`curve25519:${user.deviceId}`]: `cu${n}` },
      signatures: {},
    },
  });

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
    const ignored = `/user/${part(bob.userId)}/account_data/m.ignored_user_list`;
    const rule = (id: string): string => `/pushrules/global/content/${id}`;
    const claim = { one_time_keys: { [bob.userId]: { [bob.deviceId]: 'signed_curve25519' } } };
    const backup = { algorithm: 'm.megolm_backup.v1.curve25519-aes-sha2', auth_data: { public_key: 'abc' } };
    const session = {
      first_message_index: 1,
      forwarded_count: 0,
      is_verified: true,
      session_data: { ciphertext: 'x' },
    };
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
      ['account_data', (process) => ask(process, bob, 'PUT', ignored, { ignored_users: {} })],
      ['push_rules', (process) => ask(process, bob, 'PUT', rule(`r${process}`), { pattern: 'x', actions: [] })],
      ['push_rules', (process) => ask(process, bob, 'PUT', `${rule(`r${process}`)}/enabled`, { enabled: false })],
      ['push_rules', (process) => ask(process, bob, 'DELETE', rule(`r${process}`))],
      ['keys_upload', (process) => ask(process, bob, 'POST', '/keys/upload', oneTimeKeys(`w${process}`, 2))],
      ['keys_claim', (process) => ask(process, alice, 'POST', '/keys/claim', claim)],
      ['key_backup_create', (process) => ask(process, bob, 'POST', '/room_keys/version', backup)],
      [
        'key_backup_store',
        async (process) => {
          const { version } = await ask<{ version: string }>(process, bob, 'GET', '/room_keys/version');
          const path = `/room_keys/keys/${part(roomId)}/s${process}?version=${version}`;
          await ask(process, bob, 'PUT', path, session);
        },
      ],
      [
        'filter',
        (process) =>
          ask(process, bob, 'POST', `/user/${part(bob.userId)}/filter`, { room: { rooms: [`!${process}`] } }),
      ],
      ['openid_token', (process) => ask(process, bob, 'POST', `/user/${part(bob.userId)}/openid/request_token`, {})],
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
    for (const process of [1, 2, 0, 1]) {
      await ask(process, bob, 'PUT', ignored, { ignored_users: { [alice.userId]: {} } });
      const before = await unread(2);
      await say(alice);
      expect(await unread(2)).toBe(before);
      await ask((process + 1) % 3, bob, 'PUT', ignored, { ignored_users: {} });
      await say(alice);
      expect(await unread(1)).toBe(before + 1);
    }
  });

  it('decides about the next event: push rules', async () => {
    const carol = await homeserver.registerUser('carol');
    await ask(0, carol, 'POST', `/join/${part(roomId)}`, {});
    const unread = async (process: number): Promise<number> =>
      (await sync(process, carol, undefined)).rooms?.join?.[roomId]?.unread_notifications.notification_count ?? -1;
    const path = `/pushrules/global/room/${part(roomId)}`;
    let expected = await unread(0);
    for (let n = 0; n < 30; n++) {
      await ask(n % 3, carol, 'PUT', path, { actions: [] });
      await say(alice);
      expect([n, await unread((n + 1) % 3)]).toEqual([n, expected]);
      await ask((n + 2) % 3, carol, 'DELETE', path);
      await say(alice);
      expect([n, await unread((n + 1) % 3)]).toEqual([n, ++expected]);
    }
    // A word about a change is lost, and heard of is that there was one.
    const bus = homeserver.servers[1]!.service(Bus);
    const publish = bus.publish.bind(bus);
    bus.publish = (message) => (message.stream === 'push_rules' ? undefined : publish(message));
    try {
      await ask(1, carol, 'PUT', path, { actions: [] });
    } finally {
      bus.publish = publish;
    }
    await ask(2, bob, 'PUT', '/pushrules/global/content/lost', { pattern: 'x', actions: [] });
    await say(alice);
    expect(await unread(0)).toBe(expected);
  });

  it('decides about the next event: threads that somebody wants to hear of', async () => {
    const thread = await say(alice);
    const path = `/_matrix/client/unstable/io.element.msc4306${room}/thread/${part(thread)}/subscription`;
    const subscription = (process: number, method: string): Promise<Response> =>
      requestProcess(homeserver, process, bob, method, path, method === 'PUT' ? {} : undefined);
    for (const process of [1, 2, 0]) {
      const names = await written(() => subscription(process, 'PUT'));
      expect(names.map((each) => each.includes('thread_subscription'))).toEqual([0, 1, 2].map((n) => n === process));
      for (const other of [0, 1, 2]) expect((await subscription(other, 'GET')).status).toBe(200);
      expect((await subscription((process + 1) % 3, 'DELETE')).status).toBe(200);
      for (const other of [0, 1, 2]) expect((await subscription(other, 'GET')).status).toBe(404);
    }
  });

  it('is media as well, and what is withheld of them', async () => {
    const admin = await homeserver.registerAdministrator('root');
    const media = async (process: number, user: TestUser, method: string, path: string, body?: string) => {
      const response = await requestProcess(homeserver, process, user, method, path, body);
      return { status: response.status, text: await response.text() };
    };
    const upload = async (process: number, text: string): Promise<string> => {
      const { text: answer } = await media(process, bob, 'POST', '/_matrix/media/v3/upload', text);
      return (JSON.parse(answer) as { content_uri: string }).content_uri.slice('mxc://'.length);
    };
    const changes: object[] = [];
    for (const process of [1, 2, 0]) {
      let id = '';
      const names = await written(async () => (id = await upload(process, `file ${process}`)));
      expect(names.map((each) => each.includes('store_media'))).toEqual([0, 1, 2].map((n) => n === process));
      const path = `/_matrix/client/v1/media/download/${id}`;
      for (const other of [0, 1, 2])
        expect(await media(other, alice, 'GET', path)).toEqual({ status: 200, text: `file ${process}` });
      const withholding = await written(() =>
        media(process, admin, 'POST', `/_synapse/admin/v1/media/quarantine/${id}`, '{}'),
      );
      expect(withholding.map((each) => each.includes('quarantine_media'))).toEqual([0, 1, 2].map((n) => n === process));
      for (const other of [0, 1, 2]) expect((await media(other, alice, 'GET', path)).status).toBe(404);
      const [origin, mediaId] = id.split('/');
      changes.push({ origin, media_id: mediaId, quarantined: true });
    }
    const told = await media(1, admin, 'GET', '/_synapse/admin/v1/media/quarantine_changes?from=0');
    expect(JSON.parse(told.text)).toMatchObject({ changes });
  });

  it('gives no one-time key twice, whoever is asked at the same time', async () => {
    const dora = await homeserver.registerUser('dora');
    const total = 60;
    await ask(1, dora, 'POST', '/keys/upload', oneTimeKeys('d', total));
    const claim = { one_time_keys: { [dora.userId]: { [dora.deviceId]: 'signed_curve25519' } } };
    type Claimed = { one_time_keys: Record<string, Record<string, object>> };
    const claims = Array.from({ length: total + 6 }, (_, n) =>
      ask<Claimed>(n % 3, alice, 'POST', '/keys/claim', claim),
    );
    const ids = (await Promise.all(claims)).flatMap(({ one_time_keys: keys }) =>
      Object.keys(keys[dora.userId]?.[dora.deviceId] ?? {}),
    );
    expect([ids.length, new Set(ids).size]).toEqual([total, total]);
    for (const process of [0, 1, 2])
      expect((await sync(process, dora, undefined)).device_one_time_keys_count).toEqual({ signed_curve25519: 0 });
  });

  it('takes no second key of a device where others cannot be told any more while a service is asked for one', async () => {
    const frank = await homeserver.registerUser('frank');
    await ask(0, frank, 'POST', '/keys/upload', oneTimeKeys('f', 4));
    const server = homeserver.servers[1]!;
    const [{ appserviceKeys: port }, { writers }] = [server.service(E2eePorts), server.service(Streams)];
    const { given } = port;
    port.replace({
      claim: async () => {
        Object.defineProperty(writers, 'mayShare', { value: false, configurable: true });
        return {};
      },
    });
    try {
      const algorithm = 'signed_curve25519';
      const claim = { one_time_keys: { [frank.userId]: { [frank.deviceId]: algorithm, NONE: algorithm } } };
      await ask(1, alice, 'POST', '/keys/claim', claim);
    } finally {
      port.replace(given);
      Reflect.deleteProperty(writers, 'mayShare');
    }
    expect((await sync(2, frank, undefined)).device_one_time_keys_count).toEqual({ signed_curve25519: 3 });
  });

  it('keeps one of two one-time keys of the same id, and says so, whoever takes them at the same time', async () => {
    const erin = await homeserver.registerUser('erin');
    for (let n = 0; n < 20; n++) {
      const upload = async (process: number): Promise<[status: number, key: string]> => {
        const key = `by ${process}`;
        const keys = { one_time_keys: { [`signed_curve25519:k${n}`]: { key, signatures: {} } } };
        const path = '/_matrix/client/v3/keys/upload';
        return [(await requestProcess(homeserver, process, erin, 'POST', path, keys)).status, key];
      };
      const answers = await Promise.all([upload(1), upload(2)]);
      expect(answers.map(([status]) => status).toSorted()).toEqual([200, 400]);
      const claim = { one_time_keys: { [erin.userId]: { [erin.deviceId]: 'signed_curve25519' } } };
      type Claimed = { one_time_keys: Record<string, Record<string, Record<string, { key: string }>>> };
      const { one_time_keys: claimed } = await ask<Claimed>(0, alice, 'POST', '/keys/claim', claim);
      const [{ key }] = Object.values(claimed[erin.userId]![erin.deviceId]!) as [{ key: string }];
      expect(answers.find(([status]) => status === 200)?.[1]).toBe(key);
    }
  });

  it('tells whoever shares a room of new keys, whoever took them', async () => {
    const tokens: string[] = [];
    for (const process of [0, 1, 2]) tokens.push((await sync(process, alice, undefined)).next_batch);
    const changed = async (process: number, timeoutMs: number): Promise<readonly string[]> => {
      const { next_batch: since, device_lists: lists } = await sync(process, alice, tokens[process], timeoutMs);
      tokens[process] = since;
      return lists?.changed ?? [];
    };
    type Keys = { device_keys: Record<string, Record<string, { keys: Record<string, string> }>> };
    for (let n = 0; n < 9; n++) {
      const waiting = (async () => {
        // Who is there is news as well.
        for (;;) if ((await changed((n + 1) % 3, 30_000)).includes(bob.userId)) return;
      })();
      await ask(n % 3, bob, 'POST', '/keys/upload', deviceKeys(bob, n));
      for (const reader of [n % 3, (n + 2) % 3]) expect([n, await changed(reader, 0)]).toEqual([n, [bob.userId]]);
      await waiting;
      for (const reader of [0, 1, 2]) {
        expect([n, await changed(reader, 0)]).toEqual([n, []]);
        const query = { device_keys: { [bob.userId]: [] } };
        const { device_keys: keys } = await ask<Keys>(reader, alice, 'POST', '/keys/query', query);
        expect(keys[bob.userId]?.[bob.deviceId]?.keys[`ed25519:${bob.deviceId}`]).toBe(`ed${n}`);
      }
    }
  });

  it('ends a sliding sync that begins anew elsewhere, at all of them', async () => {
    const lists = { lists: { all: { ranges: [[0, 9]], timeline_limit: 1, required_state: [] } } };
    const sliding = async (process: number, pos?: string): Promise<{ pos?: string; errcode?: string }> => {
      const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0';
      const query = pos === undefined ? '' : `&pos=${part(pos)}`;
      const response = await requestProcess(homeserver, process, bob, 'POST', path + query, lists);
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

  it('begins a sliding sync anew, whoever is asked at the same time', async () => {
    for (let n = 0; n < 20; n++) {
      const begin = async (process: number): Promise<number> => {
        const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0';
        return (await requestProcess(homeserver, process, bob, 'POST', path, { conn_id: `both ${n % 2}` })).status;
      };
      expect(await Promise.all([0, 1, 2, 1, 2].map(begin))).toEqual([200, 200, 200, 200, 200]);
    }
  });

  it('goes to the process that knows where it has to go', async () => {
    const names = await written(() => tell(1, '@zoe:elsewhere.test', 'PHONE', 1));
    expect(names.map((each) => each.includes('to_device_send'))).toEqual([true, false, false]);
  });
});
