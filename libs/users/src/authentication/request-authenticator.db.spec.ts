import { databaseMigrations } from '@rookery/database';
import { type AccessOptions, type InboundRequest, RequestAuthenticator } from '@rookery/http';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { UserPorts } from '../ports.js';
import { ClientActivity } from '../sessions/client-activity.js';
import { addressesOf } from '../sessions/client-activity.query.js';
import { SessionService } from '../sessions/session.service.js';

eachDatabase('who makes a request', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let users: UsersFixture;
  const bridge = {
    id: 'bridge',
    senderUserId: '@bridge:example.org',
    rateLimited: false,
    covers: (id: string) => id.startsWith('@irc_'),
  };

  const authenticate = (
    path: string,
    headers: InboundRequest['headers'],
    access: Partial<AccessOptions> = {},
    fixture = users,
  ) =>
    fixture
      .get(RequestAuthenticator)
      .authenticate({ ...fixture.request('GET', path), headers }, { auth: 'required', ...access });
  const asBridge = (path: string, access: Partial<AccessOptions> = {}) =>
    authenticate(path, { authorization: 'Bearer as_token' }, access);

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({ database: test.database, clock });
    users.get(UserPorts).appservices.replace({
      byToken: (token) => (token === 'as_token' ? bridge : undefined),
      byId: () => undefined,
      exclusiveOwner: () => undefined,
    });
    for (const localpart of ['irc_bob', 'irc_gone', 'alice'])
      await users.get(AccountService).register({ localpart, origin: {} });
    await users.get(DeactivationService).deactivate('@irc_gone:example.org', false, true, {});
  });
  afterAll(() => users.close());

  it('takes a token from the header, or from the query, whatever the case of its scheme', async () => {
    const { accessToken } = await users.get(SessionService).open({ userId: '@alice:example.org' });
    for (const authorization of [`Bearer ${accessToken}`, `bearer  ${accessToken} `])
      expect(await authenticate('/x', { authorization })).toMatchObject({ userId: '@alice:example.org' });
    expect(await authenticate(`/x?access_token=${accessToken}`, {})).toMatchObject({ userId: '@alice:example.org' });
    for (const authorization of ['Basic abc', 'Bearer', 'Bearer a b', accessToken])
      await expect(authenticate('/x', { authorization })).rejects.toMatchObject({
        status: 401,
        errcode: 'M_MISSING_TOKEN',
      });
  });

  it('lets an application service act as itself and as its users, without limits', async () => {
    expect(await asBridge('/x')).toMatchObject({
      userId: '@bridge:example.org',
      appserviceId: 'bridge',
      rateLimitExempt: true,
    });
    expect(await asBridge('/x?user_id=@irc_bob:example.org')).toMatchObject({
      userId: '@irc_bob:example.org',
      appserviceId: 'bridge',
    });
  });

  it('sees at once that a user was locked or closed as whom an application service acts', async () => {
    const userId = '@irc_bob:example.org';
    const accounts = users.get(AccountService);
    await asBridge(`/x?user_id=${userId}`);
    await accounts.setFlags(userId, { locked: true });
    await expect(asBridge(`/x?user_id=${userId}`)).rejects.toMatchObject({ errcode: 'M_USER_LOCKED' });
    await accounts.setFlags(userId, { locked: false, suspended: true });
    await expect(asBridge(`/x?user_id=${userId}`, { suspended: false })).rejects.toMatchObject({
      errcode: 'M_USER_SUSPENDED',
    });
    await accounts.setFlags(userId, { suspended: false });
    await expect(asBridge(`/x?user_id=@irc_new:example.org`)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await accounts.register({ localpart: 'irc_new', origin: {} });
    await asBridge(`/x?user_id=@irc_new:example.org`);
    await users.get(DeactivationService).deactivate('@irc_new:example.org', false, true, {});
    await expect(asBridge(`/x?user_id=@irc_new:example.org`)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
  });

  it.each([
    ['@alice:example.org', 'M_FORBIDDEN'],
    ['@irc_nobody:example.org', 'M_FORBIDDEN'],
    ['@irc_gone:example.org', 'M_FORBIDDEN'],
    ['@irc_bob:else.org', 'M_FORBIDDEN'],
    ['@irc_bob:example.org&user_id=@irc_bob:example.org', 'M_INVALID_PARAM'],
    ['@irc_bob:example.org&device_id=NOPE', 'M_UNKNOWN_DEVICE'],
  ])('lets it not act as %s', async (user, errcode) => {
    const path = `/x?user_id=${user}`;
    const request = { ...users.request('GET', path), headers: { authorization: 'Bearer as_token' } };
    const query = Object.fromEntries(
      [...new URL(path, 'http://x').searchParams.keys()]
        .map((key) => [key, new URL(path, 'http://x').searchParams.getAll(key)])
        .map(([key, all]) => [key, all!.length > 1 ? all : all![0]]),
    );
    await expect(
      users
        .get(RequestAuthenticator)
        .authenticate({ ...request, query: query as InboundRequest['query'] }, { auth: 'required' }),
    ).rejects.toMatchObject({ errcode });
  });

  it('takes its token in the query, too, and tells whence it came', async () => {
    expect(await authenticate('/x?access_token=as_token', {})).toMatchObject({ appserviceId: 'bridge' });
    const strict = await buildUsers({ database: test.database, clock });
    const byToken = (_token: string, ip: string) => (ip === '10.9.9.9' ? bridge : undefined);
    strict.get(UserPorts).appservices.replace({ byToken, byId: () => undefined, exclusiveOwner: () => undefined });
    const request = { ...strict.request('GET', '/x'), headers: { authorization: 'Bearer as_token' } };
    const from = (ip: string) =>
      strict.get(RequestAuthenticator).authenticate({ ...request, ip }, { auth: 'required' });
    expect(await from('10.9.9.9')).toMatchObject({ appserviceId: 'bridge' });
    await expect(from('10.9.9.8')).rejects.toMatchObject({ status: 401, errcode: 'M_UNKNOWN_TOKEN' });
    await strict.close();
  });

  it('notes when and from where users were last active, at most every two minutes, and only of devices that exist', async () => {
    const { accessToken, userId, deviceId } = await users
      .get(SessionService)
      .open({ userId: '@alice:example.org', deviceId: 'SEEN' });
    const gone = await users.get(SessionService).open({ userId, deviceId: 'GONE' });
    const activity = users.get(ClientActivity);
    const lastSeen = async () =>
      (await test.database.get<{ last_seen: number }>('SELECT last_seen FROM devices WHERE device_id = ?', [deviceId]))
        ?.last_seen;
    const first = clock.nowMs();
    await authenticate('/x', { authorization: `Bearer ${accessToken}` });
    await authenticate('/x', { authorization: `Bearer ${gone.accessToken}` });
    await users.get(SessionService).closeDevices(userId, ['GONE']);
    await activity.flush();
    expect(await lastSeen()).toBe(first);
    expect(await test.database.get("SELECT 1 AS one FROM devices WHERE device_id = 'GONE'")).toBeUndefined();
    await clock.advance(110_000);
    await authenticate('/x', { authorization: `Bearer ${accessToken}` });
    await activity.flush();
    expect(await lastSeen()).toBe(first);
    await clock.advance(10_000);
    await authenticate('/x', { authorization: `Bearer ${accessToken}` });
    await activity.flush();
    expect(await lastSeen()).toBe(first + 120_000);
    expect(await addressesOf(test.database, userId)).toContainEqual({
      device_id: 'SEEN',
      ip: '127.0.0.1',
      user_agent: 'test',
      last_seen: first + 120_000,
    });
  });
});
