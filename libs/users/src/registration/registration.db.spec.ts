import { createHmac } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseMigrations } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import type { MailRequest } from '@rookery/templates';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { UserHooks } from '../hooks.js';
import { UserPorts } from '../ports.js';
import { SessionService } from '../sessions/session.service.js';
import { LoginService } from '../login/login.service.js';
import { LoginTokens } from '../login/login-tokens.js';
import { UiaService } from '../uia/uia.service.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { AccountService } from '../accounts/account.service.js';
import { secretHash } from '../common/secrets.js';
import { noteAddress } from '../uia/uia.query.js';
import { AdminRegistrationService, type SharedSecretRegistration } from './admin-registration.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { insertRegistrationToken } from '../store/registration-token.query.js';
import { RegistrationFlows } from './registration-flows.js';
import { AppserviceRegistration } from './appservice-registration.js';
import { GuestRegistration } from './guest-registration.js';
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
    // Another path, another method, another user: the session is not theirs.
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
    // Whichever is late is told again what became of the session.
    for (const { body } of results.filter((one) => one.status === 200))
      expect(body['user_id']).toBe('@beside:example.org');
    expect(results.map((one) => one.status)).toContain(200);
    const uses = [await tokenUse('first'), await tokenUse('second')];
    expect(uses).toEqual(
      expect.arrayContaining([
        { pending: 0, completed: 1 },
        { pending: 0, completed: 0 },
      ]),
    );
  });

  it('lets nobody begin sessions without end, and counts only what was begun', async () => {
    const fixture = await build({}, true);
    const attempt = (ip: string, body: JsonObject = { username: 'begun', password: 'pw' }) =>
      register(body, fixture, { ip });
    const rows = async () => (await test.database.query('SELECT session_hash FROM ui_auth_sessions')).length;
    const before = await rows();
    for (let i = 0; i < 50; i++) expect((await attempt('192.0.2.1', {})).status).toBe(401);
    expect(await rows()).toBe(before);
    for (let i = 0; i < 5; i++) expect((await attempt('192.0.2.1')).status).toBe(401);
    expect(await attempt('192.0.2.1')).toMatchObject({ status: 429, body: { errcode: 'M_LIMIT_EXCEEDED' } });
    expect((await attempt('192.0.2.1', {})).status).toBe(401);
    expect((await attempt('192.0.2.2')).status).toBe(401);
    // All of a network's addresses are one client.
    for (let i = 0; i < 5; i++) await attempt(`2001:db8::${i.toString(16)}`);
    expect((await attempt('2001:db8:0:0:ffff::1')).status).toBe(429);
    expect((await attempt('2001:db8:0:1::1')).status).toBe(401);
    await clock.advance(2_000);
    expect((await attempt('192.0.2.1')).status).toBe(401);
    // Stages cannot be piled up on sessions that nothing was asked with either.
    const asked = await attempt('192.0.2.3', {});
    for (let i = 0; i < 5; i++) await attempt('192.0.2.3');
    expect(
      await attempt('192.0.2.3', { username: 'piled', password: 'pw', auth: { session: asked.body.session } }),
    ).toMatchObject({ status: 429 });
  });

  it('lets nobody guess registration tokens without end, nor captchas', async () => {
    const fixture = await build({ registration_requires_token: true }, true);
    await test.database.write((tx) => insertRegistrationToken(tx, 'guessed', 1, undefined));
    const who = { username: 'guesser', password: 'pw' };
    const guess = (token: string, ip: string) =>
      register({ ...who, auth: { type: 'm.login.registration_token', token } }, fixture, { ip });
    for (let i = 0; i < 5; i++) expect((await guess(`guess${i}`, '192.0.2.11')).status).toBe(401);
    const refused = { status: 429, body: { errcode: 'M_LIMIT_EXCEEDED' } };
    expect(await guess('guessed', '192.0.2.11')).toMatchObject(refused);
    // Who asks whether a token is valid guesses as well.
    const ask = fixture.request('GET', '/', undefined, { ip: '192.0.2.11' });
    expect(await outcome(fixture.get(RegistrationFlows).tokenIsValid('guessed', ask))).toMatchObject(refused);
    expect((await guess('guessed', '192.0.2.12')).body).toMatchObject({ completed: ['m.login.registration_token'] });
    const captcha = { enable_registration_captcha: true, recaptcha_public_key: 'pub', recaptcha_private_key: 'priv' };
    const withCaptcha = await build(captcha, true);
    const { session } = (await register(who, withCaptcha, { ip: '192.0.2.13' })).body;
    const solve = () =>
      register({ auth: { type: 'm.login.recaptcha', response: 'x', session } }, withCaptcha, { ip: '192.0.2.13' });
    for (let i = 0; i < 4; i++) expect((await solve()).status).toBe(502);
    expect(await solve()).toMatchObject(refused);
  });

  it('keeps a few of the addresses that a session is used from', async () => {
    const hash = secretHash((await register({ username: 'traveler', password: 'pw' })).body['session'] as string);
    for (let n = 0; n < 25; n++)
      for (const agent of ['phone', 'phone'])
        await test.database.write((tx) => noteAddress(tx, hash, `198.51.100.${n}`, agent));
    const kept = await test.database.query('SELECT ip FROM ui_auth_sessions_ips WHERE session_hash = ?', [hash]);
    expect(kept).toHaveLength(20);
  });

  it('remembers the parameters from one stage to the next', async () => {
    const fixture = await build({ registration_requires_token: true });
    await test.database.write((tx) => insertRegistrationToken(tx, 'mindful', 1, undefined));
    const asked = await register(
      { username: 'mindful', password: 'remember me', device_id: 'FIRST', initial_device_display_name: 'Phone' },
      fixture,
    );
    const { session } = asked.body;
    const step = await register({ auth: { type: 'm.login.registration_token', token: 'mindful', session } }, fixture);
    expect(step).toMatchObject({ status: 401, body: { completed: ['m.login.registration_token'] } });
    const done = await register({ auth: { type: 'm.login.dummy', session } }, fixture);
    expect(done).toMatchObject({ status: 200, body: { user_id: '@mindful:example.org', device_id: 'FIRST' } });
    const account = await users.get(AccountService).find('@mindful:example.org');
    expect(await users.get(AccountService).matchingHash(account, 'remember me')).toBeDefined();
    expect(await tokenUse('mindful')).toEqual({ pending: 0, completed: 1 });
  });

  it('takes the last parameters of a session that nobody is logged in for', async () => {
    const asked = await register({ username: 'before', password: 'pw' });
    const auth = { type: 'm.login.dummy', session: asked.body.session };
    expect(await register({ username: 'after', password: 'pw2', auth })).toMatchObject({
      status: 200,
      body: { user_id: '@after:example.org' },
    });
    const account = await users.get(AccountService).find('@after:example.org');
    expect(await users.get(AccountService).matchingHash(account, 'pw2')).toBeDefined();
  });

  it('answers a client that asks again because the answer was lost', async () => {
    const fixture = await build({ registration_requires_token: true });
    await test.database.write((tx) => insertRegistrationToken(tx, 'lost', 1, undefined));
    const parameters = { username: 'again', password: 'pw' };
    const { session } = (await register(parameters, fixture)).body;
    await register({ ...parameters, auth: { type: 'm.login.registration_token', token: 'lost', session } }, fixture);
    const last = { ...parameters, auth: { type: 'm.login.dummy', session } };
    const first = await register(last, fixture);
    expect(first).toMatchObject({ status: 200, body: { user_id: '@again:example.org' } });
    const second = await register(last, fixture);
    const third = await register({ auth: last.auth }, fixture);
    expect([second, third]).toMatchObject(
      [second, third].map(() => ({
        status: 200,
        body: { user_id: '@again:example.org', device_id: first.body['device_id'] },
      })),
    );
    const owner = (answer: Answer) => users.get(SessionService).findOwner(answer['access_token'] as string);
    expect(await owner(third.body)).toMatchObject({ userId: '@again:example.org' });
    expect(
      await test.database.query("SELECT device_id FROM devices WHERE user_id = '@again:example.org'"),
    ).toHaveLength(1);
    expect(await tokenUse('lost')).toEqual({ pending: 0, completed: 1 });
    // Who asks for something else, or much later, does not get somebody's session.
    expect((await register({ ...last, password: 'other' }, fixture)).status).toBe(400);
    expect((await register({ ...last, username: 'elsewhere' }, fixture)).status).toBe(401);
    await clock.advance(3_600_000);
    expect((await register(last, fixture)).status).toBe(400);
  });

  it.each<[string, (userId: string, deviceId: string) => Promise<unknown>]>([
    ['logged out', (userId, deviceId) => users.get(SessionService).closeDevices(userId, [deviceId])],
    ['logged out everywhere', (userId) => users.get(SessionService).closeAll(userId)],
    ['got another password', (userId) => users.get(AccountService).setPassword(userId, 'another', false)],
  ])('answers nobody again once the account was %s', async (how, change) => {
    const name = how.replaceAll(' ', '-');
    const { session } = (await register({ username: name, password: 'pw' })).body;
    const first = await register({ auth: { type: 'm.login.dummy', session } });
    const again = { auth: { type: 'm.login.dummy', session } };
    expect(await register(again)).toMatchObject({ status: 200, body: { user_id: first.body['user_id'] } });
    const userId = first.body['user_id'] as string;
    await change(userId, first.body['device_id'] as string);
    expect(await register(again)).toMatchObject({ status: 400, body: { errcode: 'M_USER_IN_USE' } });
    // Nor one who asked before and comes late.
    const proof = { registrationHash: secretHash(session) };
    expect(await outcome(users.get(SessionService).open({ userId, proof }))).toMatchObject({ status: 403 });
  });

  it('makes one account when a registration is sent twice at once', async () => {
    const { session } = (await register({ username: 'double', password: 'pw' })).body;
    const results = await Promise.all(
      [1, 2, 3].map(() => register({ username: 'double', password: 'pw', auth: { type: 'm.login.dummy', session } })),
    );
    for (const result of results)
      expect(result).toMatchObject({ status: 200, body: { user_id: '@double:example.org' } });
    expect(
      await test.database.query("SELECT device_id FROM devices WHERE user_id = '@double:example.org'"),
    ).toHaveLength(1);
  });

  it('leaves nothing behind of a stage that ends after its session', async () => {
    const fixture = await build({ registration_requires_token: true });
    await test.database.write(async (tx) => {
      for (let i = 0; i < 40; i++) await insertRegistrationToken(tx, `late${i}`, 1, undefined);
    });
    for (let round = 0; round < 20; round++) {
      const body = { username: `straggler${round}`, password: 'pw' };
      const { session } = (await register(body, fixture)).body;
      await register({ ...body, auth: { type: 'm.login.dummy', session } }, fixture);
      await Promise.all(
        [0, 1].map((i) =>
          register(
            { ...body, auth: { type: 'm.login.registration_token', token: `late${round * 2 + i}`, session } },
            fixture,
          ),
        ),
      );
    }
    expect(
      await test.database.get(
        "SELECT SUM(pending) AS pending, SUM(completed) AS completed FROM registration_tokens WHERE token LIKE 'late%'",
      ),
    ).toEqual({ pending: 0, completed: 20 });
  });

  it('makes a guest an ordinary user who keeps what the guest has', async () => {
    const fixture = await build({ allow_guest_access: true });
    const guest = (await outcome(fixture.get(GuestRegistration).register(fixture.request('POST', path), {}))).body;
    const guestId = guest['user_id'] as string;
    const localpart = guestId.slice(1, guestId.indexOf(':'));
    const upgrade = (body: JsonObject) =>
      register({ password: 'grown up', auth: { type: 'm.login.dummy' }, ...body }, fixture);
    const token = guest['access_token'];
    expect(await upgrade({ username: 'somebody', guest_access_token: token })).toMatchObject({ status: 403 });
    expect(await upgrade({ username: localpart, guest_access_token: 'made up' })).toMatchObject({ status: 403 });
    await users.get(AccountService).setFlags(guestId, { locked: true });
    fixture.get(SessionService).invalidate(guestId);
    expect(await upgrade({ username: localpart, guest_access_token: token })).toMatchObject({ status: 403 });
    await users.get(AccountService).setFlags(guestId, { locked: false });
    fixture.get(SessionService).invalidate(guestId);
    const upgraded = await upgrade({ username: localpart, guest_access_token: token });
    expect(upgraded).toMatchObject({ status: 200, body: { user_id: guestId } });
    expect(await users.get(AccountService).find(guestId)).toMatchObject({ isGuest: false });
    expect(await fixture.get(SessionService).findOwner(token as string)).toMatchObject({ isGuest: false });
    expect(await test.database.get('SELECT displayname FROM profiles WHERE user_id = ?', [guestId])).toEqual({
      displayname: localpart,
    });
    // The token is an ordinary user's now.
    expect(await upgrade({ username: localpart, guest_access_token: token })).toMatchObject({ status: 403 });
  });

  it('makes no guest an ordinary user whose token has expired', async () => {
    const fixture = await build({ allow_guest_access: true, nonrefreshable_access_token_lifetime: '1h' });
    const guest = (await outcome(fixture.get(GuestRegistration).register(fixture.request('POST', path), {}))).body;
    await clock.advance(3_600_000);
    const body = { password: 'grown up', auth: { type: 'm.login.dummy' }, guest_access_token: guest['access_token'] };
    expect(await register(body as JsonObject, fixture)).toMatchObject({ status: 403 });
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
          .get(GuestRegistration)
          .register(fixture.request('POST', `${path}?kind=guest`), { username: 'boss', device_id: 'MINE' }),
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
    fixture.get(UserPorts).appservices.replace({
      byToken: (token) => (token === 'as-token' ? bridge : undefined),
      byId: (id) => (id === 'bridge' ? bridge : undefined),
      exclusiveOwner: (id) => (id.includes('irc_') ? bridge : undefined),
    });
    const as = (body: JsonObject, token?: string) =>
      outcome(
        fixture
          .get(AppserviceRegistration)
          .register(fixture.request('POST', path, body, token === undefined ? {} : { token }), body),
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
    const send = (body: SharedSecretRegistration, fixture = users) =>
      outcome(
        fixture.get(AdminRegistrationService).register(body, fixture.request('POST', '/_synapse/admin/v1/register')),
      );
    const ready = (
      username: string,
      password = 'pw',
      admin = false,
      secret = 'shared',
      fixture = users,
    ): SharedSecretRegistration => {
      const nonce = fixture.get(AdminRegistrationService).nonce();
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

    it('takes passwords that users may not give themselves', async () => {
      const policy = { enabled: true, minimum_length: 15, require_digit: true };
      const fixture = await build({ password_config: { policy } });
      const auth = { type: 'm.login.dummy' };
      expect(await register({ username: 'strict', password: 'pw', auth }, fixture)).toMatchObject({
        status: 400,
        body: { errcode: 'M_PASSWORD_TOO_SHORT' },
      });
      const sent = (password: string) => send(ready('lenient', password, false, 'shared', fixture), fixture);
      expect(await sent('')).toMatchObject({ status: 400, body: { errcode: 'M_WEAK_PASSWORD' } });
      expect(await sent('pw')).toMatchObject({ status: 200, body: { user_id: '@lenient:example.org' } });
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
    const token = await users.get(LoginTokens).create(userId, 60_000);
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
      (await login({ type: 'm.login.token', token: await users.get(LoginTokens).create(userId, 60_000) })).body[
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

  it('forgets who is erased after a crash as well, whatever becomes of another', async () => {
    const ids = ['stuck', 'lost'].map((name) => `@${name}:example.org`);
    for (const name of ['stuck', 'lost'])
      await register({ username: name, password: 'pw', auth: { type: 'm.login.dummy' } });
    // As the transaction leaves them that closes accounts.
    await test.database.write(async (tx) => {
      for (const userId of ids) {
        await tx.run('UPDATE users SET deactivated = TRUE WHERE name = ?', [userId]);
        await tx.run('INSERT INTO erased_users (user_id) VALUES (?)', [userId]);
        await tx.run('INSERT INTO users_pending_deactivation (user_id) VALUES (?)', [userId]);
      }
    });
    users.get(UserHooks).profileChanged.subscribe({
      prepare: ({ userId }) => (userId === ids[0] ? Promise.reject(new Error('not now')) : Promise.resolve()),
    });
    await users.get(DeactivationService).resume();
    const names = await test.database.query<{ displayname: string | null }>(
      "SELECT displayname FROM profiles WHERE user_id IN ('@stuck:example.org', '@lost:example.org') ORDER BY user_id DESC",
    );
    expect(names.map(({ displayname }) => displayname)).toEqual(['stuck', null]);
    expect(await test.database.query('SELECT user_id FROM users_pending_deactivation')).toEqual([{ user_id: ids[0] }]);
  });
});
