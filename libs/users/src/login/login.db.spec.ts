import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { hash as bcryptHash } from '@node-rs/bcrypt';
import { databaseMigrations } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { ThreepidService } from '../threepids/threepid.service.js';
import { UiaService } from '../uia/uia.service.js';
import { UserPorts } from '../ports.js';
import { UserAuthGate } from '../uia/user-auth-gate.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { LoginService } from './login.service.js';
import { LoginTokens } from './login-tokens.js';
import { SessionService } from '../sessions/session.service.js';

const outcome = async (promise: Promise<unknown>): Promise<{ status: number; body: JsonObject }> => {
  try {
    return { status: 200, body: (await promise) as JsonObject };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return { status: error.status, body: error.toBody() };
  }
};

eachDatabase('login', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let users: UsersFixture;
  const built: UsersFixture[] = [];
  const build = async (settings: Record<string, unknown> = {}, limited = false): Promise<UsersFixture> => {
    const fixture = await buildUsers({ database: test.database, clock, settings, limited });
    built.push(fixture);
    return fixture;
  };
  const login = (body: JsonObject & { type: string }, fixture = users) =>
    outcome(fixture.get(LoginService).login(fixture.request('POST', '/_matrix/client/v3/login', body), body, {}));
  const withPassword = (identifier: JsonObject, password = 'wonderland', fixture = users) =>
    login({ type: 'm.login.password', identifier, password }, fixture);
  const user = (name: string): JsonObject => ({ type: 'm.id.user', user: name });

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await build();
    const passwordHash = await users.get(PasswordService).hash('wonderland');
    const threepids = [
      { medium: 'email', address: 'alice@example.com', validatedMs: 1 },
      { medium: 'msisdn', address: '447700900123', validatedMs: 1 },
    ];
    for (const localpart of ['alice', 'bob', 'locked'])
      await users
        .get(AccountService)
        .register({ localpart, passwordHash, threepids: localpart === 'alice' ? threepids : [], origin: {} });
    await users.get(AccountService).setFlags('@locked:example.org', { locked: true });
  });
  afterAll(async () => {
    for (const fixture of built) await fixture.close();
  });

  it.each([
    ['a localpart', user('alice')],
    ['a full id', user('@alice:example.org')],
    ['another case', user('ALICE')],
    ['an email address', { type: 'm.id.thirdparty', medium: 'email', address: 'Alice@Example.COM' }],
    ['a phone number', { type: 'm.id.thirdparty', medium: 'msisdn', address: '+44 7700 900123' }],
    ['a phone number as dialed at home', { type: 'm.id.phone', country: 'gb', phone: '07700 900123' }],
  ])('knows a user by %s', async (_, identifier) => {
    expect(await withPassword(identifier)).toMatchObject({
      status: 200,
      body: { user_id: '@alice:example.org', home_server: 'example.org' },
    });
  });

  it('understands the older forms of a login', async () => {
    expect((await login({ type: 'm.login.password', user: 'alice', password: 'wonderland' })).status).toBe(200);
    expect(
      (await login({ type: 'm.login.password', medium: 'email', address: 'alice@example.com', password: 'wonderland' }))
        .status,
    ).toBe(200);
  });

  it('gives one answer to everything that is wrong', async () => {
    const answers = [
      await withPassword(user('alice'), 'wrong'),
      await withPassword(user('nobody')),
      await withPassword(user('@alice:elsewhere.org')),
      await withPassword(user('a\0b')),
      await withPassword(user('x'.repeat(5_000))),
      await withPassword({ type: 'm.id.thirdparty', medium: 'email', address: 'unknown@example.com' }),
      await withPassword(user('alice'), 'x'.repeat(100_000)),
    ];
    for (const answer of answers)
      expect(answer).toEqual({ status: 403, body: { errcode: 'M_FORBIDDEN', error: 'Wrong user name or password' } });
  });

  it('refuses bodies that make no sense', async () => {
    expect(await login({ type: 'm.login.password', identifier: user('alice') })).toMatchObject({
      status: 400,
      body: { errcode: 'M_MISSING_PARAM' },
    });
    expect(await login({ type: 'm.login.password', password: 'x' })).toMatchObject({
      status: 400,
      body: { errcode: 'M_MISSING_PARAM' },
    });
    expect(await login({ type: 'm.login.password', identifier: user('alice'), password: { $gt: '' } })).toMatchObject({
      status: 400,
      body: { errcode: 'M_BAD_JSON' },
    });
    expect(await login({ type: 'm.login.password', identifier: { type: 'm.id.magic' }, password: 'x' })).toMatchObject({
      status: 400,
    });
    for (const type of ['m.login.magic', 'm.login.dummy', 'constructor'])
      expect(await login({ type })).toMatchObject({ status: 400, body: { errcode: 'M_UNKNOWN' } });
  });

  it('tells of a lock only whoever knows the password', async () => {
    expect(await withPassword(user('locked'), 'wrong')).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
    expect(await withPassword(user('locked'))).toMatchObject({
      status: 401,
      body: { errcode: 'M_USER_LOCKED', soft_logout: true },
    });
  });

  it('limits wrong passwords per account, whatever form the name is given in', async () => {
    const fixture = await build({}, true);
    const forms = [
      user('alice'),
      user('@alice:example.org'),
      user('Alice'),
      { type: 'm.id.thirdparty', medium: 'email', address: 'alice@example.com' },
    ];
    for (let i = 0; i < 3; i++) expect((await withPassword(forms[i]!, 'wrong', fixture)).status).toBe(403);
    for (const form of forms)
      expect(await withPassword(form, 'wonderland', fixture)).toMatchObject({
        status: 429,
        body: { errcode: 'M_LIMIT_EXCEEDED' },
      });
    expect((await withPassword(user('bob'), 'wonderland', fixture)).status).toBe(200);
    await clock.advance(101_000);
    expect((await withPassword(user('alice'), 'wonderland', fixture)).status).toBe(200);
  });

  it('takes a login token once, in time', async () => {
    const token = await users.get(LoginTokens).create('@alice:example.org', 120_000);
    const results = await Promise.all(Array.from({ length: 5 }, () => login({ type: 'm.login.token', token })));
    expect(results.map((one) => one.status).sort()).toEqual([200, 403, 403, 403, 403]);
    const late = await users.get(LoginTokens).create('@alice:example.org', 120_000);
    await clock.advance(120_000);
    expect(await login({ type: 'm.login.token', token: late })).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
    expect(JSON.stringify(await test.database.query('SELECT * FROM login_tokens'))).not.toContain(token);
  });

  describe('between its proof and its session', () => {
    /** Does something between the proof of a login and its session. */
    const meanwhile = (action: () => Promise<unknown>): void => {
      const { database } = test;
      const { write } = database;
      database.write = async (work, options) => {
        if (options?.name === 'session_open') {
          database.write = write;
          await action();
        }
        return write.call(database, work, options) as never;
      };
    };
    const refused = { status: 403, body: { errcode: 'M_FORBIDDEN' } };
    const bob = '@bob:example.org';
    const devicesOfBob = () => test.database.query('SELECT device_id FROM devices WHERE user_id = ?', [bob]);

    it.each([true, false])('is ended by another password, logging out: %s', async (logout) => {
      await users.get(SessionService).closeAll(bob);
      const accounts = users.get(AccountService);
      meanwhile(() => accounts.setPassword(bob, 'new', logout));
      expect(await withPassword(user('bob'))).toMatchObject(refused);
      meanwhile(() => accounts.setPassword(bob, null, logout));
      expect(await withPassword(user('bob'), 'new')).toMatchObject(refused);
      expect(await devicesOfBob()).toEqual([]);
      await accounts.setPassword(bob, 'wonderland', false);
      expect(await withPassword(user('bob'))).toMatchObject({ status: 200 });
    });

    it('is ended by the end of all sessions, or of those of a single sign-on login', async () => {
      const sessions = users.get(SessionService);
      const authProvider = { id: 'oidc-x', sessionId: 'theirs' };
      await sessions.closeAll(bob);
      for (const end of [
        () => sessions.closeAll(bob),
        () => sessions.closeProviderLogins({ providerId: 'oidc-x', sessionId: 'theirs', userId: undefined }),
      ]) {
        const token = await users.get(LoginTokens).create(bob, 60_000, authProvider);
        meanwhile(end);
        expect(await login({ type: 'm.login.token', token })).toMatchObject(refused);
        expect(await devicesOfBob()).toEqual([]);
      }
    });

    it('gives out no login token for a session that has ended', async () => {
      const sessions = users.get(SessionService);
      const owner = (await sessions.findOwner((await sessions.open({ userId: bob })).accessToken))!;
      const requester = { ...owner, accessTokenId: owner.tokenId };
      const create = () => outcome(users.get(LoginTokens).create(bob, 60_000, undefined, requester));
      expect(await create()).toMatchObject({ status: 200 });
      await sessions.closeAll(bob);
      expect(await create()).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
    });

    it('goes on where a login beside it improves the hash', async () => {
      const password = 'x'.repeat(80);
      const passwordHash = await bcryptHash(password, 4);
      await users.get(AccountService).register({ localpart: 'imported', passwordHash, origin: {} });
      const logins = await Promise.all(Array.from({ length: 3 }, () => withPassword(user('imported'), password)));
      expect(logins.map(({ status }) => status)).toEqual([200, 200, 200]);
    });
  });

  it('offers what the settings allow', async () => {
    expect(users.get(LoginService).flows()).toEqual([
      { type: 'm.login.password' },
      { type: 'm.login.application_service' },
    ]);
    const fixture = await build({ 'password_config.enabled': false, 'login_via_existing_session.enabled': true });
    expect(fixture.get(LoginService).flows()).toEqual([
      { type: 'm.login.token', get_login_token: true },
      { type: 'm.login.application_service' },
    ]);
    expect(await withPassword(user('alice'), 'wonderland', fixture)).toMatchObject({
      status: 400,
      body: { errcode: 'M_UNKNOWN' },
    });
    const reauth = await build({ 'password_config.enabled': 'only_for_reauth' });
    expect((await withPassword(user('alice'), 'wonderland', reauth)).status).toBe(400);
  });

  it.each([
    [{}, ['m.login.password', 'org.example.otp'], ['org.example.otp', 'm.login.password']],
    [{ 'password_config.enabled': 'only_for_reauth' }, ['org.example.otp'], ['org.example.otp', 'm.login.password']],
    [{ 'password_config.enabled': false }, ['org.example.otp'], ['org.example.otp']],
    [{ 'password_config.localdb_enabled': false }, ['org.example.otp'], ['org.example.otp']],
  ])('leaves what modules check as it is, whatever is set about passwords (%o)', async (settings, flows, stages) => {
    const fixture = await build(settings);
    const registry = new ModuleRegistry(() => {});
    registry.addModule('otp');
    registry.add('otp', { onError: 'deny', timeLimitMs: undefined }, 'passwordAuthProvider', {
      authCheckers: [{ loginType: 'org.example.otp', fields: ['otp'], check: (userId) => ({ userId }) }],
    });
    fixture.get(ModuleDispatcher).install(registry.seal());
    const offered = fixture.get(LoginService).flows();
    expect(offered.map(({ type }) => type)).toEqual([...flows, 'm.login.application_service']);
    expect((await fixture.get(UserAuthGate).flowsFor('@alice:example.org')).flat()).toEqual(stages);
    const byCode = { type: 'org.example.otp', identifier: user('alice'), otp: '42' };
    expect((await login(byCode, fixture)).status).toBe(200);
  });

  it('lets a session confirm with its own user’s password only', async () => {
    const gate = users.get(UserAuthGate);
    const session = await users.get(SessionService).open({ userId: '@alice:example.org' });
    const owner = await users.get(SessionService).findOwner(session.accessToken);
    const requester = { ...owner!, accessTokenId: owner!.tokenId };
    const attempt = (auth: JsonObject) => {
      const body = { devices: ['X'], auth };
      return outcome(
        gate.require(requester, users.request('POST', '/_matrix/client/v3/delete_devices', body), body, {
          description: 'test',
        }),
      );
    };
    const asked = await attempt({});
    expect(asked).toMatchObject({ status: 401, body: { flows: [{ stages: ['m.login.password'] }] } });
    const { session: uiaSession } = asked.body;
    // Bob's password proves Bob, and Bob is not who is logged in.
    expect(
      await attempt({ type: 'm.login.password', identifier: user('bob'), password: 'wonderland', session: uiaSession }),
    ).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(
      await attempt({ type: 'm.login.password', identifier: user('alice'), password: 'wrong', session: uiaSession }),
    ).toMatchObject({ status: 401, body: { errcode: 'M_FORBIDDEN' } });
    expect(
      (
        await attempt({
          type: 'm.login.password',
          identifier: user('alice'),
          password: 'wonderland',
          session: uiaSession,
        })
      ).status,
    ).toBe(200);
    expect((await attempt({ type: 'm.login.password', password: 'wonderland' })).status).toBe(200);
  });

  it('takes a confirmation by single sign-on of the same user only', async () => {
    const fixture = await build();
    const gate = fixture.get(UserAuthGate);
    const uia = fixture.get(UiaService);
    fixture.get(UserPorts).singleSignOn.replace(async () => true);
    const session = await fixture.get(SessionService).open({ userId: '@alice:example.org' });
    const owner = (await fixture.get(SessionService).findOwner(session.accessToken))!;
    const attempt = (auth?: JsonObject) => {
      const body = auth ? { auth } : {};
      return outcome(
        gate.require({ ...owner, accessTokenId: owner.tokenId }, fixture.request('DELETE', '/y', body), body, {
          description: 'remove it',
        }),
      );
    };
    const asked = await attempt();
    expect(asked.body['flows']).toEqual([{ stages: ['m.login.password'] }, { stages: ['m.login.sso'] }]);
    const uiaSession = asked.body['session'] as string;
    expect(await uia.describe(uiaSession)).toMatchObject({ userId: '@alice:example.org', description: 'remove it' });
    await expect(uia.completeFor(uiaSession, 'm.login.sso', '@bob:example.org')).rejects.toMatchObject({ status: 403 });
    await expect(uia.completeFor('made-up', 'm.login.sso', '@alice:example.org')).rejects.toMatchObject({
      status: 404,
    });
    expect((await attempt({ session: uiaSession })).status).toBe(401);
    // The stage is passed at the provider; a client that merely claims it gets nowhere.
    expect((await attempt({ session: uiaSession, type: 'm.login.sso' })).status).toBe(400);
    await uia.completeFor(uiaSession, 'm.login.sso', '@alice:example.org');
    expect((await attempt({ session: uiaSession })).status).toBe(200);
    expect((await attempt({ session: uiaSession })).status).toBe(401);
  });

  it('serves a confirmation again within its time, for its own session only', async () => {
    const fixture = await build({ 'ui_auth.session_timeout': '1m' });
    const gate = fixture.get(UserAuthGate);
    const open = async () => {
      const session = await fixture.get(SessionService).open({ userId: '@alice:example.org' });
      const owner = await fixture.get(SessionService).findOwner(session.accessToken);
      return { ...owner!, accessTokenId: owner!.tokenId };
    };
    const [mine, other] = [await open(), await open()];
    const attempt = async (requester: typeof mine, mayReuse: boolean, auth?: JsonObject) => {
      const body = auth ? { auth } : {};
      return (
        await outcome(
          gate.require(requester, fixture.request('DELETE', '/x', body), body, { description: 'test', mayReuse }),
        )
      ).status;
    };
    expect(await attempt(mine, true)).toBe(401);
    expect(await attempt(mine, true, { type: 'm.login.password', password: 'wonderland' })).toBe(200);
    expect([await attempt(mine, true), await attempt(mine, false), await attempt(other, true)]).toEqual([
      200, 401, 401,
    ]);
    await clock.advance(60_000);
    expect(await attempt(mine, true)).toBe(401);
  });

  it('gives an address to one account only', async () => {
    const threepids = users.get(ThreepidService);
    await expect(threepids.add('@bob:example.org', 'email', 'ALICE@example.com', 1, {})).rejects.toMatchObject({
      errcode: 'M_THREEPID_IN_USE',
    });
    for (const address of [
      'a@b@c',
      'x y@z.org',
      'a@b.org\r\nBcc: v@w.x',
      '<a@b.org>',
      'a@b.org,c@d.org',
      '@b.org',
      'a@',
      'a@.b',
      `${'a'.repeat(500)}@b.org`,
    ]) {
      await expect(threepids.add('@bob:example.org', 'email', address, 1, {})).rejects.toMatchObject({
        errcode: 'M_INVALID_PARAM',
      });
    }
  });

  describe('with a JSON web token', () => {
    const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const hs256 = (claims: JsonObject, head: JsonObject = { alg: 'HS256' }, secret = 'jwt secret'): string => {
      const text = `${encode(head)}.${encode(claims)}`;
      return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
    };
    const settings = {
      jwt_config: { enabled: true, secret: 'jwt secret', algorithm: 'HS256', issuer: 'me', audiences: ['them'] },
    };
    const good = { sub: 'jenny', iss: 'me', aud: 'them' };

    it('logs in and registers whom the token names', async () => {
      const fixture = await build(settings);
      expect(await login({ type: 'org.matrix.login.jwt', token: hs256(good) }, fixture)).toMatchObject({
        status: 200,
        body: { user_id: '@jenny:example.org' },
      });
    });

    it('does not take a name that only looks like another for it', async () => {
      const fixture = await build(settings);
      await users.get(AccountService).register({ localpart: 'kim', origin: {} });
      // The Kelvin sign: its lower case is an ASCII k.
      const answer = await login({ type: 'org.matrix.login.jwt', token: hs256({ ...good, sub: '\u212aim' }) }, fixture);
      expect(answer).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_USERNAME' } });
      expect(
        await login({ type: 'org.matrix.login.jwt', token: hs256({ ...good, sub: 'KIM' }) }, fixture),
      ).toMatchObject({ body: { user_id: '@kim:example.org' } });
    });

    it('takes nothing else', async () => {
      const fixture = await build(settings);
      const nowS = clock.nowMs() / 1000;
      const bad = [
        hs256(good, { alg: 'HS256' }, 'guess'),
        hs256(good, { alg: 'none' }),
        `${encode({ alg: 'none' })}.${encode(good)}.`,
        hs256({ ...good, iss: 'you' }),
        hs256({ ...good, aud: 'others' }),
        hs256({ sub: 'jenny', iss: 'me' }),
        hs256({ ...good, exp: nowS - 1 }),
        hs256({ ...good, nbf: nowS + 100 }),
        hs256({ ...good, exp: 'never' }),
        hs256({ iss: 'me', aud: 'them' }),
        'x.y.z',
        '',
      ];
      for (const token of bad)
        expect(await login({ type: 'org.matrix.login.jwt', token }, fixture)).toMatchObject({
          status: 403,
          body: { errcode: 'M_FORBIDDEN' },
        });
    });

    it('cannot be talked into checking a public key as if it were a secret', async () => {
      const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
      const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
      const fixture = await build({ jwt_config: { enabled: true, secret: pem, algorithm: 'RS256' } });
      const text = `${encode({ alg: 'RS256' })}.${encode({ sub: 'jenny' })}`;
      expect(
        (
          await login(
            {
              type: 'org.matrix.login.jwt',
              token: `${text}.${sign('sha256', Buffer.from(text), privateKey).toString('base64url')}`,
            },
            fixture,
          )
        ).status,
      ).toBe(200);
      expect(
        (await login({ type: 'org.matrix.login.jwt', token: hs256({ sub: 'jenny' }, { alg: 'HS256' }, pem) }, fixture))
          .status,
      ).toBe(403);
    });
  });
});
