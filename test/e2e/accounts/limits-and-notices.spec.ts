import { ServerNotices } from '@rookery/admin';
import { Database } from '@rookery/database';
import {
  eventually,
  createTestHomeserver,
  RecordingLogger,
  type TestHomeserver,
  type TestUser,
} from '@rookery/testing';
import { ClientActivity, ConsentService, MonthlyActiveUsers, ThreepidService } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import { asJson, ForwardClock, type Json, logIn, openPage, submitForm } from './support.js';

const dayMs = 86_400_000;
const contact = 'mailto:admin@rookery.test';
const notices = {
  system_mxid_localpart: 'notices',
  system_mxid_display_name: 'The server',
  room_name: 'News of the server',
  room_topic: 'What you should know',
  room_avatar_url: 'mxc://rookery.test/room',
};
const limitReached = {
  status: 403,
  errcode: 'M_RESOURCE_LIMIT_EXCEEDED',
  limit_type: 'monthly_active_user',
  admin_contact: contact,
};
const consentDocuments = new URL('./fixtures/consent', import.meta.url).pathname;

interface NoticeEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly content: Json;
}
interface SyncBody {
  readonly rooms?: {
    readonly join?: Record<
      string,
      { timeline: { events: NoticeEvent[] }; state: { events: NoticeEvent[] }; account_data: { events: NoticeEvent[] } }
    >;
    readonly invite?: Record<string, { invite_state: { events: NoticeEvent[] } }>;
  };
}

/** Lets the server write down who was active, which is when it looks who is to be told something. */
const noticed = (homeserver: TestHomeserver): Promise<void> => homeserver.server.service(ClientActivity).flush();
const sync = async (user: TestUser): Promise<SyncBody> => (await user.request<SyncBody>('GET', '/sync?timeout=0')).body;
const invitesOf = async (user: TestUser): Promise<string[]> => Object.keys((await sync(user)).rooms?.invite ?? {});
const stateOf = async (user: TestUser, roomId: string, type: string): Promise<Json> =>
  (await user.request('GET', `/rooms/${roomId}/state/${type}`)).body;
const messagesIn = async (user: TestUser, roomId: string): Promise<NoticeEvent[]> => {
  const { body } = await user.request<{ chunk: NoticeEvent[] }>('GET', `/rooms/${roomId}/messages?dir=b&limit=100`);
  return body.chunk.filter(({ type }) => type === 'm.room.message');
};

describe.each(['sqlite', 'postgres'] as const)('monthly active users (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  let bob: TestUser;
  const clock = new ForwardClock();
  const active = (): MonthlyActiveUsers => homeserver.server.service(MonthlyActiveUsers);

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      clock,
      fetch: validatedFetch,
      settings: {
        limit_usage_by_mau: true,
        max_mau_value: 2,
        admin_contact: contact,
        enable_metrics: true,
        allow_guest_access: true,
        server_notices: { ...notices, auto_join: true },
        mau_limit_reserved_threepids: [{ medium: 'email', address: 'boss@rookery.test' }],
        listeners: [
          {
            port: 0,
            bind_addresses: ['127.0.0.1'],
            type: 'http',
            resources: [{ names: ['client', 'consent', 'metrics'] }],
          },
        ],
      },
    });
    ann = await homeserver.registerUser('ann');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  it('lets in as many as there are places, and shuts the others out of everything that counts', async () => {
    const carl = await homeserver.registerUser('carl');
    for (const user of [ann, bob]) expect((await user.request('GET', '/sync?timeout=0')).status).toBe(200);
    const created = await ann.request('POST', '/createRoom', { preset: 'public_chat' });
    const roomId = String(created.body['room_id']);
    const refused: readonly (readonly [string, string, Json?])[] = [
      ['GET', '/sync?timeout=0'],
      ['GET', '/events?timeout=0'],
      ['GET', '/initialSync'],
      ['POST', '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync', {}],
      ['POST', '/createRoom', {}],
      ['POST', `/join/${roomId}`, {}],
      ['PUT', `/rooms/${roomId}/send/m.room.message/1`, { msgtype: 'm.text', body: 'x' }],
      ['PUT', `/rooms/${roomId}/state/m.room.topic/`, { topic: 'x' }],
      ['POST', `/rooms/${roomId}/invite`, { user_id: ann.userId }],
    ];
    for (const [method, path, body] of refused)
      expect([path, asJson(await carl.request(method, path, body))]).toMatchObject([path, limitReached]);
    // What changes nothing for others stays open: the client can show why, and log out.
    expect((await carl.request('GET', '/account/whoami')).status).toBe(200);
    const password = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'carl' } };
    const login = homeserver.request('POST', '/login', { ...password, password: 'password of carl' });
    expect(asJson(await login)).toMatchObject(limitReached);
    const auth = { type: 'm.login.dummy' };
    const registration = homeserver.request('POST', '/register', { username: 'dora', password: 'long enough', auth });
    expect(asJson(await registration)).toMatchObject(limitReached);
    expect(asJson(await homeserver.request('POST', '/register?kind=guest', {}))).toMatchObject(limitReached);
    expect((await carl.request('POST', '/logout', {})).status).toBe(200);
    await logIn(homeserver, 'ann');
    expect((await ann.request('GET', '/sync?timeout=0')).status).toBe(200);
  });

  it('pins a notice of it, and takes the pin off when there is room again', async () => {
    await noticed(homeserver);
    const service = homeserver.server.service(ServerNotices);
    const roomId = await eventually(() => service.roomOf(ann.userId));
    const pinned = await eventually(async () => {
      const { pinned: ids } = await stateOf(ann, roomId, 'm.room.pinned_events');
      return Array.isArray(ids) && ids.length > 0 ? (ids as string[]) : undefined;
    });
    const [notice] = await messagesIn(ann, roomId);
    expect(notice).toMatchObject({
      event_id: pinned[0],
      sender: '@notices:rookery.test',
      content: {
        msgtype: 'm.server_notice',
        server_notice_type: 'm.server_notice.usage_limit_reached',
        limit_type: 'monthly_active_user',
        admin_contact: contact,
        body: expect.any(String),
      },
    });
    const { account_data: data } = (await sync(ann)).rooms?.join?.[roomId] ?? { account_data: { events: [] } };
    expect(data.events).toContainEqual({ type: 'm.tag', content: { tags: { 'm.server_notice': {} } } });
    // A month later only Ann is there.
    clock.advance(29 * dayMs);
    await ann.request('GET', '/sync?timeout=0');
    await noticed(homeserver);
    clock.advance(2 * dayMs);
    await active().tidy();
    await ann.request('GET', '/sync?timeout=0');
    await noticed(homeserver);
    await eventually(async () =>
      JSON.stringify(await stateOf(ann, roomId, 'm.room.pinned_events')) === '{"pinned":[]}' ? true : undefined,
    );
    expect(await messagesIn(ann, roomId)).toHaveLength(1);
    expect((await bob.request('GET', '/sync?timeout=0')).status).toBe(200);
  });

  it('keeps places for reserved addresses', async () => {
    const boss = await homeserver.server
      .service(Database)
      .get<{ total: number }>('SELECT COUNT(*) AS total FROM monthly_active_users');
    expect(boss?.total).toBe(2);
    const threepids = homeserver.server.service(ThreepidService);
    await threepids.add('@carl:rookery.test', 'email', 'boss@rookery.test', 1, {});
    const carl = await logIn(homeserver, 'carl');
    expect((await carl.request('GET', '/sync?timeout=0')).status).toBe(200);
  });

  it('shows its numbers to who looks after the server', async () => {
    const page = await (await fetch(`${homeserver.baseUrl}/_synapse/metrics`)).text();
    const metrics = page
      .split('\n')
      .filter((line) => line.startsWith('synapse_admin_mau'))
      .join('\n');
    // Ann, Bob and Carl came with their registrations; Ann and Carl once more.
    expect(page).toMatch(
      /^synapse_user_registrations_total\{guest="false",shadow_banned="false",auth_provider="",.*\} 3$/m,
    );
    expect(page).toMatch(/^synapse_user_logins_total\{guest="false",auth_provider="",.*\} 5$/m);
    expect(metrics).toMatch(/^synapse_admin_mau_max\{.*\} 2$/m);
    expect(metrics).toMatch(/^synapse_admin_mau_current\{.*\} 3$/m);
    expect(metrics).toMatch(/^synapse_admin_mau_registered_reserved_users\{.*\} 1$/m);
    expect(metrics).toMatch(/^synapse_admin_mau_current_mau_by_service\{.*app_service="native".*\} 3$/m);
  });
});

describe.each(['sqlite', 'postgres'] as const)('a limit without alerts (%s)', (database) => {
  it('is told to nobody', async () => {
    const settings = { limit_usage_by_mau: true, max_mau_value: 1, server_notices: notices, mau_limit_alerting: false };
    const homeserver = await createTestHomeserver({ database, fetch: validatedFetch, settings });
    try {
      const ann = await homeserver.registerUser('ann');
      await ann.request('GET', '/sync?timeout=0');
      expect(await homeserver.server.service(MonthlyActiveUsers).isFull()).toBe(true);
      await noticed(homeserver);
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(await homeserver.server.service(ServerNotices).roomOf(ann.userId)).toBeUndefined();
    } finally {
      await homeserver.stop();
    }
  });
});

describe.each(['sqlite', 'postgres'] as const)('the policy and notices of it (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  const consent = (): ConsentService => homeserver.server.service(ConsentService);
  /** The invite comes before the notice itself. */
  const reminded = (user: TestUser): Promise<boolean> =>
    eventually(async () => (await consent().toRemind([user.userId])).length === 0);

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        allow_guest_access: true,
        public_baseurl: 'https://chat.example/',
        server_notices: notices,
        user_consent: {
          template_dir: consentDocuments,
          version: '1.0',
          block_events_error: 'Agree first: %(consent_uri)s',
          server_notice_content: {
            msgtype: 'm.text',
            body: 'Please agree: %(consent_uri)s',
            formatted: { parts: ['<a href="%(consent_uri)s">here</a>'] },
          },
        },
      },
    });
    ann = await homeserver.registerUser('ann');
  });
  afterAll(() => homeserver?.stop());

  it('holds back what a user would say until they agree, but not what gets them there', async () => {
    const bob = await homeserver.registerUser('bob');
    await noticed(homeserver);
    await bob.request('GET', '/sync?timeout=0');
    await noticed(homeserver);
    const roomId = await eventually(async () => (await invitesOf(bob))[0]);
    const uri = consent().uriFor(bob.userId);
    const refusal = {
      status: 403,
      errcode: 'M_CONSENT_NOT_GIVEN',
      consent_uri: uri,
      error: `Agree first: ${uri}`,
    };
    const refused: readonly (readonly [string, string, Json?])[] = [
      ['POST', '/createRoom', {}],
      ['POST', '/join/!other:rookery.test', {}],
      ['POST', '/knock/!other:rookery.test', {}],
      ['PUT', `/rooms/${roomId}/send/m.room.message/1`, { msgtype: 'm.text', body: 'x' }],
      ['PUT', `/rooms/${roomId}/redact/$event/1`, {}],
      ['PUT', `/rooms/${roomId}/state/m.room.topic/`, { topic: 'x' }],
      ['POST', `/rooms/${roomId}/invite`, { user_id: ann.userId }],
      ['POST', `/rooms/${roomId}/kick`, { user_id: ann.userId }],
      ['POST', `/rooms/${roomId}/ban`, { user_id: ann.userId }],
      ['POST', `/rooms/${roomId}/unban`, { user_id: ann.userId }],
      ['POST', `/rooms/${roomId}/upgrade`, { new_version: '11' }],
    ];
    for (const [method, path, body] of refused)
      expect([path, asJson(await bob.request(method, path, body))]).toMatchObject([path, refusal]);
    await reminded(bob);
    expect((await bob.request('POST', `/join/${roomId}`, {})).status).toBe(200);
    const [notice] = await messagesIn(bob, roomId);
    expect(notice?.content).toEqual({
      msgtype: 'm.text',
      body: `Please agree: ${uri}`,
      formatted: { parts: [`<a href="${uri}">here</a>`] },
    });
    const page = await openPage(homeserver, uri);
    expect((await submitForm(homeserver, page)).status).toBe(200);
    expect((await bob.request('POST', '/createRoom', {})).status).toBe(200);
    // In the room of notices nobody speaks but the server.
    const said = await bob.request('PUT', `/rooms/${roomId}/send/m.room.message/2`, { msgtype: 'm.text', body: 'x' });
    expect(asJson(said)).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
  });

  it('tells each user once, and guests only where that is set', async () => {
    const guest = await homeserver.request<Record<string, string>>('POST', '/register?kind=guest', {});
    const token = guest.body['access_token'];
    await homeserver.request('GET', '/sync?timeout=0', undefined, token);
    for (let times = 0; times < 2; times++) {
      await ann.request('GET', '/sync?timeout=0');
      await noticed(homeserver);
    }
    const roomId = await eventually(async () => (await invitesOf(ann))[0]);
    await reminded(ann);
    await homeserver.restart();
    await ann.request('GET', '/sync?timeout=0');
    await noticed(homeserver);
    await ann.request('POST', `/join/${roomId}`, {});
    await homeserver.server.service(ServerNotices).send(ann.userId, { msgtype: 'm.text', body: 'Something else' });
    expect((await messagesIn(ann, roomId)).map(({ content }) => content['body'])).toEqual([
      'Something else',
      expect.stringMatching(/^Please agree/),
    ]);
    const { body } = await homeserver.request<SyncBody>('GET', '/sync?timeout=0', undefined, token);
    expect(body.rooms?.invite ?? {}).toEqual({});
  });
});

describe.each(['sqlite', 'postgres'] as const)('rooms of notices (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  let roomId: string;
  const settings: Record<string, unknown> = {
    server_notices: notices,
    encryption_enabled_by_default_for_room_type: 'all',
  };
  const service = (): ServerNotices => homeserver.server.service(ServerNotices);

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings,
    });
    ann = await homeserver.registerUser('ann');
  });
  afterAll(() => homeserver?.stop());

  it('are one for each user, however many notices come at once', async () => {
    const send = (body: string): Promise<string> => service().send(ann.userId, { msgtype: 'm.text', body });
    const sent = await Promise.all([send('one'), send('two'), send('three')]);
    expect(new Set(sent).size).toBe(3);
    const [invited, ...more] = await invitesOf(ann);
    expect(more).toEqual([]);
    roomId = invited!;
    expect(await service().roomOf(ann.userId)).toBe(roomId);
  });

  it('can be left, but the invite to them not refused; the next notice asks back in', async () => {
    const stay = { status: 403, errcode: 'M_CANNOT_LEAVE_SERVER_NOTICE_ROOM' };
    const leave = async (): Promise<Json> => asJson(await ann.request('POST', `/rooms/${roomId}/leave`, {}));
    const write = async (): Promise<Json> =>
      asJson(await ann.request('PUT', `/rooms/${roomId}/state/m.room.member/${ann.userId}`, { membership: 'leave' }));
    expect([await leave(), await write()]).toMatchObject([stay, stay]);
    for (const how of [leave, write]) {
      expect((await ann.request('POST', `/join/${roomId}`, {})).status).toBe(200);
      expect(await how()).toMatchObject({ status: 200 });
      expect(await invitesOf(ann)).toEqual([]);
      await service().send(ann.userId, { msgtype: 'm.text', body: 'you should know' });
      expect(await invitesOf(ann)).toEqual([roomId]);
    }
    expect((await ann.request('POST', `/join/${roomId}`, {})).status).toBe(200);
  });

  it('look as the settings say, and are not encrypted', async () => {
    expect(await stateOf(ann, roomId, 'm.room.name')).toEqual({ name: notices.room_name });
    expect(await stateOf(ann, roomId, 'm.room.topic')).toMatchObject({ topic: notices.room_topic });
    expect(await stateOf(ann, roomId, 'm.room.avatar')).toEqual({ url: notices.room_avatar_url });
    expect(await stateOf(ann, roomId, 'm.room.member/@notices:rookery.test')).toEqual({
      membership: 'join',
      displayname: 'The server',
    });
    expect((await ann.request('GET', `/rooms/${roomId}/state/m.room.encryption`)).status).toBe(404);
    const tags = await ann.request('GET', `/user/${ann.userId}/rooms/${roomId}/tags`);
    expect(tags.body).toEqual({ tags: { 'm.server_notice': {} } });
    const levels = await stateOf(ann, roomId, 'm.room.power_levels');
    expect(levels['users_default']).toBe(-10);
  });

  it('take a notice once for each transaction, state events too, and notices to nobody else', async () => {
    const content = { msgtype: 'm.text', body: 'again' };
    const first = await service().send(ann.userId, content, { transactionId: 'a' });
    expect(await service().send(ann.userId, content, { transactionId: 'a' })).toBe(first);
    expect(await service().send(ann.userId, content, { transactionId: 'b' })).not.toBe(first);
    await service().send(ann.userId, { a: 1 }, { type: 'org.example.state', stateKey: '' });
    expect(await stateOf(ann, roomId, 'org.example.state')).toEqual({ a: 1 });
    await expect(service().send('@ghost:rookery.test', content)).rejects.toMatchObject({ status: 404 });
    await expect(service().send('@ann:elsewhere.test', content)).rejects.toMatchObject({ status: 400 });
  });

  it('change their looks with the settings', async () => {
    settings['server_notices'] = { ...notices, system_mxid_display_name: 'Operators', room_name: 'From the operators' };
    await homeserver.restart();
    await service().send(ann.userId, { msgtype: 'm.text', body: 'We have a new name' });
    expect(await service().roomOf(ann.userId)).toBe(roomId);
    expect(await stateOf(ann, roomId, 'm.room.name')).toEqual({ name: 'From the operators' });
    expect(await stateOf(ann, roomId, 'm.room.topic')).toMatchObject({ topic: notices.room_topic });
    expect((await stateOf(ann, roomId, 'm.room.member/@notices:rookery.test'))['displayname']).toBe('Operators');
    const { room_topic: _, room_avatar_url: __, ...plain } = notices;
    settings['server_notices'] = plain;
    await homeserver.restart();
    await service().send(ann.userId, { msgtype: 'm.text', body: 'No topic and no picture anymore' });
    expect(await stateOf(ann, roomId, 'm.room.topic')).toEqual({ topic: '' });
    expect(await stateOf(ann, roomId, 'm.room.avatar')).toEqual({});
    expect(await stateOf(ann, roomId, 'm.room.name')).toEqual({ name: notices.room_name });
  });

  it('are joined with the next notice by who was only invited, once the settings say so', async () => {
    const dora = await homeserver.registerUser('dora');
    await service().send(dora.userId, { msgtype: 'm.text', body: 'one' });
    const room = await service().roomOf(dora.userId);
    expect(await invitesOf(dora)).toEqual([room]);
    const before = settings['server_notices'];
    settings['server_notices'] = { ...notices, auto_join: true };
    await homeserver.restart();
    await service().send(dora.userId, { msgtype: 'm.text', body: 'two' });
    expect(Object.keys((await sync(dora)).rooms?.join ?? {})).toEqual([room]);
    settings['server_notices'] = before;
    await homeserver.restart();
  });

  it('belong to a name that nobody can take', async () => {
    const taken = { status: 400, errcode: 'M_USER_IN_USE' };
    expect(asJson(await homeserver.request('GET', '/register/available?username=Notices'))).toMatchObject(taken);
    const auth = { type: 'm.login.dummy' };
    const body = { username: 'notices', password: 'long enough', auth };
    expect(asJson(await homeserver.request('POST', '/register', body))).toMatchObject(taken);
  });

  it('are left when the account is closed', async () => {
    const bob = await homeserver.registerUser('bob');
    await service().send(bob.userId, { msgtype: 'm.text', body: 'hello' });
    const room = await service().roomOf(bob.userId);
    const auth = {
      type: 'm.login.password',
      identifier: { type: 'm.id.user', user: 'bob' },
      password: 'password of bob',
    };
    const { body } = await bob.request('POST', '/account/deactivate', {});
    const closed = await bob.request('POST', '/account/deactivate', { auth: { ...auth, session: body['session'] } });
    expect(closed.status).toBe(200);
    expect(room).toBeDefined();
    // The room stays theirs, but they are in it no longer.
    await eventually(async () => {
      const row = await homeserver.server
        .service(Database)
        .get<{ membership: string }>(
          'SELECT membership FROM local_current_membership WHERE user_id = ? AND room_id = ?',
          [bob.userId, room ?? ''],
        );
      return row?.membership === 'leave';
    });
    await expect(service().send(bob.userId, {})).rejects.toMatchObject({ status: 404 });
  });

  it('come with a warning where their sender has an account', async () => {
    const logger = new RecordingLogger();
    const plain: Record<string, unknown> = {};
    const squatted = await createTestHomeserver({ database: kind, settings: plain, logger });
    const warnings = (): unknown[] => logger.lines.filter(({ message }) => message.includes('system_mxid_localpart'));
    try {
      await squatted.registerUser('notices');
      plain['server_notices'] = { system_mxid_localpart: 'free' };
      await squatted.restart();
      expect(warnings()).toEqual([]);
      plain['server_notices'] = notices;
      await squatted.restart();
      expect(warnings()).toHaveLength(1);
    } finally {
      await squatted.stop();
    }
  });

  it('are none where notices are off', async () => {
    const plain = await createTestHomeserver({ database: kind });
    const carl = await plain.registerUser('carl');
    const off = plain.server.service(ServerNotices);
    expect(off.enabled).toBe(false);
    await expect(off.send(carl.userId, {})).rejects.toMatchObject({ status: 400, errcode: 'M_UNKNOWN' });
    await plain.stop();
  });
});
