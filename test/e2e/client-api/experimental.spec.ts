import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

const unstable = '/_matrix/client/unstable';

const flags = [
  'msc1763_enabled',
  'msc2666_enabled',
  'msc2815_enabled',
  'msc3391_enabled',
  'msc3664_enabled',
  'msc3381_polls_enabled',
  'msc3848_enabled',
  'msc3881_enabled',
  'msc3890_enabled',
  'msc3912_enabled',
  'msc4028_push_encrypted_events',
  'msc4075_enabled',
  'msc4133_enabled',
  'msc4267_enabled',
  'msc4277_enabled',
  'msc4491_enabled',
];

interface Wire {
  readonly event_id: string;
  readonly content: Record<string, unknown>;
  readonly unsigned?: { readonly redacted_because?: object };
}

let transaction = 0;

const makeRoom = async (creator: TestUser, more: object = {}): Promise<string> => {
  const { status, body } = await creator.request('POST', '/createRoom', { preset: 'public_chat', ...more });
  expect({ status, body }).toMatchObject({ status: 200 });
  return String(body['room_id']);
};

const say = async (user: TestUser, roomId: string, content: object = {}, type = 'm.room.message'): Promise<string> => {
  const path = `/rooms/${roomId}/send/${type}/${(transaction += 1)}`;
  const { status, body } = await user.request('PUT', path, { msgtype: 'm.text', body: 'hello', ...content });
  expect({ status, body }).toMatchObject({ status: 200 });
  return String(body['event_id']);
};

const redact = (user: TestUser, roomId: string, eventId: string, body: object = {}) =>
  user.request('PUT', `/rooms/${roomId}/redact/${eventId}/${(transaction += 1)}`, body);

describe.each(['sqlite', 'postgres'] as const)('what is not specified yet, switched on (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    const settings = {
      retention: {
        enabled: true,
        default_policy: { min_lifetime: '1d', max_lifetime: '1y' },
        allowed_lifetime_max: '2y',
      },
      experimental_features: {
        ...Object.fromEntries(flags.map((flag) => [flag, true])),
        msc4388_mode: 'authenticated',
      },
    };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  it('is told in /versions and /capabilities', async () => {
    const versions = await homeserver.request<{ unstable_features: Record<string, boolean> }>(
      'GET',
      '/_matrix/client/versions',
    );
    expect(versions.body.unstable_features).toMatchObject({
      'fi.mau.msc2815': true,
      'org.matrix.msc3881': true,
      'org.matrix.msc3912': true,
      'org.matrix.msc4028': true,
      'uk.timedout.msc4491.create_room_invite_reasons': true,
      'org.matrix.msc4354': false,
    });
    const { body } = await alice.request<{ capabilities: Record<string, unknown> }>('GET', '/capabilities');
    expect(body.capabilities).toMatchObject({
      'im.nheko.msc3664.related_event_match': { enabled: true },
      'org.matrix.msc4267.forget_forced_upon_leave': { enabled: false },
      'm.profile_fields': { enabled: true },
      'uk.tcpip.msc4133.profile_fields': { enabled: true },
    });
  });

  it('how long messages are kept', async () => {
    expect((await alice.request('GET', `${unstable}/org.matrix.msc1763/retention/configuration`)).body).toEqual({
      policies: { '*': { min_lifetime: 86_400_000, max_lifetime: 31_536_000_000 } },
      limits: { max_lifetime: { max: 63_072_000_000 } },
    });
  });

  it('what was redacted, for moderators', async () => {
    const roomId = await makeRoom(alice);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    const eventId = await say(bob, roomId, { body: 'a secret' });
    await redact(bob, roomId, eventId);
    const path = `/rooms/${roomId}/event/${eventId}`;
    const whole = `${path}?fi.mau.msc2815.include_unredacted_content=true`;
    expect((await alice.request<Wire>('GET', path)).body.content).toEqual({});
    const shown = await alice.request<Wire>('GET', whole);
    expect(shown.body.content).toMatchObject({ body: 'a secret' });
    expect(shown.body.unsigned?.redacted_because).toBeDefined();
    expect(await bob.request('GET', whole)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    const stranger = await homeserver.registerUser(`stranger${(transaction += 1)}`);
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.join_rules/`, { join_rule: 'invite' });
    expect((await stranger.request('GET', whole)).status).toBe(404);
    const empty = await say(bob, roomId, {}, 'm.room.message');
    expect((await alice.request<Wire>('GET', whole.replace(eventId, empty))).body.content).toMatchObject({
      body: 'hello',
    });
  });

  it('redactions with what relates to an event', async () => {
    const roomId = await makeRoom(alice);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    const related = (type: string, eventId: string) => ({ 'm.relates_to': { rel_type: type, event_id: eventId } });
    const root = await say(bob, roomId);
    const edit = await say(bob, roomId, { ...related('m.replace', root), 'm.new_content': { body: 'x' } });
    const reply = await say(bob, roomId, related('m.thread', root));
    const foreign = await say(alice, roomId, related('m.thread', root));
    const contentOf = async (eventId: string): Promise<object> =>
      (await alice.request<Wire>('GET', `/rooms/${roomId}/event/${eventId}`)).body.content;
    const wanted = { 'org.matrix.msc3912.with_relations': ['m.replace'], reason: 'spam' };
    expect((await redact(bob, roomId, root, wanted)).status).toBe(200);
    expect([await contentOf(root), await contentOf(edit)]).toEqual([{}, {}]);
    expect(await contentOf(reply)).not.toEqual({});
    // What may not be redacted stays.
    await redact(bob, roomId, root, { 'org.matrix.msc3912.with_relations': ['*'] });
    expect(await contentOf(reply)).toEqual({});
    expect(await contentOf(foreign)).not.toEqual({});
    await redact(alice, roomId, root, { 'org.matrix.msc3912.with_relations': ['*'] });
    expect(await contentOf(foreign)).toEqual({});
    const wrong = { 'org.matrix.msc3912.with_relations': 'm.thread' };
    expect(await redact(alice, roomId, root, wrong)).toMatchObject({
      status: 400,
      body: { errcode: 'M_INVALID_PARAM' },
    });
  });

  it('why an event is refused', async () => {
    const roomId = await makeRoom(alice);
    const codeOf = async (user: TestUser, path: string, body: object, method = 'PUT'): Promise<unknown> => {
      const answer = await user.request(method, path, body);
      expect(answer).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
      return answer.body['org.matrix.msc3848.unstable.errcode'];
    };
    const topic = `/rooms/${roomId}/state/m.room.topic/`;
    expect(await codeOf(bob, topic, { topic: 'x' })).toBe('ORG.MATRIX.MSC3848.NOT_JOINED');
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    expect(await codeOf(bob, topic, { topic: 'x' })).toBe('ORG.MATRIX.MSC3848.INSUFFICIENT_POWER');
    expect(await codeOf(alice, `/rooms/${roomId}/invite`, { user_id: bob.userId }, 'POST')).toBe(
      'ORG.MATRIX.MSC3848.ALREADY_JOINED',
    );
  });

  it('pushers that other devices switch off', async () => {
    const pusher = {
      kind: 'http',
      app_id: 'app',
      pushkey: `key ${database}`,
      app_display_name: 'App',
      device_display_name: 'Phone',
      lang: 'en',
      data: { url: 'https://push.example.org/_matrix/push/v1/notify' },
    };
    expect((await alice.request('POST', '/pushers/set', pusher)).status).toBe(200);
    const login = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'alice' } };
    const other = await homeserver.request('POST', '/login', { ...login, password: 'password of alice' });
    const off = { ...pusher, 'org.matrix.msc3881.enabled': false };
    const token = String(other.body['access_token']);
    expect((await homeserver.request('POST', '/pushers/set', off, token)).status).toBe(200);
    const { body } = await alice.request<{ pushers: Record<string, unknown>[] }>('GET', '/pushers');
    expect(body.pushers).toHaveLength(1);
    expect(body.pushers[0]).toMatchObject({
      'org.matrix.msc3881.enabled': false,
      'org.matrix.msc3881.device_id': alice.deviceId,
    });
    // It goes with the device that set it up, not with the one that switched it off.
    await homeserver.request('POST', '/logout', {}, token);
    expect((await alice.request<{ pushers: object[] }>('GET', '/pushers')).body.pushers).toHaveLength(1);
  });

  it('whether a device is silent, until it is gone', async () => {
    const login = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'alice' } };
    const other = await homeserver.request('POST', '/login', { ...login, password: 'password of alice' });
    const type = `org.matrix.msc3890.local_notification_settings.${String(other.body['device_id'])}`;
    const path = `/user/${alice.userId}/account_data/${type}`;
    await alice.request('PUT', path, { is_silenced: true });
    await homeserver.request('POST', '/logout', {}, String(other.body['access_token']));
    expect((await alice.request('GET', path)).status).toBe(404);
  });

  it('account data that was deleted, told only to those who had it', async () => {
    const carol = await homeserver.registerUser(`carol${(transaction += 1)}`);
    const roomId = await makeRoom(carol);
    const type = 'account_data/org.example.deleted';
    const paths = [`/user/${carol.userId}/${type}`, `/user/${carol.userId}/rooms/${roomId}/${type}`];
    const list = { ranges: [[0, 50]], timeline_limit: 1, required_state: [] };
    const whole = { lists: { all: list }, extensions: { account_data: { enabled: true } } };
    const slidingPath = `${unstable}/org.matrix.simplified_msc3575/sync?timeout=0`;
    // How often an answer names the type: once for the account, once for the room.
    const named = ({ status, body }: { readonly status: number; readonly body: unknown }): number => {
      expect(status).toBe(200);
      return JSON.stringify(body).split('org.example.deleted').length - 1;
    };
    for (const path of paths) await carol.request('PUT', path, { here: true });
    const { body: before } = await carol.request('GET', '/sync');
    const { body: pos } = await carol.request('POST', slidingPath, whole);
    for (const path of paths)
      expect((await carol.request('DELETE', `${unstable}/org.matrix.msc3391${path}`)).status).toBe(200);
    for (const path of paths) expect((await carol.request('GET', path)).status).toBe(404);
    expect(named(await carol.request('GET', `/sync?since=${String(before['next_batch'])}`))).toBe(2);
    expect(named(await carol.request('POST', `${slidingPath}&pos=${String(pos['pos'])}`, whole))).toBe(2);
    expect(named(await carol.request('GET', '/sync'))).toBe(0);
    expect(named(await carol.request('POST', slidingPath, whole))).toBe(0);
    expect(named(await carol.request('GET', `/rooms/${roomId}/initialSync`))).toBe(0);
  });

  it('reports that do not tell what there is', async () => {
    const roomId = await makeRoom(alice, { preset: 'private_chat' });
    const eventId = await say(alice, roomId);
    for (const path of [
      `/rooms/${roomId}/report/${eventId}`,
      `/rooms/${roomId}/report/$nothing`,
      '/rooms/!nothing:rookery.test/report',
      '/users/@nobody:rookery.test/report',
    ])
      expect(await bob.request('POST', path, { reason: 'x' })).toMatchObject({ status: 200, body: {} });
  });

  it('reasons of invites in new rooms', async () => {
    const carol = await homeserver.registerUser(`carol${(transaction += 1)}`);
    const roomId = await makeRoom(alice, {
      invite: [bob.userId, carol.userId],
      'uk.timedout.msc4491.invite_reason': 'join us',
      'uk.timedout.msc4491.invite_reasons': { [carol.userId]: 'we need you' },
    });
    const reasonOf = async (user: TestUser): Promise<unknown> =>
      (await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${user.userId}`)).body['reason'];
    expect([await reasonOf(bob), await reasonOf(carol)]).toEqual(['join us', 'we need you']);
    const wrong = { invite: [bob.userId], 'uk.timedout.msc4491.invite_reason': 1 };
    expect((await alice.request('POST', '/createRoom', wrong)).status).toBe(400);
  });

  it('common rooms, by their former name', async () => {
    const path = `${unstable}/uk.half-shot.msc2666/user/mutual_rooms?user_id=${bob.userId}`;
    const { status, body } = await alice.request<{ joined: string[] }>('GET', path);
    expect(status).toBe(200);
    expect(body.joined.length).toBeGreaterThan(0);
  });

  it('rules for polls, replies, calls and encrypted events', async () => {
    const { body } = await bob.request<{ global: Record<string, { rule_id: string; enabled: boolean }[]> }>(
      'GET',
      '/pushrules/',
    );
    const ids = Object.values(body.global).flatMap((rules) => rules.map((rule) => rule.rule_id));
    expect(ids).toEqual(
      expect.arrayContaining([
        '.im.nheko.msc3664.reply',
        '.org.matrix.msc3930.rule.poll_response',
        '.org.matrix.msc3930.rule.poll_start_one_to_one',
        '.org.matrix.msc3930.rule.poll_end',
        '.org.matrix.msc4075.rule.rtc.invite_for_me',
        '.org.matrix.msc4075.rule.rtc.invite_for_room',
      ]),
    );
    expect(body.global['override']?.[1]).toMatchObject({
      rule_id: '.org.matrix.msc4028.encrypted_event',
      enabled: false,
    });
    const roomId = await makeRoom(alice);
    const carol = await homeserver.registerUser(`carol${(transaction += 1)}`);
    for (const user of [bob, carol]) await user.request('POST', `/rooms/${roomId}/join`, {});
    const mine = await say(bob, roomId);
    const highlights = async (user: TestUser): Promise<number> => {
      const sync = await user.request<{
        rooms: { join: Record<string, { unread_notifications: { highlight_count: number } }> };
      }>('GET', '/sync?timeout=0');
      return sync.body.rooms.join[roomId]?.unread_notifications.highlight_count ?? -1;
    };
    await say(alice, roomId, { 'm.relates_to': { 'm.in_reply_to': { event_id: mine } } });
    expect([await highlights(bob), await highlights(carol)]).toEqual([1, 0]);
    // A reply that only fills in for a thread is none.
    const relation = { rel_type: 'm.thread', event_id: mine, is_falling_back: true };
    await say(alice, roomId, { 'm.relates_to': { ...relation, 'm.in_reply_to': { event_id: mine } } });
    expect(await highlights(bob)).toBe(1);
    // A call rings for those whom it names, whose mention alone would be one more highlight.
    const call = { 'm.mentions': { user_ids: [bob.userId] }, notification_type: 'ring' };
    const path = `/rooms/${roomId}/send/org.matrix.msc4075.rtc.notification/t${(transaction += 1)}`;
    expect((await alice.request('PUT', path, call)).status).toBe(200);
    expect(await highlights(bob)).toBe(1);
    const told = await bob.request<{ notifications: { actions: unknown[] }[] }>('GET', '/notifications?limit=1');
    expect(told.body.notifications[0]?.actions).toEqual(['notify', { set_tweak: 'sound', value: 'ring' }]);
  });

  it('sessions in which one device signs in another', async () => {
    const base = `${unstable}/io.element.msc4388/rendezvous`;
    expect((await homeserver.request('GET', base)).body).toEqual({ create_available: false });
    expect((await alice.request('GET', base)).body).toEqual({ create_available: true });
    expect((await homeserver.request('POST', base, { data: 'x' })).status).toBe(401);
    const made = await alice.request<Record<string, string | number>>('POST', base, { data: 'hello' });
    expect(made.body).toEqual({
      id: expect.any(String),
      sequence_token: expect.any(String),
      expires_in_ms: expect.any(Number),
    });
    const path = `${base}/${made.body['id']}`;
    const { sequence_token: first } = made.body;
    expect((await homeserver.request('GET', path)).body).toMatchObject({ data: 'hello', sequence_token: first });
    const written = await homeserver.request('PUT', path, { sequence_token: first, data: 'answer' });
    const again = await homeserver.request('PUT', path, { sequence_token: first, data: 'answer' });
    expect(again.body).toEqual(written.body);
    expect(await homeserver.request('PUT', path, { sequence_token: first, data: 'other' })).toMatchObject({
      status: 409,
      body: { errcode: 'IO_ELEMENT_MSC4388_CONCURRENT_WRITE' },
    });
    const { sequence_token: second } = written.body;
    const large = { sequence_token: second, data: 'ä'.repeat(4_000) };
    expect(await homeserver.request('PUT', path, large)).toMatchObject({
      status: 413,
      body: { errcode: 'M_TOO_LARGE' },
    });
    const opened = await fetch(homeserver.baseUrl + path, { headers: { 'sec-fetch-dest': 'document' } });
    expect(opened.status).toBe(403);
    expect((await homeserver.request('DELETE', path)).body).toEqual({});
    for (const method of ['GET', 'DELETE']) expect((await homeserver.request(method, path)).status).toBe(404);
    // Whoever makes too many loses the oldest, and nobody else does.
    const make = async (user: TestUser): Promise<string> => {
      const { body } = await user.request('POST', base, { data: 'x' });
      return `${base}/${String(body['id'])}`;
    };
    const others = await make(bob);
    const old = await make(alice);
    for (let i = 0; i < 100; i++) await make(alice);
    expect((await homeserver.request('GET', old)).status).toBe(404);
    expect((await homeserver.request('GET', others)).status).toBe(200);
  });
});

it('is not there unless the server is set so', async () => {
  const homeserver = await createTestHomeserver({ fetch: validatedFetch });
  try {
    const alice = await homeserver.registerUser('alice');
    for (const [method, path] of [
      ['GET', '/org.matrix.msc1763/retention/configuration'],
      ['GET', '/uk.half-shot.msc2666/user/mutual_rooms?user_id=@a:b'],
      ['GET', '/io.element.msc4388/rendezvous'],
      ['POST', '/io.element.msc4388/rendezvous'],
      ['POST', '/org.matrix.msc4108/rendezvous'],
    ] as const) {
      const answer = await alice.request(method, unstable + path, method === 'POST' ? { data: 'x' } : undefined);
      expect({ path, ...answer }).toMatchObject({ path, status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
    }
    const roomId = await makeRoom(alice);
    const eventId = await say(alice, roomId);
    await redact(alice, roomId, eventId);
    const path = `/rooms/${roomId}/event/${eventId}?fi.mau.msc2815.include_unredacted_content=true`;
    expect((await alice.request<Wire>('GET', path)).body.content).toEqual({});
    expect((await alice.request('POST', '/rooms/!nothing:rookery.test/report', { reason: 'x' })).status).toBe(404);
  } finally {
    await homeserver.stop();
  }
});

describe('the first form of sign-in sessions', () => {
  const post = (homeserver: TestHomeserver, body: string, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${homeserver.baseUrl}${unstable}/org.matrix.msc4108/rendezvous`, {
      method: 'POST',
      redirect: 'manual',
      headers: { 'content-type': 'text/plain', ...headers },
      body,
    });

  it('may be kept elsewhere', async () => {
    const elsewhere = 'https://rendezvous.example.org/';
    const settings = { experimental_features: { msc4108_delegation_endpoint: elsewhere } };
    const homeserver = await createTestHomeserver({ settings });
    try {
      const answer = await post(homeserver, 'hello');
      expect([answer.status, answer.headers.get('location')]).toEqual([307, elsewhere]);
    } finally {
      await homeserver.stop();
    }
  });
});
