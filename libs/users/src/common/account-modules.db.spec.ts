import { createHmac } from 'node:crypto';
import { databaseMigrations } from '@rookery/database';
import { RequestAuthenticator } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { CallbackCategories } from '@rookery/module-api';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountDataService } from '../account-data/account-data.service.js';
import { AccountService } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { AdminRegistrationService } from '../registration/admin-registration.service.js';
import { GuestRegistration } from '../registration/guest-registration.js';
import { RegistrationService } from '../registration/registration.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { ProfileService } from '../profiles/profile.service.js';
import { LoginService } from '../login/login.service.js';
import { SessionController } from '../http/session.controller.js';
import { SessionService } from '../sessions/session.service.js';
import { ThreepidService } from '../threepids/threepid.service.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';

const outcome = async (promise: Promise<unknown>): Promise<{ status: number; body: JsonObject }> => {
  try {
    return { status: 200, body: ((await promise) ?? {}) as JsonObject };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return { status: error.status, body: error.toBody() };
  }
};

eachDatabase('modules and accounts', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let users: UsersFixture;
  const told: unknown[][] = [];

  /** Puts one module in force. */
  const load = <Category extends keyof CallbackCategories>(
    category: Category,
    callbacks: CallbackCategories[Category],
  ): void => {
    const registry = new ModuleRegistry(() => {});
    registry.addModule('tested');
    registry.add('tested', { onError: 'deny', timeLimitMs: undefined }, category, callbacks);
    users.get(ModuleDispatcher).install(registry.seal());
  };
  const register = (username: string) => {
    const body = { username, password: 'pw', auth: { type: 'm.login.dummy' } };
    return outcome(users.get(RegistrationService).register(users.request('POST', '/register', body), body));
  };
  const login = (body: JsonObject & { type: string }) =>
    outcome(users.get(LoginService).login(users.request('POST', '/login', body), body, {}));
  const withPassword = (user: string, password: string) =>
    login({ type: 'm.login.password', identifier: { type: 'm.id.user', user }, password });
  const withWebToken = (sub: string) => {
    const text = [{ alg: 'HS256' }, { sub }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.');
    const signature = createHmac('sha256', 'jwt secret').update(text).digest('base64url');
    return login({ type: 'org.matrix.login.jwt', token: `${text}.${signature}` });
  };
  const withSecret = (username: string, more: { readonly inhibit_login?: boolean } = {}) => {
    const service = users.get(AdminRegistrationService);
    const nonce = service.nonce();
    const mac = createHmac('sha1', 'shared').update([nonce, username, 'pw', 'notadmin'].join('\0')).digest('hex');
    const body = { nonce, username, password: 'pw', mac, ...more };
    return outcome(service.register(body, users.request('POST', '/_synapse/admin/v1/register')));
  };

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const settings = {
      registration_shared_secret: 'shared',
      allow_guest_access: true,
      jwt_config: { enabled: true, secret: 'jwt secret', algorithm: 'HS256' },
    };
    users = await buildUsers({ database: test.database, clock, settings });
    expect((await register('alice')).status).toBe(200);
  });
  afterAll(() => users.close());
  beforeEach(() => void told.splice(0));

  it('lets a module refuse, allow and shadow-ban registrations', async () => {
    load('spamChecker', {
      checkRegistrationForSpam: (email, username, requests) => {
        told.push([email, username, requests]);
        return username === 'spammer' ? 'deny' : username === 'ghost' ? 'shadowBan' : 'allow';
      },
    });
    expect((await register('spammer')).status).toBe(403);
    expect(await users.get(AccountService).find('@spammer:example.org')).toBeUndefined();
    expect((await register('ghost')).status).toBe(200);
    expect(await users.get(AccountService).find('@ghost:example.org')).toMatchObject({ shadowBanned: true });
    expect((await register('honest')).status).toBe(200);
    expect(told[0]).toEqual([undefined, 'spammer', [{ ip: '127.0.0.1', userAgent: 'test' }]]);
  });

  it('lets a module refuse, allow and shadow-ban whom a login brings along', async () => {
    load('spamChecker', {
      checkRegistrationForSpam: (email, username, requests, authProviderId) => {
        told.push([email, username, requests, authProviderId]);
        return username === 'jwt_spammer' ? 'deny' : username === 'jwt_ghost' ? 'shadowBan' : 'allow';
      },
    });
    expect(await withWebToken('jwt_spammer')).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(await users.get(AccountService).find('@jwt_spammer:example.org')).toBeUndefined();
    expect((await withWebToken('jwt_ghost')).status).toBe(200);
    expect(await users.get(AccountService).find('@jwt_ghost:example.org')).toMatchObject({ shadowBanned: true });
    expect((await withWebToken('jwt_honest')).status).toBe(200);
    // Who is there already is no registration.
    expect((await withWebToken('jwt_honest')).status).toBe(200);
    expect(told.map(([, username]) => username)).toEqual(['jwt_spammer', 'jwt_ghost', 'jwt_honest']);
    expect(told[0]).toEqual([undefined, 'jwt_spammer', [{ ip: '127.0.0.1', userAgent: 'test' }], undefined]);
  });

  it('lets a module refuse a login after the proof, with its own words', async () => {
    load('spamChecker', {
      checkLoginForSpam: (...args) => {
        told.push(args.slice(0, 3));
        return { errcode: 'ORG.EXAMPLE.NO', status: 418, message: 'Not today' };
      },
    });
    expect((await withPassword('alice', 'wrong')).body['errcode']).toBe('M_FORBIDDEN');
    expect(told).toEqual([]);
    expect(await withPassword('alice', 'pw')).toMatchObject({
      status: 418,
      body: { errcode: 'ORG.EXAMPLE.NO', error: 'Not today' },
    });
    expect(told).toEqual([['@alice:example.org', undefined, undefined]]);
  });

  it('lets a module check passwords, bring users along and login types of its own', async () => {
    load('passwordAuthProvider', {
      authCheckers: [
        {
          loginType: 'm.login.password',
          fields: ['password'],
          check: (username, _type, dict) => (dict['password'] === 'directory' ? { userId: username } : undefined),
        },
        {
          loginType: 'org.example.otp',
          fields: ['otp'],
          check: (username, _type, dict) => {
            told.push([username, dict]);
            return dict['otp'] === '42'
              ? { userId: username, onLogin: (response) => void told.push([response['user_id']]) }
              : undefined;
          },
        },
      ],
      check3pidAuth: (medium, address, password) =>
        password === 'directory' && address === 'a@b.org' && medium === 'email'
          ? { userId: '@byemail:example.org' }
          : undefined,
    });
    expect(
      users
        .get(LoginService)
        .flows()
        .map((flow) => flow.type),
    ).toContain('org.example.otp');
    expect(await withPassword('alice', 'directory')).toMatchObject({
      status: 200,
      body: { user_id: '@alice:example.org' },
    });
    expect((await withPassword('alice', 'pw')).status).toBe(200);
    expect((await withPassword('alice', 'other')).status).toBe(403);
    expect(await withPassword('newcomer', 'directory')).toMatchObject({
      status: 200,
      body: { user_id: '@newcomer:example.org' },
    });
    const otp = (code: string) =>
      login({
        type: 'org.example.otp',
        identifier: { type: 'm.id.user', user: 'alice' },
        otp: code,
        secret: 'not asked for',
      });
    const named = { identifier: { type: 'm.id.user', user: 'alice' } };
    expect(await login({ type: 'org.example.otp', ...named })).toMatchObject({
      ...{ status: 400, body: { errcode: 'M_MISSING_PARAM' } },
    });
    expect((await otp('1')).status).toBe(403);
    expect((await otp('42')).status).toBe(200);
    expect(told).toEqual([
      ['@alice:example.org', { otp: '1' }],
      ['@alice:example.org', { otp: '42' }],
      ['@alice:example.org'],
    ]);
    expect(
      await login({
        type: 'm.login.password',
        identifier: { type: 'm.id.thirdparty', medium: 'email', address: 'a@b.org' },
        password: 'directory',
      }),
    ).toMatchObject({
      body: { user_id: '@byemail:example.org' },
    });
  });

  it('lets a module not vouch for users of other servers, nor for deactivated ones', async () => {
    load('passwordAuthProvider', {
      authCheckers: [
        {
          loginType: 'm.login.password',
          fields: ['password'],
          check: (_name, _type, dict) => ({ userId: dict['password'] as string }),
        },
      ],
    });
    expect((await withPassword('x', '@x:else.org')).status).toBe(403);
    await users.get(AccountService).register({ localpart: 'closed', origin: {} });
    await users.get(DeactivationService).deactivate('@closed:example.org', false, true, {});
    expect(await withPassword('x', '@closed:example.org')).toMatchObject({
      status: 403,
      body: { errcode: 'M_USER_DEACTIVATED' },
    });
  });

  it('names accounts as a module says, and tells it no secrets', async () => {
    load('passwordAuthProvider', {
      getUsernameForRegistration: (results, params) => {
        told.push([results, params]);
        return 'renamed';
      },
      getDisplaynameForRegistration: () => 'Re Named',
    });
    expect(await register('wished')).toMatchObject({ body: { user_id: '@renamed:example.org' } });
    expect(await users.get(ProfileService).get('@renamed:example.org')).toEqual({ displayname: 'Re Named' });
    expect(told).toEqual([[{ 'm.login.dummy': true }, { username: 'wished' }]]);
  });

  it('lets a module refuse addresses, deactivations, and expire accounts', async () => {
    load('passwordAuthProvider', { is3pidAllowed: (_medium, address) => !address.endsWith('@bad.org') });
    await expect(
      users.get(ThreepidService).add('@alice:example.org', 'email', 'x@bad.org', 1, {}),
    ).rejects.toMatchObject({ status: 403, errcode: 'M_THREEPID_DENIED' });
    await users.get(ThreepidService).add('@alice:example.org', 'email', 'x@good.org', 1, {});
    const words = { message: 'Addresses of the company only' };
    load('passwordAuthProvider', { is3pidAllowed: () => words });
    await expect(
      users.get(ThreepidService).add('@alice:example.org', 'email', 'y@good.org', 1, {}),
    ).rejects.toMatchObject({ status: 403, errcode: 'M_THREEPID_DENIED', ...words });
    load('thirdPartyRules', { checkCanDeactivateUser: () => false });
    await expect(
      users.get(DeactivationService).deactivate('@alice:example.org', false, false, {}),
    ).rejects.toMatchObject({ status: 403 });
    load('accountValidity', { isUserExpired: (userId) => (userId === '@alice:example.org' ? true : undefined) });
    const token = async (userId: string) => (await users.get(SessionService).open({ userId })).accessToken;
    const access = async (userId: string, expired = false) =>
      outcome(
        users
          .get(RequestAuthenticator)
          .authenticate(users.request('GET', '/x', undefined, { token: await token(userId) }), {
            auth: 'required',
            expired,
          }),
      );
    expect(await access('@alice:example.org')).toMatchObject({
      status: 403,
      body: { errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT' },
    });
    expect((await access('@alice:example.org', true)).status).toBe(200);
    expect((await access('@honest:example.org')).status).toBe(200);
  });

  it('tells modules what happened', async () => {
    const note =
      (name: string) =>
      (...args: unknown[]): void =>
        void told.push([name, ...args.slice(0, -1)]);
    load('accountValidity', { onUserRegistration: note('registered'), onUserLogin: note('login') });
    const registered = await register('observed');
    expect(told).toEqual([
      ['registered', '@observed:example.org'],
      ['login', '@observed:example.org', undefined, undefined],
    ]);
    told.splice(0);
    expect((await withSecret('made_by_hand')).status).toBe(200);
    expect((await withSecret('without_session', { inhibit_login: true })).status).toBe(200);
    const guest = await outcome(users.get(GuestRegistration).register(users.request('POST', '/register'), {}));
    const login = (userId: unknown) => ['login', userId, undefined, undefined];
    expect(told).toEqual([
      ['registered', '@made_by_hand:example.org'],
      login('@made_by_hand:example.org'),
      ['registered', '@without_session:example.org'],
      ['registered', guest.body['user_id']],
      login(guest.body['user_id']),
    ]);
    told.splice(0);
    load('thirdPartyRules', {
      onProfileUpdate: note('profile'),
      onUserDeactivationStatusChanged: note('deactivation'),
      onAddUserThirdPartyIdentifier: note('added'),
      onRemoveUserThirdPartyIdentifier: note('removed'),
    });
    await users.get(ProfileService).update('@observed:example.org', { displayname: 'Seen' }, { origin: {} });
    await users.get(ProfileService).update('@observed:example.org', { 'm.tz': 'Europe/Paris' }, { origin: {} });
    await users.get(ThreepidService).add('@observed:example.org', 'email', 'o@b.org', 1, {});
    await users.get(DeactivationService).deactivate('@observed:example.org', false, true, {});
    await users.get(DeactivationService).reactivate('@observed:example.org', {});
    expect(told).toEqual([
      // Also of a field that is not in what they are given.
      ...[1, 2].map(() => [
        'profile',
        '@observed:example.org',
        { displayName: 'Seen', avatarUrl: undefined },
        ...[false, false],
      ]),
      ['added', '@observed:example.org', 'email', 'o@b.org'],
      ['removed', '@observed:example.org', 'email', 'o@b.org'],
      ['deactivation', '@observed:example.org', true, true],
      ['deactivation', '@observed:example.org', false, true],
    ]);
    expect(await users.get(SessionService).findOwner(registered.body['access_token'] as string)).toBeUndefined();
    told.splice(0);
    load('accountData', { onAccountDataUpdated: note('data') });
    await users.get(AccountDataService).set('@alice:example.org', '!r:x', 'org.example', { a: 1 }, {});
    await users.get(AccountDataService).setTag('@alice:example.org', '!r:x', 'u.tag', {}, {});
    expect(told).toEqual([['data', '@alice:example.org', '!r:x', 'org.example', { a: 1 }]]);
    told.splice(0);
    load('passwordAuthProvider', { onLoggedOut: note('logout') });
    const session = await users.get(SessionService).open({ userId: '@alice:example.org', deviceId: 'OUT' });
    const request = users.request('POST', '/logout', {}, { token: session.accessToken });
    const requester = (await users.get(RequestAuthenticator).authenticate(request, { auth: 'required' }))!;
    await users.get(SessionController).logout(requester, request);
    expect(told).toEqual([['logout', '@alice:example.org', 'OUT', session.accessToken]]);
  });

  it('tells modules of sessions that end because of another, or because they were copied', async () => {
    const told: unknown[] = [];
    load('passwordAuthProvider', {
      onLoggedOut: (...args: unknown[]) => void told.push(args.slice(0, 3)),
    });
    const sessions = users.get(SessionService);
    const userId = '@alice:example.org';
    await sessions.open({ userId, deviceId: 'AGAIN' });
    expect(told).toEqual([]);
    const { refreshToken } = await sessions.open({ userId, deviceId: 'AGAIN', refreshable: true });
    expect(told.splice(0)).toEqual([[userId, 'AGAIN', '']]);
    const { accessToken } = await sessions.refresh(refreshToken!);
    await sessions.findOwner(accessToken);
    await expect(sessions.refresh(refreshToken!)).rejects.toMatchObject({ errcode: 'M_UNKNOWN_TOKEN' });
    expect(told).toEqual([[userId, 'AGAIN', '']]);
  });

  it('accepts nothing when a module breaks', async () => {
    load('spamChecker', {
      checkRegistrationForSpam: () => {
        throw new Error('broken');
      },
    });
    expect((await register('unlucky')).status).toBe(500);
    expect(await users.get(AccountService).find('@unlucky:example.org')).toBeUndefined();
  });
});
