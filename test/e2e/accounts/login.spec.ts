import { createHmac } from 'node:crypto';
import { createTestHomeserver, FakeClock, type TestHomeserver, type TestUser } from '@rookery/testing';
import { AccountService, ThreepidService } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import {
  asJson,
  challengeOf,
  type Json,
  logIn,
  type MailServer,
  startMailServer,
  withPassword,
  ForwardClock,
} from './support.js';

const jwt = (claims: object, head: object = { alg: 'HS256' }, secret = 'jwt secret'): string => {
  const text = [head, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
};

describe.each(['sqlite', 'postgres'] as const)('login (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  const clock = new ForwardClock();

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      clock,
      fetch: validatedFetch,
      settings: {
        public_baseurl: 'https://chat.example/',
        serve_server_wellknown: true,
        admin_contact: 'mailto:admin@chat.example',
        default_identity_server: 'https://id.example',
        extra_well_known_client_content: { 'org.example.map': { url: 'https://map.example' } },
        jwt_config: { enabled: true, secret: 'jwt secret', algorithm: 'HS256' },
        login_via_existing_session: { enabled: true, require_ui_auth: true, token_timeout: '1m' },
        modules: [{ module: new URL('./fixtures/gatekeeper.ts', import.meta.url).pathname }],
        refreshable_access_token_lifetime: '5m',
        refresh_token_lifetime: '1d',
        session_lifetime: '3d',
      },
    });
    ann = await homeserver.registerUser('ann');
    const threepids = homeserver.server.service(ThreepidService);
    await threepids.add(ann.userId, 'email', 'Ann@Example.org', clock.nowMs(), {});
    await threepids.add(ann.userId, 'msisdn', '447700900001', clock.nowMs(), {});
  });
  afterAll(() => homeserver?.stop());

  const login = async (body: Json): Promise<Json> => asJson(await homeserver.request('POST', '/login', body));
  const byPassword = (identifier: Json, password = 'password of ann', more: Json = {}): Promise<Json> =>
    login({ type: 'm.login.password', identifier, password, ...more });
  const whoAmI = async (token: unknown): Promise<Json> =>
    asJson(await homeserver.request('GET', '/account/whoami', undefined, String(token)));

  it('GET /login lists the flows that are switched on', async () => {
    const { body } = await homeserver.request<{ flows: Json[] }>('GET', '/login');
    expect(body.flows).toEqual([
      { type: 'org.matrix.login.jwt' },
      { type: 'm.login.token', get_login_token: true },
      { type: 'm.login.password' },
      { type: 'org.example.otp' },
      { type: 'm.login.application_service' },
    ]);
  });

  it.each<[string, Json]>([
    ['the localpart', { type: 'm.id.user', user: 'ann' }],
    ['the full id', { type: 'm.id.user', user: '@ann:rookery.test' }],
    ['another case', { type: 'm.id.user', user: 'ANN' }],
    ['an email address', { type: 'm.id.thirdparty', medium: 'email', address: 'ann@EXAMPLE.org' }],
    ['a phone number', { type: 'm.id.phone', country: 'GB', phone: '07700 900001' }],
    ['a phone number as an address', { type: 'm.id.thirdparty', medium: 'msisdn', address: '447700900001' }],
  ])('takes a password with %s', async (_, identifier) => {
    const answer = await byPassword(identifier);
    expect(answer).toMatchObject({
      status: 200,
      user_id: '@ann:rookery.test',
      well_known: { 'm.homeserver': { base_url: 'https://chat.example/' } },
    });
    expect(await whoAmI(answer['access_token'])).toMatchObject({ user_id: ann.userId, device_id: answer['device_id'] });
  });

  it.each([
    ['client', 3_600],
    ['server', 86_400],
    ['support', 3_600],
  ])('tells how long /.well-known/matrix/%s may be kept, to pages of any origin', async (name, seconds) => {
    const { status, headers } = await fetch(`${homeserver.baseUrl}/.well-known/matrix/${name}`);
    expect([status, headers.get('cache-control')]).toEqual([200, `public, max-age=${seconds}`]);
    expect(headers.get('access-control-allow-origin')).toBe('*');
    expect(headers.get('content-type')).toBe('application/json');
  });

  it('says with each login what a client finds in /.well-known/matrix/client', async () => {
    const { body } = await homeserver.request('GET', '/.well-known/matrix/client');
    expect(body).toEqual({
      'm.homeserver': { base_url: 'https://chat.example/' },
      'm.identity_server': { base_url: 'https://id.example' },
      'org.example.map': { url: 'https://map.example' },
    });
    expect((await byPassword({ type: 'm.id.user', user: 'ann' }))['well_known']).toEqual(body);
  });

  it('takes the older forms of a password login', async () => {
    const password = 'password of ann';
    for (const body of [
      { user: 'ann', password },
      { medium: 'email', address: 'ann@example.org', password },
    ])
      expect(await login({ type: 'm.login.password', ...body })).toMatchObject({ status: 200, user_id: ann.userId });
  });

  it('refuses everything else', async () => {
    expect(await login({ type: 'm.login.unknown' })).toMatchObject({ status: 400, errcode: 'M_UNKNOWN' });
    expect(await login({ type: 'm.login.password' })).toMatchObject({ status: 400, errcode: 'M_MISSING_PARAM' });
    expect(await login({})).toMatchObject({ status: 400 });
    expect(await login({ type: 'm.login.token', token: 'guess' })).toMatchObject({
      status: 403,
      errcode: 'M_FORBIDDEN',
    });
    expect(await login({ type: 'm.login.dummy', identifier: { type: 'm.id.user', user: 'ann' } })).toMatchObject({
      status: 400,
    });
    expect(
      await login({ type: 'm.login.application_service', identifier: { type: 'm.id.user', user: 'ann' } }),
    ).toMatchObject({ status: 401, errcode: 'M_MISSING_TOKEN' });
  });

  it('gives a device its id and first name; a second login there ends the first', async () => {
    const device = { device_id: 'PHONE', initial_device_display_name: 'first name' };
    const first = await byPassword({ type: 'm.id.user', user: 'ann' }, undefined, device);
    const second = await byPassword({ type: 'm.id.user', user: 'ann' }, undefined, {
      device_id: 'PHONE',
      initial_device_display_name: 'second name',
    });
    expect(await whoAmI(first['access_token'])).toMatchObject({ status: 401, errcode: 'M_UNKNOWN_TOKEN' });
    const devices = await homeserver.request('GET', '/devices/PHONE', undefined, String(second['access_token']));
    expect(devices.body).toMatchObject({ device_id: 'PHONE', display_name: 'first name' });
    expect(
      await byPassword({ type: 'm.id.user', user: 'ann' }, undefined, { device_id: 'x'.repeat(256) }),
    ).toMatchObject({
      status: 400,
    });
  });

  it('takes a token of a JSON web signature, and a login type of a module', async () => {
    expect(await login({ type: 'org.matrix.login.jwt', token: jwt({ sub: 'jay' }) })).toMatchObject({
      status: 200,
      user_id: '@jay:rookery.test',
    });
    for (const token of [
      jwt({ sub: 'jay' }, { alg: 'none' }),
      jwt({ sub: 'jay' }, { alg: 'HS256' }, 'guess'),
      `${jwt({ sub: 'jay' }).split('.').slice(0, 2).join('.')}.`,
      jwt({ sub: 'jay', exp: Math.floor(clock.nowMs() / 1000) - 1 }),
    ])
      expect(await login({ type: 'org.matrix.login.jwt', token })).toMatchObject({ status: 403 });
    const otp = (code: string): Promise<Json> =>
      login({ type: 'org.example.otp', identifier: { type: 'm.id.user', user: 'ann' }, otp: code });
    expect(await otp('1')).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
    expect(await otp('42')).toMatchObject({ status: 200, user_id: ann.userId });
  });

  it('confirms by the login type of a module, for oneself only', async () => {
    const { session, flows } = await challengeOf(ann.request('POST', '/account/deactivate', {}));
    expect(flows).toEqual(expect.arrayContaining([{ stages: ['org.example.otp'] }, { stages: ['m.login.password'] }]));
    await homeserver.registerUser('olga');
    const path = '/_matrix/client/v1/login/get_token';
    const first = await challengeOf(ann.request('POST', path, {}));
    const attempt = async (auth: Json): Promise<Json> =>
      asJson(await ann.request('POST', path, { auth: { type: 'org.example.otp', session: first.session, ...auth } }));
    expect(await attempt({ otp: '1' })).toMatchObject({ status: 401, errcode: 'M_FORBIDDEN' });
    expect(await attempt({ otp: '42', identifier: { type: 'm.id.user', user: 'olga' } })).toMatchObject({
      status: 403,
    });
    expect(await attempt({})).toMatchObject({ status: 401 });
    // Nor does a session of another operation help.
    expect(await attempt({ otp: '42', session })).toMatchObject({ status: 403 });
    expect(await attempt({ otp: '42' })).toMatchObject({ status: 200, login_token: expect.any(String) });
  });

  it('logs a second device in with a token from the first, once and in time', async () => {
    const create = async (): Promise<unknown> => {
      const answer = await withPassword(ann, 'POST', '/_matrix/client/v1/login/get_token', {}, 'password of ann');
      expect(answer).toMatchObject({ status: 200, body: { expires_in_ms: 60_000 } });
      return answer.body['login_token'];
    };
    clock.advance(120_000);
    const token = await create();
    expect(await login({ type: 'm.login.token', token })).toMatchObject({ status: 200, user_id: ann.userId });
    expect(await login({ type: 'm.login.token', token })).toMatchObject({ status: 403 });
    clock.advance(120_000);
    const late = await create();
    clock.advance(60_001);
    expect(await login({ type: 'm.login.token', token: late })).toMatchObject({ status: 403 });
  });

  it('logs nobody in with a token of a session that was ended with all others', async () => {
    const eve = await homeserver.registerUser('eve');
    clock.advance(120_000);
    const create = async (): Promise<unknown> => {
      const answer = await withPassword(eve, 'POST', '/_matrix/client/v1/login/get_token', {}, 'password of eve');
      return answer.body['login_token'];
    };
    const token = await create();
    const change = { new_password: 'password of eve', logout_devices: true };
    expect(await withPassword(eve, 'POST', '/account/password', change, 'password of eve')).toMatchObject({
      status: 200,
    });
    expect(await login({ type: 'm.login.token', token })).toMatchObject({ status: 403 });
    clock.advance(120_000);
    const another = await create();
    expect((await eve.request('POST', '/logout/all', {})).status).toBe(200);
    expect(await login({ type: 'm.login.token', token: another })).toMatchObject({ status: 403 });
  });

  it.each<[string, (session: TestUser) => Promise<unknown>]>([
    ['logged out', (session) => session.request('POST', '/logout', {})],
    ['taken over', (session) => logIn(homeserver, 'uma', undefined, { device_id: session.deviceId })],
  ])('logs nobody in with a token of a session that was %s, and goes on with those of others', async (_, end) => {
    if ((await homeserver.server.service(AccountService).find('@uma:rookery.test')) === undefined)
      await homeserver.registerUser('uma');
    const create = async (session: TestUser): Promise<unknown> => {
      const answer = await withPassword(session, 'POST', '/_matrix/client/v1/login/get_token', {}, 'password of uma');
      return answer.body['login_token'];
    };
    const [ended, other] = [await logIn(homeserver, 'uma'), await logIn(homeserver, 'uma')];
    clock.advance(120_000);
    const token = await create(ended);
    await end(ended);
    expect(await login({ type: 'm.login.token', token })).toMatchObject({ status: 403 });
    clock.advance(120_000);
    const [another, third] = [await create(other), await logIn(homeserver, 'uma')];
    await end(third);
    expect(await login({ type: 'm.login.token', token: another })).toMatchObject({ status: 200 });
  });

  describe('with refresh tokens', () => {
    const refresh = async (token: unknown): Promise<Json> =>
      asJson(await homeserver.request('POST', '/refresh', { refresh_token: token }));
    const open = (): Promise<Json> =>
      byPassword({ type: 'm.id.user', user: 'ann' }, undefined, { refresh_token: true });

    it('logs out softly when an access token expires, and goes on with the next one', async () => {
      const first = await open();
      expect(first).toMatchObject({ expires_in_ms: 300_000, refresh_token: expect.any(String) });
      clock.advance(300_001);
      expect(await whoAmI(first['access_token'])).toMatchObject({
        status: 401,
        errcode: 'M_UNKNOWN_TOKEN',
        soft_logout: true,
      });
      const second = await refresh(first['refresh_token']);
      expect(second).toMatchObject({ status: 200, expires_in_ms: 300_000 });
      expect(await whoAmI(second['access_token'])).toMatchObject({ device_id: first['device_id'] });
    });

    it('takes a lost answer again, but ends the session when an old token comes back', async () => {
      const first = await open();
      const lost = await refresh(first['refresh_token']);
      const second = await refresh(first['refresh_token']);
      expect([lost['status'], second['status']]).toEqual([200, 200]);
      expect(await whoAmI(second['access_token'])).toMatchObject({ status: 200 });
      const pusher = {
        ...{ app_id: 'org.example.app', pushkey: 'copied', kind: 'http', lang: 'en' },
        ...{ app_display_name: 'App', device_display_name: 'Phone' },
        data: { url: 'https://push.example/_matrix/push/v1/notify' },
      };
      const token = String(second['access_token']);
      expect((await homeserver.request('POST', '/pushers/set', pusher, token)).status).toBe(200);
      const pushers = async (): Promise<unknown> => (await ann.request('GET', '/pushers')).body['pushers'];
      expect(await pushers()).toMatchObject([{ pushkey: 'copied' }]);
      // The thief comes with what was exchanged before.
      expect(await refresh(first['refresh_token'])).toMatchObject({ status: 401, errcode: 'M_UNKNOWN_TOKEN' });
      expect(await whoAmI(second['access_token'])).toMatchObject({ status: 401 });
      expect(await refresh(second['refresh_token'])).toMatchObject({ status: 401 });
      expect(await pushers()).toEqual([]);
    });

    it('ends with the lifetimes of the refresh token and of the session', async () => {
      const first = await open();
      clock.advance(86_400_001);
      expect(await refresh(first['refresh_token'])).toMatchObject({ status: 401, soft_logout: true });
      let current = await open();
      for (const _ of [1, 2, 3]) {
        clock.advance(86_000_000);
        current = { device_id: current['device_id'], ...(await refresh(current['refresh_token'])) };
        expect(current).toMatchObject({ status: 200 });
      }
      clock.advance(86_000_000);
      expect(await refresh(current['refresh_token'])).toMatchObject({ status: 401 });
    });

    it('knows no token that is not one', async () => {
      for (const token of ['', 'guess', `syr_${'x'.repeat(40)}`, ann.accessToken, 'x'.repeat(60_000)])
        expect(await refresh(token)).toMatchObject({ status: 401, errcode: 'M_UNKNOWN_TOKEN' });
      // Nobody is known yet, so little is read.
      expect(await refresh('x'.repeat(100_000))).toMatchObject({ status: 413, errcode: 'M_TOO_LARGE' });
      expect(asJson(await homeserver.request('POST', '/refresh', {}))).toMatchObject({
        status: 400,
        errcode: 'M_MISSING_PARAM',
      });
    });
  });

  it('logs out of one device, then of all', async () => {
    await homeserver.registerUser('leo');
    const [a, b, c] = [await logIn(homeserver, 'leo'), await logIn(homeserver, 'leo'), await logIn(homeserver, 'leo')];
    expect((await a.request('POST', '/logout', {})).status).toBe(200);
    expect(asJson(await a.request('GET', '/account/whoami'))).toMatchObject({
      status: 401,
      errcode: 'M_UNKNOWN_TOKEN',
      soft_logout: false,
    });
    const { body } = await b.request<{ devices: Json[] }>('GET', '/devices');
    expect(body.devices.map((device) => device['device_id'])).not.toContain(a.deviceId);
    expect((await b.request('POST', '/logout/all', {})).status).toBe(200);
    for (const user of [b, c]) expect((await user.request('GET', '/account/whoami')).status).toBe(401);
  });

  describe('of accounts that are not as others', () => {
    /** By domain, what an account may try. */
    const requests: readonly (readonly [method: string, path: string, body?: Json])[] = [
      ['GET', '/account/whoami'],
      ['GET', '/account/3pid'],
      ['GET', '/capabilities'],
      ['GET', '/devices'],
      ['GET', '/joined_rooms'],
      ['GET', '/notifications'],
      ['GET', '/pushers'],
      ['GET', '/pushrules/'],
      ['GET', '/sync?timeout=0'],
      ['GET', '/user/@me:rookery.test/account_data/x'],
      ['POST', '/createRoom', {}],
      ['POST', '/join/%23a:rookery.test', {}],
      ['POST', '/keys/query', { device_keys: {} }],
      ['POST', '/user/@me:rookery.test/filter', {}],
      ['PUT', '/profile/@me:rookery.test/displayname', { displayname: 'x' }],
      ['PUT', '/rooms/!a:rookery.test/send/m.room.message/1', {}],
      ['PUT', '/sendToDevice/m.x/1', { messages: {} }],
    ];
    const flags = (userId: string, change: Json): Promise<void> =>
      homeserver.server.service(AccountService).setFlags(userId, change);

    it('shuts a locked one out of everything but the door', async () => {
      const user = await homeserver.registerUser('locked');
      await user.request('GET', '/account/whoami');
      await flags(user.userId, { locked: true });
      for (const [method, path, body] of requests) {
        expect([path, asJson(await user.request(method, path, body))]).toMatchObject([
          path,
          { status: 401, errcode: 'M_USER_LOCKED', soft_logout: true },
        ]);
      }
      const wrong = await byPassword({ type: 'm.id.user', user: 'locked' }, 'guess');
      expect(wrong).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
      expect(await byPassword({ type: 'm.id.user', user: 'locked' }, 'password of locked')).toMatchObject({
        status: 401,
        errcode: 'M_USER_LOCKED',
        soft_logout: true,
      });
      expect(
        await login({ type: 'org.example.otp', identifier: { type: 'm.id.user', user: 'locked' }, otp: '42' }),
      ).toMatchObject({ errcode: 'M_USER_LOCKED' });
      await flags(user.userId, { locked: false });
      expect(asJson(await user.request('GET', '/account/whoami'))).toMatchObject({ status: 200 });
      await flags(user.userId, { locked: true });
      expect((await user.request('POST', '/logout', {})).status).toBe(200);
    });

    it('lets a suspended one read and leave, but not speak, join or change its face', async () => {
      const user = await homeserver.registerUser('suspended');
      const other = await homeserver.registerUser('other');
      const create = async (by: TestUser, body: Json): Promise<string> =>
        String((await by.request('POST', '/createRoom', body)).body['room_id']);
      const own = await create(user, { invite: [other.userId] });
      const invited = await create(other, { invite: [user.userId] });
      const rejected = await create(other, { invite: [user.userId] });
      const send = (body: string) =>
        user.request('PUT', `/rooms/${own}/send/m.room.message/${body}`, { msgtype: 'm.text', body });
      const message = String((await send('before')).body['event_id']);
      await flags(user.userId, { suspended: true });
      const refused = { status: 403, errcode: 'M_USER_SUSPENDED' };
      expect(asJson(await send('after'))).toMatchObject(refused);
      for (const [method, path, body] of [
        ['POST', '/createRoom', {}],
        ['POST', `/join/${invited}`, {}],
        ['POST', `/rooms/${invited}/join`, {}],
        ['POST', `/knock/${invited}`, {}],
        ['POST', `/rooms/${own}/invite`, { user_id: '@ann:rookery.test' }],
        ['POST', `/rooms/${own}/kick`, { user_id: other.userId }],
        ['PUT', `/rooms/${own}/state/m.room.name`, { name: 'x' }],
        ['PUT', `/profile/${user.userId}/displayname`, { displayname: 'x' }],
        ['PUT', `/profile/${user.userId}/avatar_url`, { avatar_url: 'mxc://a/b' }],
      ] as const)
        expect([path, asJson(await user.request(method, path, body))]).toMatchObject([path, refused]);
      for (const [method, path, body] of [
        ['GET', '/sync?timeout=0'],
        ['GET', `/rooms/${own}/messages?dir=b`],
        ['PUT', `/rooms/${own}/redact/${message}/1`, {}],
        ['POST', `/rooms/${rejected}/leave`, {}],
        ['POST', `/rooms/${own}/leave`, {}],
        ['GET', '/devices'],
        ['POST', '/keys/query', { device_keys: {} }],
      ] as const)
        expect([path, await user.request(method, path, body)]).toMatchObject([path, { status: 200 }]);
      // It may open more sessions, which are suspended, too.
      const second = await logIn(homeserver, 'suspended');
      expect(asJson(await second.request('POST', '/createRoom', {}))).toMatchObject(refused);
      expect((await second.request('POST', '/logout', {})).status).toBe(200);
    });

    it('knows a deactivated one no more, by whatever way it comes', async () => {
      const user = await homeserver.registerUser('gone');
      const threepids = homeserver.server.service(ThreepidService);
      await threepids.add(user.userId, 'email', 'gone@example.org', clock.nowMs(), {});
      clock.advance(120_000);
      const { body } = await withPassword(user, 'POST', '/_matrix/client/v1/login/get_token', {}, 'password of gone');
      const refreshable = await logIn(homeserver, 'gone', undefined, { refresh_token: true });
      await withPassword(user, 'POST', '/account/deactivate', { erase: true }, 'password of gone');
      for (const one of [user, refreshable])
        for (const [method, path, content] of requests)
          expect([path, asJson(await one.request(method, path, content))]).toMatchObject([
            path,
            { status: 401, errcode: 'M_UNKNOWN_TOKEN' },
          ]);
      const wrong = await byPassword({ type: 'm.id.user', user: 'gone' }, 'guess');
      expect(await byPassword({ type: 'm.id.user', user: 'gone' }, 'password of gone')).toMatchObject(wrong);
      expect(
        await byPassword({ type: 'm.id.thirdparty', medium: 'email', address: 'gone@example.org' }, 'password of gone'),
      ).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
      expect(await login({ type: 'm.login.token', token: body['login_token'] })).toMatchObject({ status: 403 });
      // Vouched for all the same: now it may be told.
      for (const vouched of [
        { type: 'org.matrix.login.jwt', token: jwt({ sub: 'gone' }) },
        { type: 'org.example.otp', identifier: { type: 'm.id.user', user: 'gone' }, otp: '42' },
      ])
        expect(await login(vouched)).toMatchObject({ status: 403, errcode: 'M_USER_DEACTIVATED' });
      expect(
        asJson(
          await homeserver.request('POST', '/register', {
            username: 'Gone',
            password: 'x',
            auth: { type: 'm.login.dummy' },
          }),
        ),
      ).toMatchObject({ status: 400, errcode: 'M_USER_IN_USE' });
      expect((await homeserver.request('GET', '/profile/@gone:rookery.test')).body).not.toHaveProperty('displayname');
    });
  });
});

describe.each(['sqlite', 'postgres'] as const)('limits by address and account (%s)', (kind) => {
  const wide = { per_second: 1000, burst_count: 1000 };
  const narrow = { per_second: 0.0001, burst_count: 3 };
  const tooMany = { status: 429, errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: expect.any(Number) };

  /** What each of several right logins says, in turn. */
  const logins = async (limits: Json, names: readonly string[]): Promise<unknown[]> => {
    const homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      clock: new ForwardClock(),
      settings: { rc_login: limits },
    });
    try {
      for (const name of new Set(names)) await homeserver.registerUser(name);
      const answers: Json[] = [];
      for (const user of names) {
        const identifier = { type: 'm.id.user', user };
        const body = { type: 'm.login.password', identifier, password: `password of ${user}` };
        answers.push(asJson(await homeserver.request('POST', '/login', body)));
      }
      return answers.map((answer) => (answer['status'] === 200 ? 200 : answer));
    } finally {
      await homeserver.stop();
    }
  };

  it('lets one address log in so often, whoever it says to be', async () => {
    const limits = { address: narrow, account: wide, failed_attempts: wide };
    expect(await logins(limits, ['ann', 'ben', 'ann', 'ben', 'ann'])).toEqual([
      200,
      200,
      200,
      expect.objectContaining(tooMany),
      expect.objectContaining(tooMany),
    ]);
  });

  it('lets one account be logged in to so often', async () => {
    const limits = { address: wide, account: narrow, failed_attempts: wide };
    expect(await logins(limits, ['ann', 'ann', 'ann', 'ann', 'ben'])).toEqual([
      200,
      200,
      200,
      expect.objectContaining(tooMany),
      200,
    ]);
  });
});

describe.each(['sqlite', 'postgres'] as const)('an address with nothing left of a limit (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;
  beforeAll(async () => {
    mail = await startMailServer();
    const narrow = { per_second: 0.0001, burst_count: 2 };
    homeserver = await createTestHomeserver({
      database: kind,
      clock: new ForwardClock(),
      settings: {
        ...{ rc_login: { address: narrow }, rc_registration: narrow, rc_3pid_validation: narrow },
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
  });

  it.each<[string, (n: number) => Json]>([
    ['/login', () => ({ type: 'm.login.password', identifier: { type: 'm.id.user', user: 'nobody' }, password: 'x' })],
    ['/register', (n) => ({ username: `new${n}`, password: 'wonderland', auth: { type: 'm.login.dummy' } })],
    ['/register/email/requestToken', (n) => ({ client_secret: 's', email: `new${n}@example.org`, send_attempt: 1 })],
  ])('has nothing read that it sends to %s', async (path, bodyOf) => {
    const sendNonsense = async (): Promise<unknown[]> => {
      const url = `${homeserver.baseUrl}/_matrix/client/v3${path}`;
      const answer = await fetch(url, { method: 'POST', body: 'no JSON' });
      return [answer.status, ((await answer.json()) as Json)['errcode']];
    };
    expect(await sendNonsense()).toEqual([400, 'M_NOT_JSON']);
    const statuses: number[] = [];
    for (let n = 0; n < 10 && !statuses.includes(429); n++)
      statuses.push((await homeserver.request('POST', path, bodyOf(n))).status);
    expect(statuses).toContain(429);
    expect(await sendNonsense()).toEqual([429, 'M_LIMIT_EXCEEDED']);
  });
});

describe.each(['sqlite', 'postgres'] as const)('limits of logins (%s)', (kind) => {
  let homeserver: TestHomeserver;
  const wide = { per_second: 1000, burst_count: 1000 };
  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      clock: new ForwardClock(),
      settings: { rc_login: { address: wide, account: wide, failed_attempts: { per_second: 0.0001, burst_count: 3 } } },
    });
    await homeserver.registerUser('ann');
    await homeserver.registerUser('ben');
  });
  afterAll(() => homeserver?.stop());

  it('counts wrong passwords of an account, however it is named and wherever they are tried', async () => {
    const attempt = async (user: string, password: string): Promise<Json> =>
      asJson(
        await homeserver.request('POST', '/login', {
          type: 'm.login.password',
          identifier: { type: 'm.id.user', user },
          password,
        }),
      );
    const ann = await logIn(homeserver, 'ann');
    const { session } = await challengeOf(ann.request('POST', '/account/deactivate', {}));
    expect(await attempt('ann', 'x')).toMatchObject({ status: 403 });
    expect(await attempt('@ANN:rookery.test', 'x')).toMatchObject({ status: 403 });
    expect(
      asJson(
        await ann.request('POST', '/account/deactivate', {
          auth: { type: 'm.login.password', session, password: 'x' },
        }),
      ),
    ).toMatchObject({ status: 401, errcode: 'M_FORBIDDEN' });
    const limited = { status: 429, errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: expect.any(Number) };
    // The right password does not help now, so that it cannot be told from wrong ones.
    expect(await attempt('Ann', 'password of ann')).toMatchObject(limited);
    expect(
      asJson(
        await ann.request('POST', '/account/deactivate', {
          auth: { type: 'm.login.password', session, password: 'password of ann' },
        }),
      ),
    ).toMatchObject(limited);
    expect(await attempt('ben', 'password of ben')).toMatchObject({ status: 200 });
    // Names that are not there are limited alike.
    for (const _ of [1, 2, 3]) expect(await attempt('nobody', 'x')).toMatchObject({ status: 403 });
    expect(await attempt('nobody', 'x')).toMatchObject(limited);
  });
});

describe.each(['sqlite', 'postgres'] as const)('a shadow-banned account (%s)', (database) => {
  let homeserver: TestHomeserver;
  const clock = new FakeClock(Date.now());
  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, clock, fetch: validatedFetch });
  });
  afterAll(() => homeserver?.stop());

  it('tells a shadow-banned one nothing', async () => {
    const user = await homeserver.registerUser('shadow');
    const other = await homeserver.registerUser('unaware');
    const guest = await homeserver.registerUser('guest');
    const { body } = await user.request('POST', '/createRoom', { preset: 'public_chat' });
    const roomId = String(body['room_id']);
    expect((await other.request('POST', `/join/${roomId}`, {})).status).toBe(200);
    await homeserver.server.service(AccountService).setFlags(user.userId, { shadowBanned: true });
    /** Refusals are hidden behind a delay, as if something had been done. */
    const later = async <T>(answer: Promise<T>): Promise<T> => {
      let waiting = true;
      const done = answer.finally(() => (waiting = false));
      while (waiting) {
        // Not so fast that a transaction on a slow machine outlives its limit.
        await clock.advance(100);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      return done;
    };
    const sent = await later(
      user.request('PUT', `/rooms/${roomId}/send/m.room.message/1`, { msgtype: 'm.text', body: 'spam' }),
    );
    expect(asJson(sent)).toMatchObject({ status: 200, event_id: expect.stringMatching(/^\$/) });
    const messages = await other.request('GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    expect(JSON.stringify(messages.body)).not.toContain('spam');
    const invite = await later(user.request('POST', `/rooms/${roomId}/invite`, { user_id: guest.userId }));
    expect(invite.status).toBe(200);
    const members = await other.request('GET', `/rooms/${roomId}/members`);
    expect(JSON.stringify(members.body)).not.toContain(guest.userId);
  });
});
