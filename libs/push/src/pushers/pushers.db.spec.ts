import { buildEvent, roomVersionRules, signEvent, SigningKey } from '@rookery/events';
import { EventPersister } from '@rookery/rooms';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { MatrixError } from '@rookery/matrix-types';
import { AccountValidity } from '@rookery/users';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

interface Notification {
  readonly event_id?: string;
  readonly room_id?: string;
  readonly counts?: { readonly unread?: number };
  readonly devices: readonly { readonly pushkey: string; readonly data: object; readonly tweaks?: object }[];
  readonly [key: string]: unknown;
}

/** A push gateway on the loopback address. */
class TestGateway {
  readonly received: Notification[] = [];
  status = 200;
  rejected: readonly string[] = [];
  /** What comes first; afterwards `rejected` holds. */
  readonly answers: { readonly rejected: readonly string[] }[] = [];
  requests = 0;
  /** When requests were given up, milliseconds. */
  readonly givenUpMs: number[] = [];
  /** Happens before the answer. */
  onRequest: (() => Promise<void>) | undefined;
  readonly #server: Server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { notification } = JSON.parse(Buffer.concat(chunks).toString()) as { notification: Notification };
      this.requests++;
      response.once('close', () => void (response.writableFinished || this.givenUpMs.push(performance.now())));
      if (this.status === 200) this.received.push(notification);
      void (this.onRequest?.() ?? Promise.resolve()).then(() => {
        response.writeHead(this.status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(this.answers.shift() ?? { rejected: this.rejected }));
      });
    });
  });

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return this;
  }
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/_matrix/push/v1/notify`;
  }
  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
  /** What was received, once it is at least so much. */
  async events(count: number): Promise<Notification[]> {
    await eventually(() => this.received.length >= count);
    return this.received;
  }
}

let txn = 0;

describe.each(['sqlite', 'postgres'] as const)('pushers (%s)', (database) => {
  let server: TestHomeserver;
  let gateway: TestGateway;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;

  beforeAll(async () => {
    server = await createTestHomeserver({ database, settings: { ip_range_blacklist: [] } });
    alice = await server.registerUser('alice');
  });
  afterAll(() => server.stop());

  beforeEach(async () => {
    gateway = await new TestGateway().listen();
    bob = await server.registerUser(`bob${txn++}`);
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', {
      preset: 'public_chat',
      name: 'Rook',
    });
    roomId = body.room_id;
    expect((await bob.request('POST', `/rooms/${roomId}/join`, {})).status).toBe(200);
  });
  afterEach(() => gateway.close());

  const send = async (body: string, more: object = {}): Promise<string> => {
    const answer = await alice.request<{ event_id: string }>('PUT', `/rooms/${roomId}/send/m.room.message/${txn++}`, {
      msgtype: 'm.text',
      body,
      ...more,
    });
    return answer.body.event_id;
  };
  const pusher = (more: object = {}): object => ({
    kind: 'http',
    app_id: 'org.example.app',
    pushkey: 'key',
    app_display_name: 'App',
    device_display_name: 'Phone',
    lang: 'en',
    data: { url: gateway.url, brand: 'x' },
    ...more,
  });
  const set = (user: TestUser, more: object = {}): Promise<{ status: number; body: Record<string, unknown> }> =>
    user.request('POST', '/pushers/set', pusher(more));
  const read = (eventId: string): Promise<unknown> =>
    bob.request('POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
  const list = async (user: TestUser): Promise<{ pushkey: string }[]> =>
    (await user.request<{ pushers: { pushkey: string }[] }>('GET', '/pushers')).body.pushers;

  it('says which room an invite of another server is to', async () => {
    expect((await set(bob)).status).toBe(200);
    const zoe = '@zoe:remote.test';
    const far = '!far:remote.test';
    const shown = (type: string, stateKey: string, content: object): object => ({
      type,
      state_key: stateKey,
      sender: zoe,
      content,
    });
    const rules = roomVersionRules('10')!;
    const invite = signEvent(
      buildEvent(
        {
          ...{ type: 'm.room.member', stateKey: bob.userId, sender: zoe, content: { membership: 'invite' } },
          ...{ roomId: far, originServerTs: 1, depth: 1, prevEventIds: [], authEventIds: [] },
        },
        rules,
      ),
      'remote.test',
      SigningKey.fromSeed('remote', new Uint8Array(32).fill(9)),
    );
    const state = [
      shown('m.room.name', '', { name: 'Far away' }),
      shown('m.room.member', zoe, { membership: 'join', displayname: 'Zoe' }),
    ];
    const event = { ...invite, pdu: { ...invite.pdu, unsigned: { invite_room_state: state } } };
    await server.server.service(EventPersister).receiveOutOfBand('10', event);
    const [notification] = await gateway.events(1);
    expect(notification).toMatchObject({
      room_id: far,
      room_name: 'Far away',
      sender_display_name: 'Zoe',
      user_is_target: true,
      counts: { unread: 1 },
    });
  });

  it('brings a notification to the gateway, with everything a client can show', async () => {
    await send('before the pusher');
    expect((await set(bob)).status).toBe(200);
    const eventId = await send('hello', { 'm.mentions': { user_ids: [bob.userId] } });
    const [notification] = await gateway.events(1);
    expect(notification).toEqual({
      event_id: eventId,
      room_id: roomId,
      type: 'm.room.message',
      sender: alice.userId,
      sender_display_name: 'alice',
      room_name: 'Rook',
      prio: 'high',
      content: expect.objectContaining({ body: 'hello' }) as object,
      counts: { unread: 1 },
      devices: [
        {
          app_id: 'org.example.app',
          pushkey: 'key',
          pushkey_ts: expect.any(Number) as number,
          data: { brand: 'x' },
          tweaks: { sound: 'default', highlight: true },
        },
      ],
    });
  });

  it('sends ids only to those who want no more', async () => {
    await set(bob, { data: { url: gateway.url, format: 'event_id_only' } });
    const eventId = await send('secret');
    expect(await gateway.events(1)).toEqual([
      {
        event_id: eventId,
        room_id: roomId,
        counts: { unread: 1 },
        prio: 'high',
        devices: [
          {
            app_id: 'org.example.app',
            pushkey: 'key',
            pushkey_ts: expect.any(Number) as number,
            data: { format: 'event_id_only' },
          },
        ],
      },
    ]);
  });

  it('keeps the order, and tells nobody of their own messages', async () => {
    await set(bob);
    await set(alice, { pushkey: 'of alice', append: true });
    const ids = [];
    for (let i = 0; i < 25; i++) ids.push(await send(String(i)));
    // Alice may be told her count meanwhile.
    const pushed = (): string[] => gateway.received.flatMap((one) => one.event_id ?? []);
    await eventually(() => pushed().length >= 25);
    expect(pushed()).toEqual(ids);
    await alice.request('POST', '/pushers/set', pusher({ kind: null, pushkey: 'of alice' }));
  });

  it('goes on after failures, across a restart', async () => {
    await set(bob);
    gateway.status = 502;
    const ids = [await send('one'), await send('two')];
    await sleep(100);
    await server.restart();
    await sleep(100);
    gateway.status = 200;
    expect((await gateway.events(2)).map((one) => one.event_id)).toEqual(ids);
    const last = await send('three');
    expect((await gateway.events(3)).map((one) => one.event_id)).toEqual([...ids, last]);
  });

  it('sends what waits as soon as the client names another gateway', async () => {
    const moved = await new TestGateway().listen();
    await set(bob);
    gateway.status = 500;
    await send('one');
    // After three failures the next attempt is seconds away.
    await eventually(() => gateway.requests >= 3);
    await set(bob, { data: { url: moved.url } });
    for (let waited = 0; waited < 3_500 && moved.received.length === 0; waited += 10) await sleep(10);
    moved.close();
    expect(moved.received.map((one) => one.content)).toEqual([{ msgtype: 'm.text', body: 'one' }]);
  });

  it('a key that was set up anew outlives the rejection of what was sent before', async () => {
    await set(bob);
    gateway.answers.push({ rejected: ['key'] });
    gateway.onRequest = async () => {
      gateway.onRequest = undefined;
      await set(bob);
    };
    const eventId = await send('one');
    // The new one hears of it too, so the refusal of the old one has been dealt with.
    expect((await gateway.events(2)).map((one) => one.event_id)).toEqual([eventId, eventId]);
    const next = await send('two');
    expect((await gateway.events(3)).map((one) => one.event_id)).toEqual([eventId, eventId, next]);
    expect((await list(bob)).map((one) => one.pushkey)).toEqual(['key']);
  });

  it('says nothing more of a room that was left', async () => {
    await set(bob);
    gateway.status = 500;
    await send('one', { 'm.mentions': { user_ids: [bob.userId] } });
    await eventually(() => gateway.requests >= 1);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', { invite: [bob.userId] });
    gateway.status = 200;
    const [invite] = await gateway.events(1);
    expect(invite).toMatchObject({ room_id: body.room_id, type: 'm.room.member' });
    expect(gateway.received).toHaveLength(1);
  });

  it('says nothing of what was purged meanwhile', async () => {
    await set(bob);
    gateway.status = 500;
    await send('one');
    await eventually(() => gateway.requests >= 1);
    const last = await send('two');
    const root = await server.registerAdministrator(`root${txn++}`);
    const purges = '/_synapse/admin/v1/purge_history_status';
    const { body } = await root.request<{ purge_id: string }>(
      'POST',
      `/_synapse/admin/v1/purge_history/${roomId}/${last}`,
      {},
    );
    await eventually(async () => {
      const { body: task } = await root.request<{ status: string }>('GET', `${purges}/${body.purge_id}`);
      return task.status === 'complete';
    });
    gateway.status = 200;
    const [first] = await gateway.events(1);
    expect(first).toMatchObject({ event_id: last, counts: { unread: 1 } });
  });

  it('says nothing twice because the server starts anew while a gateway is about to answer', async () => {
    await set(bob);
    const asked = Promise.withResolvers<void>();
    gateway.onRequest = async () => {
      asked.resolve();
      await sleep(300);
    };
    const eventId = await send('one');
    await asked.promise;
    await server.restart();
    gateway.onRequest = undefined;
    const next = await send('two');
    expect((await gateway.events(2)).map((one) => one.event_id)).toEqual([eventId, next]);
  });

  it('gives gateways that do not answer the same moment for it when the server stops', async () => {
    const users = await Promise.all(Array.from({ length: 8 }, () => server.registerUser(`bob${txn++}`)));
    for (const user of users) {
      await set(user, { pushkey: user.userId });
      expect((await user.request('POST', `/rooms/${roomId}/join`, {})).status).toBe(200);
    }
    gateway.onRequest = () => new Promise(() => {});
    await send('one');
    await eventually(() => gateway.requests === users.length);
    await server.restart();
    await eventually(() => gateway.givenUpMs.length >= users.length);
    const [first = 0, ...others] = gateway.givenUpMs.slice(0, users.length);
    expect(Math.max(...others) - first).toBeLessThan(900);
    for (const user of users) await set(user, { pushkey: user.userId, kind: null });
  });

  it('is held up by nobody whose gateway does not answer', async () => {
    const silent = await new TestGateway().listen();
    silent.onRequest = () => new Promise(() => {});
    const mallory = await server.registerUser(`mallory${txn++}`);
    expect((await mallory.request('POST', `/rooms/${roomId}/join`, {})).status).toBe(200);
    for (let i = 0; i < 70; i++) await set(mallory, { pushkey: `${mallory.userId} ${i}`, data: { url: silent.url } });
    await set(bob);
    const eventId = await send('one');
    expect((await gateway.events(1)).map((one) => one.event_id)).toEqual([eventId]);
    expect(silent.requests).toBeLessThanOrEqual(8);
    await mallory.request('POST', '/logout', {});
    silent.close();
  });

  it('goes to each of many pushers in turn', async () => {
    const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    gateway.onRequest = () => (gateway.requests <= 8 ? first.promise : second.promise);
    const keys = Array.from({ length: 9 }, (_, i) => `${bob.userId} ${i}`);
    for (const pushkey of keys) await set(bob, { pushkey });
    const ids = [await send('one')];
    await eventually(() => gateway.requests >= 8);
    for (const body of ['two', 'three']) ids.push(await send(body));
    const asked = (): (string | undefined)[] => gateway.received.map((one) => one.devices[0]?.pushkey);
    expect(new Set(asked()).size).toBe(8);
    first.resolve();
    await eventually(() => gateway.requests >= 16);
    expect(new Set(asked())).toEqual(new Set(keys));
    second.resolve();
    const received = await gateway.events(keys.length * ids.length);
    for (const key of keys)
      expect(received.flatMap((one) => (one.devices[0]?.pushkey === key ? one.event_id : []))).toEqual(ids);
  });

  it('a rejected key is deleted', async () => {
    await set(bob);
    await set(bob, { pushkey: 'other' });
    gateway.rejected = ['key'];
    await send('hello');
    await eventually(async () => (await list(bob)).length <= 1);
    expect((await list(bob)).map((one) => one.pushkey)).toEqual(['other']);
  });

  it('tells the new count once something was read', async () => {
    await set(bob);
    const eventId = await send('hello');
    await gateway.events(1);
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    const [, badge] = await gateway.events(2);
    expect(badge).toMatchObject({ counts: { unread: 0 }, devices: [{ pushkey: 'key' }] });
    expect(badge).not.toHaveProperty('event_id');
  });

  it('tells the new count, once, after the user has sent something', async () => {
    await set(bob);
    await send('one');
    await send('two');
    await gateway.events(2);
    for (const body of ['answer', 'another', 'and one more'])
      await bob.request('PUT', `/rooms/${roomId}/send/m.room.message/${txn++}`, { msgtype: 'm.text', body });
    const badge = (await gateway.events(3))[2];
    expect(badge).toMatchObject({ counts: { unread: 0 }, devices: [{ pushkey: 'key' }] });
    expect(badge).not.toHaveProperty('event_id');
    await sleep(1_300);
    expect(gateway.received).toHaveLength(3);
  });

  it('asks once at a time because of what was read, and tells what is unread in the end', async () => {
    const ids = [await send('one'), await send('two'), await send('three')];
    await set(bob);
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    gateway.onRequest = () => answered;
    await read(ids[0]!);
    await eventually(() => gateway.requests === 1);
    for (const eventId of ids.slice(1)) {
      await read(eventId);
      await sleep(1_300);
    }
    expect(gateway.requests).toBe(1);
    answer();
    expect((await gateway.events(2)).map((one) => one.counts)).toEqual([{ unread: 1 }, { unread: 0 }]);
  });

  it('leaves a gateway alone that fails, until something gets through', async () => {
    const ids = [await send('one'), await send('two')];
    await set(bob);
    gateway.status = 502;
    await read(ids[0]!);
    await eventually(() => gateway.requests === 1);
    await read(ids[1]!);
    await sleep(1_300);
    expect(gateway.requests).toBe(1);
    gateway.status = 200;
    const last = await send('three');
    await gateway.events(1);
    await read(last);
    expect((await gateway.events(2)).map((one) => one.counts)).toEqual([{ unread: 1 }, { unread: 0 }]);
  });

  it('does not push what was read meanwhile', async () => {
    await set(bob);
    gateway.status = 500;
    const eventId = await send('read elsewhere');
    await eventually(() => gateway.requests > 0);
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    gateway.status = 200;
    const last = await send('new');
    // A new count may come first.
    await eventually(() => gateway.received.some((one) => one.event_id === last));
    expect(gateway.received.flatMap((one) => one.event_id ?? [])).toEqual([last]);
  });

  it('sets, lists, changes and deletes', async () => {
    await set(bob);
    await set(bob, { lang: 'de' });
    expect(await list(bob)).toEqual([{ ...pusher({ lang: 'de' }), profile_tag: '' }]);
    await set(alice, { append: true });
    expect(await list(bob)).toHaveLength(1);
    await set(alice);
    expect(await list(bob)).toHaveLength(0);
    expect((await set(alice, { kind: null })).status).toBe(200);
    expect(await list(alice)).toHaveLength(0);
  });

  it('has a hundred at most, however many come at once', async () => {
    const many = (from: number, to: number): Promise<number[]> =>
      Promise.all(
        Array.from(
          { length: to - from },
          async (_, i) => (await set(bob, { pushkey: `${bob.userId} ${from + i}` })).status,
        ),
      );
    await many(0, 99);
    expect((await many(99, 104)).toSorted((a, b) => a - b)).toEqual([200, 413, 413, 413, 413]);
    expect(await list(bob)).toHaveLength(100);
    expect(await many(0, 1)).toEqual([200]);
  });

  it('ends with the session that set it up', async () => {
    await set(bob);
    const login = await server.request<{ access_token: string }>('POST', '/login', {
      type: 'm.login.password',
      identifier: { type: 'm.id.user', user: bob.userId },
      password: `password of ${bob.userId.slice(1).split(':')[0]}`,
    });
    await bob.request('POST', '/logout', {});
    const { body } = await server.request<{ pushers: unknown[] }>(
      'GET',
      '/pushers',
      undefined,
      login.body.access_token,
    );
    expect(body.pushers).toEqual([]);
  });

  it.each([
    ['a missing name', { app_display_name: undefined }, 'M_MISSING_PARAM'],
    ['a missing key', { pushkey: undefined }, 'M_MISSING_PARAM'],
    ['a missing address', { data: {} }, 'M_MISSING_PARAM'],
    ['an address with another path', { data: { url: 'https://example.org/' } }, 'M_INVALID_PARAM'],
    ['an address of another kind', { data: { url: 'file:///_matrix/push/v1/notify' } }, 'M_INVALID_PARAM'],
    ['a long key', { pushkey: 'x'.repeat(513) }, 'M_INVALID_PARAM'],
    ['another kind', { kind: 'pigeon' }, 'M_INVALID_PARAM'],
    [
      'an address that is not the user’s',
      { kind: 'email', app_id: 'm.email', pushkey: 'a@b.org' },
      'M_THREEPID_NOT_FOUND',
    ],
  ])('refuses %s', async (_, more, errcode) => {
    expect(await set(bob, more)).toMatchObject({ status: 400, body: { errcode } });
    expect(await list(bob)).toEqual([]);
  });
});

describe.each(['sqlite', 'postgres'] as const)('pushers with what is not specified yet (%s)', (database) => {
  let server: TestHomeserver;
  let gateway: TestGateway;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;

  const say = async (body: string): Promise<void> => {
    const path = `/rooms/${roomId}/send/m.room.message/${txn++}`;
    expect((await alice.request('PUT', path, { msgtype: 'm.text', body })).status).toBe(200);
  };
  const set = async (more: object, data: object = {}, user = bob): Promise<void> => {
    const texts = { app_id: 'app', pushkey: 'key', app_display_name: 'A', device_display_name: 'B', lang: 'en' };
    const body = { kind: 'http', ...texts, data: { url: gateway.url, ...data }, ...more };
    expect((await user.request('POST', '/pushers/set', body)).status).toBe(200);
  };
  const bodies = (): unknown[] => gateway.received.map(({ content }) => (content as { body: string }).body);

  beforeAll(async () => {
    const experimental_features = { msc3881_enabled: true, msc4076_enabled: true };
    const account_validity = { enabled: true, period: '4w' };
    const settings = { ip_range_blacklist: [], experimental_features, account_validity, push: { jitter_delay: 20 } };
    server = await createTestHomeserver({ database, settings });
    gateway = await new TestGateway().listen();
    alice = await server.registerUser('alice');
    bob = await server.registerUser('bob');
    const made = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    roomId = made.body.room_id;
    await bob.request('POST', `/rooms/${roomId}/join`, {});
  });
  afterAll(async () => {
    gateway.close();
    await server.stop();
  });

  it('send nothing while they are switched off, nor afterwards what they missed', async () => {
    await set({});
    await say('one');
    await gateway.events(1);
    await set({ 'org.matrix.msc3881.enabled': false });
    await say('two');
    await set({ 'org.matrix.msc3881.enabled': true });
    await say('three');
    await gateway.events(2);
    expect(bodies()).toEqual(['one', 'three']);
  });

  it('send nothing to whoever has expired, nor after a renewal what came meanwhile', async () => {
    const carol = await server.registerUser('carol');
    await carol.request('POST', `/rooms/${roomId}/join`, {});
    await set({});
    await set({ pushkey: 'of carol' }, {}, carol);
    gateway.received.length = 0;
    const validity = server.server.service(AccountValidity);
    await validity.extend(bob.userId, Date.now() - 1_000);
    await say('while expired');
    expect((await gateway.events(1))[0]?.devices).toMatchObject([{ pushkey: 'of carol' }]);
    await validity.extend(bob.userId, Date.now() + 60_000);
    await set({ pushkey: 'of carol', kind: null }, {}, carol);
    await say('renewed');
    await gateway.events(2);
    expect(bodies()).toEqual(['while expired', 'renewed']);
    expect(gateway.received[1]?.devices).toMatchObject([{ pushkey: 'key' }]);
  });

  it('are not held up by a module that cannot say who has expired', async () => {
    gateway.received.length = 0;
    const validity = server.server.service(AccountValidity);
    const fails = jest.spyOn(validity, 'expiredAmong').mockRejectedValue(MatrixError.badRequest('It failed'));
    try {
      await say('all the same');
      await gateway.events(1);
      expect(fails).toHaveBeenCalled();
    } finally {
      fails.mockRestore();
    }
  });

  it('tell no numbers to clients that want none', async () => {
    gateway.received.length = 0;
    await set({}, { 'org.matrix.msc4076.disable_badge_count': true });
    await say('four');
    const [notification] = await gateway.events(1);
    expect(notification?.counts).toBeUndefined();
    const page = await bob.request<{ chunk: { event_id: string }[] }>('GET', `/rooms/${roomId}/messages?dir=b&limit=1`);
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${page.body.chunk[0]?.event_id}`, {});
    await sleep(1_300);
    expect(gateway.received).toHaveLength(1);
  });
});
