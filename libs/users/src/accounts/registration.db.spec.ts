import { createHmac } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseMigrations } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import type { MailRequest } from '@rookery/templates';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { SessionService } from '../sessions/session.service.js';
import { LoginService } from '../sessions/login.service.js';
import { UiaService } from '../uia/uia.service.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { AccountService } from './account.service.js';
import { AdminRegistrationService, type SharedSecretRegistration } from './admin-registration.service.js';
import { DeactivationService } from './deactivation.service.js';
import { insertRegistrationToken } from './registration-token.query.js';
import { RegistrationFlows } from './registration-flows.js';
import { RegistrationService } from './registration.service.js';

type Answer = JsonObject & { readonly session: string; readonly completed?: string[] };

const path = '/_matrix/client/v3/register';

/** What a client gets: an answer, or an error with its status. */
const outcome = async (promise: Promise<unknown>): Promise<{ status: number; body: Answer }> => {
  try {
    return { status: 200, body: (await promise) as Answer };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return { status: error.status, body: error.toBody() as Answer };
  }
};

eachDatabase('registration', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  const built: UsersFixture[] = [];
  let users: UsersFixture;

  const build = async (
    settings: Record<string, unknown> = {},
    limited = false,
    mails?: MailRequest[],
  ): Promise<UsersFixture> => {
    const fixture = await buildUsers({
      database: test.database,
      clock,
      settings: { registration_shared_secret: 'shared', ...settings },
      limited,
      mails,
    });
    built.push(fixture);
    return fixture;
  };
  const register = (body: JsonObject, fixture = users, more = {}) =>
    outcome(fixture.get(RegistrationService).register(fixture.request('POST', path, body, more), body));
  const tokenUse = (token: string) =>
    test.database.get('SELECT pending, completed FROM registration_tokens WHERE token = ?', [token]);

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await build();
  });
  afterAll(async () => {
    for (const fixture of built) await fixture.close();
  });

  it('leads from the flows through the dummy stage to an account with a session', async () => {
    const asked = await register({});
    expect(asked).toEqual({
      status: 401,
      body: { session: expect.any(String), flows: [{ stages: ['m.login.dummy'] }], params: {} },
    });
    const body = {
      username: 'Alice',
      password: 'wonderland',
      auth: { type: 'm.login.dummy', session: asked.body.session },
    };
    const { status, body: answer } = await register(body);
    expect(status).toBe(200);
    expect(answer).toMatchObject({
      user_id: '@alice:example.org',
      home_server: 'example.org',
      device_id: expect.stringMatching(/^[A-Z]{10}$/),
    });
    expect(answer['access_token']).toEqual(expect.any(String));
  });

  it('registers in one request when the stage is tried at once', async () => {
    const { status, body } = await register({
      username: 'quick',
      password: 'pw',
      inhibit_login: true,
      auth: { type: 'm.login.dummy' },
    });
    expect({ status, body }).toEqual({
      status: 200,
      body: { user_id: '@quick:example.org', home_server: 'example.org' },
    });
  });

  it.each([
    ['Bad Name', 'M_INVALID_USERNAME'],
    ['ünïcode', 'M_INVALID_USERNAME'],
    ['аlice', 'M_INVALID_USERNAME'], // begins with a Cyrillic letter
    ['\u212aelvin', 'M_INVALID_USERNAME'], // the Kelvin sign, whose lower case is an ASCII k
    ['12345', 'M_INVALID_USERNAME'],
    ['_hidden', 'M_INVALID_USERNAME'],
    ['', 'M_INVALID_USERNAME'],
    ['a'.repeat(250), 'M_INVALID_USERNAME'],
    ['nul\0', 'M_INVALID_USERNAME'],
    ['ALICE', 'M_USER_IN_USE'],
  ])('refuses the name %j before any stage', async (username, errcode) => {
    expect(await register({ username, password: 'pw' })).toMatchObject({ status: 400, body: { errcode } });
  });

  it('sees a name that is taken in another case by an imported account', async () => {
    await test.database.write((tx) =>
      tx.run("INSERT INTO users (name, creation_ts) VALUES ('@Imported:example.org', 0)"),
    );
    expect(await register({ username: 'imported', password: 'pw' })).toMatchObject({
      status: 400,
      body: { errcode: 'M_USER_IN_USE' },
    });
  });

  it('makes one account when two register the same name at once', async () => {
    const results = await Promise.all(
      Array.from({ length: 5 }, () => register({ username: 'race', password: 'pw', auth: { type: 'm.login.dummy' } })),
    );
    expect(results.map((one) => one.status).sort()).toEqual([200, 400, 400, 400, 400]);
  });

  it('lets nobody finish a session twice, nor another operation with it', async () => {
    const asked = await register({ username: 'once', password: 'pw' });
    const auth = { type: 'm.login.dummy', session: asked.body.session };
    // Another name, another password, another path: the session is not theirs.
    expect(await register({ username: 'other', password: 'pw', auth })).toMatchObject({ status: 403 });
    expect(await register({ username: 'once', password: 'px', auth })).toMatchObject({ status: 403 });
    const uia = users.get(UiaService);
    const elsewhere = { username: 'once', password: 'pw', auth };
    const stolen = uia.authenticate({
      request: users.request('POST', '/_matrix/client/v3/account/password', elsewhere),
      body: elsewhere,
      flows: [['m.login.dummy']],
      description: '',
      userId: undefined,
    });
    expect((await outcome(stolen)).status).toBe(403);
    const byOtherMethod = uia.authenticate({
      request: users.request('PUT', path, elsewhere),
      body: elsewhere,
      flows: [['m.login.dummy']],
      description: '',
    });
    expect((await outcome(byOtherMethod)).status).toBe(403);
    const borrowed = uia.authenticate({
      request: users.request('POST', path, elsewhere),
      body: elsewhere,
      flows: [['m.login.dummy']],
      description: '',
      userId: '@alice:example.org',
    });
    expect((await outcome(borrowed)).status).toBe(403);
    expect((await register(elsewhere)).status).toBe(200);
    const again = await uia
      .authenticate({
        request: users.request('POST', path, elsewhere),
        body: elsewhere,
        flows: [['m.login.dummy']],
        description: '',
      })
      .catch((error: MatrixError) => error);
    expect(again).toMatchObject({ status: 401, errcode: 'M_UNKNOWN' });
    expect((again as MatrixError).extra['session']).not.toBe(asked.body.session);
  });

  it('finishes a session once when two requests do so at the same time', async () => {
    const asked = await register({ username: 'twice', password: 'pw' });
    const auth = { session: asked.body.session, type: 'm.login.dummy' };
    const body = { username: 'twice', password: 'pw', auth };
    const uia = users.get(UiaService);
    const finish = () =>
      outcome(
        uia.authenticate({
          request: users.request('POST', path, body),
          body,
          flows: [['m.login.dummy']],
          description: '',
        }),
      );
    expect((await Promise.all([finish(), finish(), finish(), finish()])).map((one) => one.status).sort()).toEqual([
      200, 401, 401, 401,
    ]);
  });

  it('takes no session id that a client made up, and none after two days', async () => {
    const invented = await register({
      username: 'fixed',
      password: 'pw',
      auth: { type: 'm.login.dummy', session: 'chosen-by-an-attacker' },
    });
    expect(invented).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN' } });
    expect(invented.body.session).not.toBe('chosen-by-an-attacker');
    const asked = await register({ username: 'late', password: 'pw' });
    await clock.advance(48 * 3_600_000);
    expect(
      await register({
        username: 'late',
        password: 'pw',
        auth: { type: 'm.login.dummy', session: asked.body.session },
      }),
    ).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN' } });
  });

  it('refuses stages that are not offered, and sessions of the wrong type', async () => {
    const asked = await register({ username: 'skip', password: 'pw' });
    const attempt = (auth: unknown) => register({ username: 'skip', password: 'pw', auth } as JsonObject);
    for (const type of ['m.login.password', 'm.login.sso', 'm.login.email.identity', 'constructor', '__proto__']) {
      expect(await attempt({ type, session: asked.body.session })).toMatchObject({
        status: 400,
        body: { errcode: 'M_UNRECOGNIZED' },
      });
    }
    expect(await attempt({ type: 7, session: asked.body.session })).toMatchObject({ status: 400 });
    expect(await attempt({ session: { $ne: 1 } })).toMatchObject({ status: 400 });
    expect(await attempt('m.login.dummy')).toMatchObject({ status: 400 });
  });

  it('stores neither passwords nor session ids', async () => {
    const asked = await register({ username: 'secretive', password: 'correct horse battery' });
    await register({ username: 'secretive', password: 'correct horse battery', auth: { session: asked.body.session } });
    const dump = JSON.stringify(await test.database.query('SELECT * FROM ui_auth_sessions'));
    expect(dump).not.toContain('correct horse');
    expect(dump).not.toContain(asked.body.session);
  });

  it('takes what a stage has recorded, not what a request beside it brought', async () => {
    const fixture = await build({ registration_requires_token: true });
    await test.database.write(async (tx) => {
      await insertRegistrationToken(tx, 'first', 1, undefined);
      await insertRegistrationToken(tx, 'second', 1, undefined);
    });
    const asked = await register({ username: 'beside', password: 'pw' }, fixture);
    const { session } = asked.body;
    const step = (auth: object) =>
      register({ username: 'beside', password: 'pw', auth: { ...auth, session } }, fixture);
    await step({ type: 'm.login.dummy' });
    const results = await Promise.all(
      ['first', 'second'].map((token) => step({ type: 'm.login.registration_token', token })),
    );
    expect(results.filter((one) => one.status === 200)).toHaveLength(1);
    const uses = [await tokenUse('first'), await tokenUse('second')];
    expect(uses).toEqual(
      expect.arrayContaining([
        { pending: 0, completed: 1 },
        { pending: 0, completed: 0 },
      ]),
    );
  });

  it('lets nobody begin sessions without end', async () => {
    const fixture = await build();
    const attempt = (ip: string) => register({}, fixture, { ip });
    for (let i = 0; i < 300; i++) expect((await attempt('192.0.2.1')).status).toBe(401);
    expect(await attempt('192.0.2.1')).toMatchObject({ status: 429, body: { errcode: 'M_LIMIT_EXCEEDED' } });
    expect((await attempt('192.0.2.2')).status).toBe(401);
    // All of a network's addresses are one client.
    for (let i = 0; i < 300; i++) await attempt(`2001:db8::${i.toString(16)}`);
    expect((await attempt('2001:db8:0:0:ffff::1')).status).toBe(429);
    expect((await attempt('2001:db8:0:1::1')).status).toBe(401);
    await clock.advance(600_000);
    expect((await attempt('192.0.2.1')).status).toBe(401);
  });

  it('survives a restart between the stages', async () => {
    const first = await build({ registration_requires_token: true });
    await test.database.write((tx) => insertRegistrationToken(tx, 'restart', 1, undefined));
    const asked = await register({ username: 'phoenix', password: 'pw' }, first);
    const step = await register(
      {
        username: 'phoenix',
        password: 'pw',
        auth: { type: 'm.login.registration_token', token: 'restart', session: asked.body.session },
      },
      first,
    );
    expect(step).toMatchObject({ status: 401, body: { completed: ['m.login.registration_token'] } });
    expect(step.body).not.toHaveProperty('errcode');
    const second = await build({ registration_requires_token: true });
    expect(
      await register(
        { username: 'phoenix', password: 'pw', auth: { type: 'm.login.dummy', session: asked.body.session } },
        second,
      ),
    ).toMatchObject({ status: 200 });
    expect(await tokenUse('restart')).toEqual({ pending: 0, completed: 1 });
  });

  it('needs every stage of a flow, in no matter which order', async () => {
    const fixture = await build({ registration_requires_token: true });
    const asked = await register({ username: 'whole', password: 'pw' }, fixture);
    expect(asked.body['flows']).toEqual([{ stages: ['m.login.registration_token', 'm.login.dummy'] }]);
    const { session } = asked.body;
    const dummy = { username: 'whole', password: 'pw', auth: { type: 'm.login.dummy', session } };
    for (let i = 0; i < 3; i++)
      expect(await register(dummy, fixture)).toMatchObject({ status: 401, body: { completed: ['m.login.dummy'] } });
    const wrong = await register(
      { ...dummy, auth: { type: 'm.login.registration_token', token: 'guess', session } },
      fixture,
    );
    expect(wrong).toMatchObject({
      status: 401,
      body: { errcode: 'M_UNAUTHORIZED', completed: ['m.login.dummy'], session },
    });
  });

  it('counts a registration token’s uses under parallel sessions', async () => {
    const fixture = await build({ registration_requires_token: true });
    await test.database.write((tx) => insertRegistrationToken(tx, 'two', 2, undefined));
    const sessions = await Promise.all(
      ['ta', 'tb', 'tc', 'td'].map(async (username) => ({
        username,
        password: 'pw',
        session: (await register({ username, password: 'pw' }, fixture)).body.session,
      })),
    );
    const steps = await Promise.all(
      sessions.map(({ session, ...body }) =>
        register({ ...body, auth: { type: 'm.login.registration_token', token: 'two', session } }, fixture),
      ),
    );
    const passed = steps.map((step) => step.body.completed?.includes('m.login.registration_token') ?? false);
    expect(passed.filter(Boolean)).toHaveLength(2);
    expect(await tokenUse('two')).toEqual({ pending: 2, completed: 0 });
    const last = await Promise.all(
      sessions.map(({ session, ...body }) => register({ ...body, auth: { type: 'm.login.dummy', session } }, fixture)),
    );
    expect(last.map((one) => one.status)).toEqual(passed.map((ok) => (ok ? 200 : 401)));
    expect(await tokenUse('two')).toEqual({ pending: 0, completed: 2 });
  });

  it('gives a token’s use back when the registration fails after the stages', async () => {
    const fixture = await build({ registration_requires_token: true });
    await test.database.write((tx) => insertRegistrationToken(tx, 'back', 1, undefined));
    const asked = await register({ username: 'contested', password: 'pw' }, fixture);
    await register(
      {
        username: 'contested',
        password: 'pw',
        auth: { type: 'm.login.registration_token', token: 'back', session: asked.body.session },
      },
      fixture,
    );
    const registration = register(
      { username: 'contested', password: 'pw', auth: { type: 'm.login.dummy', session: asked.body.session } },
      await build({ registration_requires_token: true, inhibit_user_in_use_error: true }),
    );
    await users
      .get(AccountService)
      .register({ localpart: 'contested', origin: {} })
      .catch(() => undefined);
    const { status } = await registration;
    expect(await tokenUse('back')).toEqual(
      status === 200 ? { pending: 0, completed: 1 } : { pending: 0, completed: 0 },
    );
  });

  it('respects expired and used-up tokens', async () => {
    const fixture = await build();
    const service = fixture.get(RegistrationFlows);
    await test.database.write(async (tx) => {
      await insertRegistrationToken(tx, 'expires', undefined, clock.nowMs() + 1000);
      await insertRegistrationToken(tx, 'none', 0, undefined);
    });
    const valid = (token: string) => service.tokenIsValid(token, fixture.request('GET', '/'));
    expect(await valid('expires')).toBe(true);
    await clock.advance(1000);
    expect([
      await valid('expires'),
      await valid('none'),
      await valid('unknown'),
      await valid('x\0'),
      await valid('x'.repeat(100)),
    ]).toEqual([false, false, false, false, false]);
  });

  it('puts the captcha before the next stage of every flow', async () => {
    const fixture = await build(
      {
        enable_registration_captcha: true,
        recaptcha_public_key: 'pub',
        recaptcha_private_key: 'priv',
        'user_consent.version': '1',
        'user_consent.template_dir': await mkdtemp(join(tmpdir(), 'consent-')),
        'user_consent.require_at_registration': true,
        form_secret: 'x',
      },
      false,
      [],
    );
    expect(fixture.get(RegistrationFlows).list()).toEqual([
      ['m.login.recaptcha', 'm.login.dummy', 'm.login.terms'],
      ['m.login.recaptcha', 'm.login.email.identity', 'm.login.terms'],
    ]);
  });

  it('asks for a password before the stages are done', async () => {
    const asked = await register({ username: 'nopass' });
    expect(asked.status).toBe(401);
    expect(
      await register({ username: 'nopass', auth: { type: 'm.login.dummy', session: asked.body.session } }),
    ).toMatchObject({ status: 400, body: { errcode: 'M_MISSING_PARAM' } });
  });

  it('gives an account without a name a number that was not counted', async () => {
    const { body } = await register({ password: 'pw', auth: { type: 'm.login.dummy' } });
    expect(body['user_id']).toMatch(/^@\d{14}:example\.org$/);
  });

  it('makes guests only where that is allowed, and ignores what they ask for', async () => {
    const asGuest = (fixture: UsersFixture) =>
      outcome(
        fixture
          .get(RegistrationService)
          .registerGuest(fixture.request('POST', `${path}?kind=guest`), { username: 'boss', device_id: 'MINE' }),
      );
    expect(await asGuest(users)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    const { status, body } = await asGuest(await build({ allow_guest_access: true }));
    expect({ status, userId: body['user_id'] }).toEqual({
      status: 200,
      userId: expect.stringMatching(/^@\d+:/) as unknown,
    });
    expect(body['device_id']).not.toBe('MINE');
  });

  it('registers for application services within their namespaces only', async () => {
    const fixture = await build({ enable_registration: false });
    const bridge = {
      id: 'bridge',
      senderUserId: '@bridge:example.org',
      rateLimited: false,
      covers: (id: string) => /^@_?irc_/.test(id),
    };
    fixture.get(AppserviceDirectory).use({
      byToken: (token) => (token === 'as-token' ? bridge : undefined),
      byId: (id) => (id === 'bridge' ? bridge : undefined),
      exclusiveOwner: (id) => (id.includes('irc_') ? bridge : undefined),
    });
    const as = (body: JsonObject, token?: string) =>
      outcome(
        fixture
          .get(RegistrationService)
          .registerByAppservice(fixture.request('POST', path, body, token === undefined ? {} : { token }), body),
      );
    expect(await as({ username: '_irc_bob', inhibit_login: true }, 'as-token')).toMatchObject({
      status: 200,
      body: { user_id: '@_irc_bob:example.org' },
    });
    expect(await as({ username: 'somebody' }, 'as-token')).toMatchObject({
      status: 400,
      body: { errcode: 'M_EXCLUSIVE' },
    });
    expect(await as({ username: 'irc_x' }, 'wrong')).toMatchObject({
      status: 401,
      body: { errcode: 'M_UNKNOWN_TOKEN' },
    });
    expect(await as({ username: 'irc_x' })).toMatchObject({ status: 401, body: { errcode: 'M_MISSING_TOKEN' } });
    expect(await as({}, 'as-token')).toMatchObject({ status: 400, body: { errcode: 'M_MISSING_PARAM' } });
    await expect(fixture.get(AccountService).checkAvailable('irc_carol')).rejects.toMatchObject({
      errcode: 'M_EXCLUSIVE',
    });
  });

  describe('with the shared secret', () => {
    const mac = (nonce: string, username: string, password: string, admin: boolean, secret = 'shared') =>
      createHmac('sha1', secret)
        .update([nonce, username, password, admin ? 'admin' : 'notadmin'].join('\0'))
        .digest('hex');
    const send = (body: SharedSecretRegistration) =>
      outcome(users.get(AdminRegistrationService).register(body, users.request('POST', '/_synapse/admin/v1/register')));
    const ready = (username: string, password = 'pw', admin = false, secret = 'shared'): SharedSecretRegistration => {
      const nonce = users.get(AdminRegistrationService).nonce();
      return { nonce, username, password, admin, mac: mac(nonce, username, password, admin, secret) };
    };

    it('makes an administrator, lowering the name after the MAC', async () => {
      const { status, body } = await send(ready('Root', 'pw', true));
      expect({ status, id: body['user_id'] }).toEqual({ status: 200, id: '@root:example.org' });
      expect(await users.get(AccountService).find('@root:example.org')).toMatchObject({ isAdmin: true });
    });

    it('takes no nonce twice, none after a minute, and none of its own making', async () => {
      const request = ready('replayed');
      expect((await send(request)).status).toBe(200);
      expect(await send({ ...request, username: 'replayed2' })).toMatchObject({ status: 400 });
      const late = ready('late-nonce');
      await clock.advance(60_001);
      expect(await send(late)).toMatchObject({ status: 400 });
      expect(await send({ ...ready('x'), nonce: 'f'.repeat(128) })).toMatchObject({ status: 400 });
    });

    it('burns the nonce of a failed attempt', async () => {
      const request = ready('burnt');
      expect(await send({ ...request, mac: '0'.repeat(40) })).toMatchObject({
        status: 403,
        body: { errcode: 'M_FORBIDDEN' },
      });
      expect(await send(request)).toMatchObject({ status: 400 });
    });

    it('covers every field that matters with the MAC', async () => {
      expect(await send(ready('m1', 'pw', false, 'guess'))).toMatchObject({ status: 403 });
      expect(await send({ ...ready('m2'), admin: true })).toMatchObject({ status: 403 });
      expect(await send({ ...ready('m3'), username: 'm4' })).toMatchObject({ status: 403 });
      expect(await send({ ...ready('m5'), user_type: 'bot' })).toMatchObject({ status: 403 });
      expect(await send({ ...ready('m6'), mac: '' })).toMatchObject({ status: 403 });
      expect(await send(ready('m7\0pw', 'x'))).toMatchObject({ status: 400 });
    });
  });

  it('closes an account with all that opens it', async () => {
    const { body } = await register({ username: 'leaver', password: 'pw', auth: { type: 'm.login.dummy' } });
    const userId = body['user_id'] as string;
    const logins = users.get(LoginService);
    const token = await users.get(LoginService).createToken(userId, 60_000);
    await users.get(DeactivationService).deactivate(userId, true, false, {});
    expect(await users.get(SessionService).findOwner(body['access_token'] as string)).toBeUndefined();
    const login = (loginBody: JsonObject & { type: string }) =>
      outcome(logins.login(users.request('POST', '/login', loginBody), loginBody, {}));
    const identifier = { type: 'm.id.user', user: 'leaver' };
    // The password is gone: the answer is the one that unknown users get.
    expect(await login({ type: 'm.login.password', identifier, password: 'pw' })).toEqual(
      await login({ type: 'm.login.password', identifier: { ...identifier, user: 'nobody' }, password: 'pw' }),
    );
    expect((await login({ type: 'm.login.token', token })).status).toBe(403);
    expect(
      (await login({ type: 'm.login.token', token: await users.get(LoginService).createToken(userId, 60_000) })).body[
        'errcode'
      ],
    ).toBe('M_USER_DEACTIVATED');
    expect(await register({ username: 'leaver', password: 'pw' })).toMatchObject({
      status: 400,
      body: { errcode: 'M_USER_IN_USE' },
    });
    expect(await test.database.get('SELECT displayname FROM profiles WHERE user_id = ?', [userId])).toEqual({
      displayname: null,
    });
  });
});
