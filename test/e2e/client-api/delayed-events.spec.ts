import { eventually, createTestHomeserver, FakeClock, type TestHomeserver, type TestUser } from '@rookery/testing';
import { acting, RegistrationFiles } from '../appservices/support.js';

interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly origin_server_ts: number;
  readonly content: Record<string, unknown>;
  readonly unsigned?: Record<string, unknown>;
}

interface Delayed {
  readonly delay_id: string;
  readonly room_id: string;
  readonly type: string;
  readonly state_key?: string;
  readonly delay: number;
  readonly running_since: number;
  readonly content: Record<string, unknown>;
}

const base = '/_matrix/client/unstable/org.matrix.msc4140/delayed_events';
const wide = { per_second: 100_000, burst_count: 100_000 };
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

let transaction = 0;

describe.each(['sqlite', 'postgres'] as const)('delayed events (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  // However long a request takes, nothing falls due meanwhile.
  const clock = new FakeClock(Date.now());
  const files = new RegistrationFiles();

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database,
      clock,
      // Not held against the specification's data, which does not know of answers without an event id.
      settings: {
        max_event_delay_duration: '1h',
        rc_delayed_event_mgmt: wide,
        app_service_config_files: [
          files.write('bridge', { namespaces: { users: [{ regex: '@bob:.*', exclusive: false }] } }),
        ],
        experimental_features: { msc4140_max_delayed_events_per_user: 3 },
      },
    });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(async () => {
    await homeserver?.stop();
    files.remove();
  });
  beforeEach(async () => {
    const { body } = await alice.request('POST', '/createRoom', {
      preset: 'private_chat',
      invite: [bob.userId],
      power_level_content_override: { state_default: 0 },
    });
    roomId = String(body['room_id']);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
  });

  const schedule = async (user: TestUser, content: object, delayMs: number, txnId?: string): Promise<string> => {
    const id = txnId ?? `t${(transaction += 1)}`;
    const path = `/rooms/${roomId}/send/m.room.message/${id}?org.matrix.msc4140.delay=${delayMs}`;
    const { status, body } = await user.request('PUT', path, { msgtype: 'm.text', ...content });
    expect({ status, body }).toEqual({ status: 200, body: { delay_id: expect.any(String) } });
    return String(body['delay_id']);
  };
  const state = async (user: TestUser, key: string, delayMs: number): Promise<string> => {
    const path = `/rooms/${roomId}/state/org.example/${key}?org.matrix.msc4140.delay=${delayMs}`;
    return String((await user.request('PUT', path, { gone: true })).body['delay_id']);
  };
  const listed = async (user: TestUser): Promise<Delayed[]> =>
    (await user.request<{ delayed_events: Delayed[] }>('GET', base)).body.delayed_events;
  const timeline = async (user: TestUser): Promise<WireEvent[]> =>
    (await user.request<{ chunk: WireEvent[] }>('GET', `/rooms/${roomId}/messages?dir=b&limit=30`)).body.chunk;
  const said = async (): Promise<unknown[]> =>
    (await timeline(bob)).filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);
  /** Time goes on while this waits: what looked at it before may have set a timer that is due at once. */
  const untilSaid = (count: number): Promise<boolean> =>
    eventually(async () => {
      await clock.advance(1);
      return (await said()).length >= count;
    });
  const cancelAll = async (user: TestUser): Promise<void> => {
    for (const { delay_id: id } of await listed(user)) await user.request('POST', `${base}/${id}/cancel`, {});
  };

  it('answers a repeated request by its transaction, whether or not it says again what is to be sent', async () => {
    const id = await schedule(alice, { body: 'once' }, 1000, 'again');
    const path = `/rooms/${roomId}/send/m.room.message/again`;
    const repeated = await alice.request('PUT', `${path}?org.matrix.msc4140.delay=1000`);
    expect([repeated.status, repeated.body]).toEqual([200, { delay_id: id }]);
    expect(await listed(alice)).toHaveLength(1);
    const sent = await alice.request('PUT', `${path}-now`, { msgtype: 'm.text', body: 'now' });
    expect((await alice.request('PUT', `${path}-now`)).body).toEqual(sent.body);
    for (const query of ['', '?org.matrix.msc4140.delay=1000'])
      expect((await alice.request('PUT', `${path}-new${query}`)).body).toMatchObject({ errcode: 'M_NOT_JSON' });
    expect(await said()).toEqual(['now']);
    await cancelAll(alice);
  });

  it('sends an event when its time has come, and tells its own device', async () => {
    const id = await schedule(alice, { body: 'later' }, 300);
    expect(await said()).toEqual([]);
    expect(await listed(alice)).toEqual([
      {
        delay_id: id,
        room_id: roomId,
        type: 'm.room.message',
        delay: 300,
        running_since: expect.any(Number),
        content: { msgtype: 'm.text', body: 'later' },
      },
    ]);
    expect(await listed(bob)).toEqual([]);
    await clock.advance(300);
    await untilSaid(1);
    expect(await said()).toEqual(['later']);
    await eventually(async () => (await listed(alice)).length === 0);
    expect(await listed(alice)).toEqual([]);
    const [own] = (await timeline(alice)).filter((event) => event.type === 'm.room.message');
    expect(own?.unsigned).toMatchObject({ 'org.matrix.msc4140.delay_id': id });
    expect(own?.unsigned).not.toHaveProperty('transaction_id');
    const [others] = (await timeline(bob)).filter((event) => event.type === 'm.room.message');
    expect(others?.unsigned).not.toHaveProperty(['org.matrix.msc4140.delay_id']);
  });

  it('sends what application services leave, as users whom nobody registered, and with the time that they name', async () => {
    const [service, puppet] = [acting(homeserver, 'bridge'), acting(homeserver, 'bridge', bob.userId)];
    await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: service.userId });
    await service.request('POST', `/rooms/${roomId}/join`, {});
    await schedule(service, { body: 'by itself' }, 300);
    const content = { msgtype: 'm.text', body: 'as another' };
    const path = `/rooms/${roomId}/send/m.room.message/ts?org.matrix.msc4140.delay=301&ts=1234567890`;
    expect((await puppet.request('PUT', path, content)).status).toBe(200);
    await clock.advance(301);
    await untilSaid(2);
    const sent = (await timeline(bob)).filter((event) => event.type === 'm.room.message');
    expect(new Map(sent.map(({ sender, content, origin_server_ts: ts }) => [sender, [content['body'], ts]]))).toEqual(
      new Map([
        [service.userId, ['by itself', expect.any(Number)]],
        [bob.userId, ['as another', 1234567890]],
      ]),
    );
  });

  it.each<[string, (id: string) => Promise<unknown>]>([
    ['sent', (id) => homeserver.request('POST', `${base}/${id}/send`, {})],
    ['canceled', (id) => homeserver.request('POST', `${base}/${id}/cancel`, {})],
  ])('answers a request that is repeated after its event was %s as before', async (how, act) => {
    const id = await schedule(alice, { body: how }, 60_000, how);
    await act(id);
    const before = await said();
    expect(await schedule(alice, { body: how }, 60_000, how)).toBe(id);
    const path = `/rooms/${roomId}/send/m.room.message/${how}?org.matrix.msc4140.delay=60000`;
    expect((await alice.request('PUT', path)).body).toEqual({ delay_id: id });
    expect(await listed(alice)).toEqual([]);
    expect(await said()).toEqual(before);
  });

  it('sends at once, cancels and restarts, also without a token', async () => {
    const now = await schedule(alice, { body: 'now' }, 60_000);
    expect((await homeserver.request('POST', `${base}/${now}`, { action: 'send' })).status).toBe(200);
    expect(await said()).toEqual(['now']);
    const never = await schedule(alice, { body: 'never' }, 300);
    expect((await homeserver.request('POST', `${base}/${never}/cancel`, {})).status).toBe(200);
    const held = await schedule(alice, { body: 'held' }, 600);
    const before = (await listed(alice))[0]?.running_since ?? 0;
    for (let beats = 0; beats < 3; beats++) {
      await clock.advance(300);
      expect((await alice.request('POST', `${base}/${held}`, { action: 'restart' })).status).toBe(200);
    }
    expect((await listed(alice))[0]?.running_since).toBeGreaterThan(before + 500);
    await pause(100);
    expect(await said()).toEqual(['now']);
    await clock.advance(600);
    await untilSaid(2);
    expect(await said()).toEqual(['held', 'now']);
    for (const id of [now, never, 'unknown', 'x'.repeat(500)]) {
      for (const action of ['send', 'cancel', 'restart']) {
        expect(await alice.request('POST', `${base}/${id}/${action}`, {})).toMatchObject({
          status: 404,
          body: { errcode: 'M_NOT_FOUND' },
        });
      }
    }
    expect((await alice.request('POST', `${base}/${held}`, { action: 'dance' })).status).toBe(400);
  });

  it('gives way to state that somebody else sets', async () => {
    await state(alice, 'mine', 60_000);
    await state(alice, 'other', 60_001);
    await alice.request('PUT', `/rooms/${roomId}/state/org.example/mine`, { by: 'alice' });
    expect((await listed(alice)).map((event) => event.state_key)).toEqual(['mine', 'other']);
    await bob.request('PUT', `/rooms/${roomId}/state/org.example/mine`, { by: 'bob' });
    expect((await listed(alice)).map((event) => event.state_key)).toEqual(['other']);
    const [left] = await listed(alice);
    await alice.request('POST', `${base}/${left?.delay_id}/send`, {});
    expect((await bob.request('GET', `/rooms/${roomId}/state/org.example/other`)).body).toEqual({ gone: true });
  });

  it('survives a restart, and sends what fell due meanwhile once', async () => {
    await schedule(alice, { body: 'due' }, 200);
    await schedule(alice, { body: 'far' }, 60_000);
    const restarted = homeserver.restart();
    await clock.advance(200);
    await restarted;
    await untilSaid(1);
    await pause(100);
    expect(await said()).toEqual(['due']);
    expect((await listed(alice)).map((event) => event.content['body'])).toEqual(['far']);
    await cancelAll(alice);
  });

  it('has limits, and makes one of a repeated request', async () => {
    const id = await schedule(bob, { body: 'once' }, 60_000, 'same');
    expect(await schedule(bob, { body: 'once' }, 60_000, 'same')).toBe(id);
    const parallel = await Promise.all([1, 2, 3].map(() => schedule(bob, { body: 'twice' }, 60_000, 'parallel')));
    expect(new Set(parallel).size).toBe(1);
    await schedule(bob, { body: 'third' }, 60_000);
    const path = `/rooms/${roomId}/send/m.room.message`;
    const content = { msgtype: 'm.text', body: 'x' };
    const refused = async (user: TestUser, delay: string, status: number, errcode: string): Promise<void> => {
      const answer = await user.request('PUT', `${path}/x?org.matrix.msc4140.delay=${delay}`, content);
      expect(answer).toMatchObject({ status, body: { errcode } });
    };
    const one = `/_matrix/client/unstable/org.matrix.msc4140/delayed_events/${id}`;
    expect(await bob.request('GET', one)).toMatchObject({
      status: 200,
      body: { delay_id: id, room_id: roomId, type: 'm.room.message', delay: 60_000, content: { body: 'once' } },
    });
    expect(await alice.request('GET', one)).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    await refused(bob, '60000', 429, 'M_LIMIT_EXCEEDED');
    await refused(alice, '3600001', 400, 'ORG.MATRIX.MSC4140_DELAY_TOO_LARGE');
    await refused(alice, '-5', 400, 'M_INVALID_PARAM');
    await refused(alice, 'soon', 400, 'M_INVALID_PARAM');
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    await cancelAll(bob);
    await refused(bob, '60000', 403, 'M_FORBIDDEN');
  });
});

it('does not delay anything unless it is told to', async () => {
  const homeserver = await createTestHomeserver();
  try {
    const alice = await homeserver.registerUser('alice');
    const { body } = await alice.request('POST', '/createRoom', {});
    const path = `/rooms/${String(body['room_id'])}/send/m.room.message/1?org.matrix.msc4140.delay=100`;
    expect(await alice.request('PUT', path, { msgtype: 'm.text', body: 'x' })).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
  } finally {
    await homeserver.stop();
  }
});
