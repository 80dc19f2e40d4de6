import { databaseMigrations } from '@rookery/database';
import { eachDatabase, FakeClock, holdUp, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { RequestAuthenticator } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { UserHooks } from '../hooks.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { ClientActivity } from './client-activity.js';
import { DeviceService } from './device.service.js';
import { SessionService } from './session.service.js';

const refusal = (promise: Promise<unknown>): Promise<MatrixError> =>
  promise.then(
    () => {
      throw new Error('It was allowed');
    },
    (error: unknown) => {
      if (!MatrixError.is(error)) throw error;
      return error;
    },
  );

eachDatabase('sessions', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let users: UsersFixture;
  let sessions: SessionService;
  let serial = 0;
  const alice = '@alice:example.org';

  const newUser = async (): Promise<string> =>
    await users.get(AccountService).register({ localpart: `user${++serial}`, origin: {} });
  const whoIs = (token: string, access: object = {}) =>
    users
      .get(RequestAuthenticator)
      .authenticate(users.request('GET', '/x', undefined, { token }), { auth: 'required', ...access });

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({
      database: test.database,
      clock,
      settings: { refresh_token_lifetime: '1d', session_lifetime: '3d' },
    });
    sessions = users.get(SessionService);
    await users.get(AccountService).register({ localpart: 'alice', origin: {} });
  });
  afterAll(() => users.close());

  it('opens a session whose token identifies the user and the device', async () => {
    const session = await sessions.open({ userId: alice, deviceId: 'PHONE', initialDisplayName: 'Phone' });
    expect(await whoIs(session.accessToken)).toMatchObject({
      userId: alice,
      deviceId: 'PHONE',
      isGuest: false,
      isAdmin: false,
    });
  });

  it('stores no token in a form that works', async () => {
    const session = await sessions.open({ userId: alice, refreshable: true });
    const dump = JSON.stringify([
      await test.database.query('SELECT * FROM access_tokens'),
      await test.database.query('SELECT * FROM refresh_tokens'),
    ]);
    expect(dump).not.toContain(session.accessToken);
    expect(dump).not.toContain(session.refreshToken);
    for (const stored of dump.match(/[\w-]{43}/g) ?? [])
      expect((await refusal(whoIs(stored))).errcode).toBe('M_UNKNOWN_TOKEN');
  });

  it('answers a session that is in use without a query', async () => {
    const { accessToken } = await sessions.open({ userId: alice, deviceId: 'HOT' });
    await whoIs(accessToken);
    await test.database.write((tx) => tx.run("DELETE FROM access_tokens WHERE device_id = 'HOT'"));
    expect(await whoIs(accessToken)).toMatchObject({ deviceId: 'HOT' });
    await clock.advance(61_000);
    expect((await refusal(whoIs(accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
  });

  it('forgets a token at once on logout, also while it is being looked up', async () => {
    const session = await sessions.open({ userId: alice, deviceId: 'GONE' });
    const requester = await whoIs(session.accessToken);
    const racing = whoIs(session.accessToken).catch(() => undefined);
    await sessions.close(alice, requester!.accessTokenId!, 'GONE');
    await racing;
    expect(await refusal(whoIs(session.accessToken))).toMatchObject({
      status: 401,
      errcode: 'M_UNKNOWN_TOKEN',
      extra: { soft_logout: false },
    });
  });

  it('ends the former tokens of a device that logs in again, and keeps its name', async () => {
    const userId = await newUser();
    const first = await sessions.open({ userId, deviceId: 'SAME', initialDisplayName: 'first' });
    await whoIs(first.accessToken);
    const second = await sessions.open({ userId, deviceId: 'SAME', initialDisplayName: 'second' });
    expect((await refusal(whoIs(first.accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await whoIs(second.accessToken)).toMatchObject({ deviceId: 'SAME' });
    expect(await test.database.query('SELECT display_name FROM devices WHERE user_id = ?', [userId])).toEqual([
      { display_name: 'first' },
    ]);
  });

  it('soft-logs out when a token expires', async () => {
    const { accessToken, expiresInMs } = await sessions.open({ userId: alice, refreshable: true });
    expect(expiresInMs).toBe(300_000);
    await whoIs(accessToken);
    await clock.advance(300_000);
    expect(await refusal(whoIs(accessToken))).toMatchObject({
      status: 401,
      errcode: 'M_UNKNOWN_TOKEN',
      extra: { soft_logout: true },
    });
  });

  it('refreshes again with the same token while the answer may have been lost', async () => {
    const opened = await sessions.open({ userId: alice, refreshable: true });
    const lost = await sessions.refresh(opened.refreshToken!);
    const taken = await sessions.refresh(opened.refreshToken!);
    expect((await refusal(whoIs(lost.accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect((await refusal(sessions.refresh(lost.refreshToken!))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await whoIs(taken.accessToken)).toMatchObject({ userId: alice });
  });

  it('ends all tokens of a device when a refresh token comes back after its successor was used', async () => {
    const userId = await newUser();
    const opened = await sessions.open({ userId, refreshable: true });
    const other = await sessions.open({ userId });
    const next = await sessions.refresh(opened.refreshToken!);
    await whoIs(next.accessToken);
    expect(await refusal(sessions.refresh(opened.refreshToken!))).toMatchObject({
      status: 401,
      errcode: 'M_UNKNOWN_TOKEN',
      extra: { soft_logout: true },
    });
    for (const token of [opened.accessToken, next.accessToken])
      expect((await refusal(whoIs(token))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect((await refusal(sessions.refresh(next.refreshToken!))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await whoIs(other.accessToken)).toMatchObject({ userId });
  });

  it('tells hooks of a session that ends because its refresh token was copied', async () => {
    const userId = await newUser();
    const seen: unknown[] = [];
    const hooks = users.get(UserHooks);
    const note = (when: string) => (event: { userId: string; deviceIds: readonly string[] }) =>
      void (event.userId === userId && seen.push([when, event.deviceIds]));
    hooks.loggedOut.subscribe({
      inTransaction: async (_tx, event) => note('tx')(event),
      afterCommit: async (event) => note('after')(event),
    });
    const { deviceId, refreshToken } = await sessions.open({ userId, refreshable: true });
    await whoIs((await sessions.refresh(refreshToken!)).accessToken);
    expect(seen).toEqual([]);
    expect((await refusal(sessions.refresh(refreshToken!))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(seen).toEqual([
      ['tx', [deviceId]],
      ['after', [deviceId]],
    ]);
  });

  it('gives one of many parallel refreshes a session that lives', async () => {
    const userId = await newUser();
    const opened = await sessions.open({ userId, refreshable: true });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => sessions.refresh(opened.refreshToken!).catch(() => undefined)),
    );
    const alive = await Promise.all(
      answers.map(async (answer) => (answer ? whoIs(answer.accessToken).catch(() => undefined) : undefined)),
    );
    expect(alive.filter((one) => one !== undefined)).toHaveLength(1);
  });

  it.each([
    { what: 'goes', write: 'session_close_devices' },
    { what: 'logs in again', write: 'session_open' },
  ])('leaves nothing of a refresh of a device that $what meanwhile', async ({ write }) => {
    const userId = await newUser();
    const { deviceId, refreshToken } = await sessions.open({ userId, refreshable: true });
    const reached = holdUp(test.database, 'session_refresh', write);
    const refreshing = sessions.refresh(refreshToken!);
    await reached;
    if (write === 'session_open') await sessions.open({ userId, deviceId });
    else await sessions.closeDevices(userId, [deviceId]);
    const refreshed = await refreshing;
    expect((await refusal(whoIs(refreshed.accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect((await refusal(sessions.refresh(refreshed.refreshToken!))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await test.database.query('SELECT id FROM refresh_tokens WHERE user_id = ?', [userId])).toEqual([]);
  });

  it('leaves no session without its device where that is deleted while somebody logs in to it', async () => {
    const userId = await newUser();
    await sessions.open({ userId, deviceId: 'SAME' });
    const reached = holdUp(test.database, 'session_open', 'session_close_devices');
    const opening = sessions.open({ userId, deviceId: 'SAME' });
    await reached;
    await sessions.closeDevices(userId, ['SAME']);
    expect((await refusal(whoIs((await opening).accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await users.get(DeviceService).list(userId)).toEqual([]);
  });

  it('ends a session that is just being opened with all others', async () => {
    const userId = await newUser();
    const reached = holdUp(test.database, 'session_open', 'session_close_all');
    const opening = sessions.open({ userId, deviceId: 'NEW' });
    await reached;
    await sessions.closeAll(userId);
    expect((await refusal(whoIs((await opening).accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await users.get(DeviceService).list(userId)).toEqual([]);
  });

  it('makes the device anew where it is deleted before somebody logs in to it', async () => {
    const userId = await newUser();
    await sessions.open({ userId, deviceId: 'SAME', initialDisplayName: 'first' });
    const reached = holdUp(test.database, 'session_close_devices', 'session_open');
    const closing = sessions.closeDevices(userId, ['SAME']);
    await reached;
    const { accessToken } = await sessions.open({ userId, deviceId: 'SAME', initialDisplayName: 'second' });
    await closing;
    expect(await whoIs(accessToken)).toMatchObject({ deviceId: 'SAME' });
    expect(await users.get(DeviceService).list(userId)).toMatchObject([{ displayName: 'second' }]);
  });

  it('brings no device back that was seen while it was deleted', async () => {
    const userId = await newUser();
    const activity = users.get(ClientActivity);
    await sessions.open({ userId, deviceId: 'SEEN' });
    await activity.flush();
    activity.seen(userId, 'SEEN', '192.0.2.1', 'client', clock.nowMs());
    const reached = holdUp(test.database, 'session_close_devices', 'client_activity');
    const closing = sessions.closeDevices(userId, ['SEEN']);
    await reached;
    await activity.flush();
    await closing;
    expect(await users.get(DeviceService).list(userId)).toEqual([]);
  });

  it('notes of many sightings some at a time', async () => {
    const userId = await newUser();
    const activity = users.get(ClientActivity);
    await activity.flush();
    for (let n = 0; n < 1_100; n++) activity.seen(userId, 'MANY', `192.0.2.${n}`, 'client', clock.nowMs());
    const writing = jest.spyOn(test.database, 'write');
    await activity.flush();
    const writes = writing.mock.calls.filter(([, options]) => options?.name === 'client_activity');
    writing.mockRestore();
    expect(writes).toHaveLength(3);
    const noted = await test.database.query('SELECT ip FROM user_ips WHERE user_id = ? AND device_id = ?', [
      userId,
      'MANY',
    ]);
    expect(noted).toHaveLength(1_100);
  });

  it('ends a session at its lifetime however often it is refreshed', async () => {
    const userId = await newUser();
    let tokens = await sessions
      .open({ userId, refreshable: true })
      .then((session) => ({ accessToken: session.accessToken, refreshToken: session.refreshToken! }));
    for (let day = 0; day < 2; day++) {
      await clock.advance(86_000_000);
      tokens = { ...tokens, ...(await sessions.refresh(tokens.refreshToken)) } as typeof tokens;
      await whoIs(tokens.accessToken);
    }
    await clock.advance(80_000_000);
    const last = await sessions.refresh(tokens.refreshToken);
    await clock.advance(86_000_000);
    expect((await refusal(sessions.refresh(last.refreshToken!))).extra).toEqual({ soft_logout: true });
  });

  it('renews no session of a locked account, and goes on when it is unlocked', async () => {
    const userId = await newUser();
    const { refreshToken } = await sessions.open({ userId, refreshable: true });
    await users.get(AccountService).setFlags(userId, { locked: true });
    expect(await refusal(sessions.refresh(refreshToken!))).toMatchObject({
      status: 401,
      errcode: 'M_USER_LOCKED',
      extra: { soft_logout: true },
    });
    await users.get(AccountService).setFlags(userId, { locked: false });
    await whoIs((await sessions.refresh(refreshToken!)).accessToken);
  });

  it('lets one access token follow another where no refresh tokens are given out anymore', async () => {
    const userId = await newUser();
    const { refreshToken } = await sessions.open({ userId, refreshable: true });
    const settings = { refreshable_access_token_lifetime: null };
    const changed = await buildUsers({ database: test.database, clock, settings });
    const tokens = () => test.database.query('SELECT id FROM access_tokens WHERE user_id = ?', [userId]);
    for (let i = 0; i < 3; i++) {
      const renewed = await changed.get(SessionService).refresh(refreshToken!);
      expect(renewed.refreshToken).toBeUndefined();
      await whoIs(renewed.accessToken);
      expect(await tokens()).toHaveLength(1);
    }
    await changed.close();
    // Given out again, they go on from the one that there is.
    const { accessToken, refreshToken: next } = await sessions.refresh(refreshToken!);
    await whoIs(accessToken);
    expect((await sessions.refresh(next!)).refreshToken).toBeDefined();
    expect(await tokens()).toHaveLength(2);
  });

  it('refuses an expired refresh token', async () => {
    const opened = await sessions.open({ userId: await newUser(), refreshable: true });
    await clock.advance(86_400_000);
    expect((await refusal(sessions.refresh(opened.refreshToken!))).errcode).toBe('M_UNKNOWN_TOKEN');
  });

  it('tells hooks of ended sessions, within the transaction and after it', async () => {
    const userId = await newUser();
    const seen: string[] = [];
    users.get(UserHooks).devicesDeleted.subscribe({
      inTransaction: async (_tx, event) => void (event.userId === userId && seen.push(`tx ${event.deviceIds.join()}`)),
      afterCommit: async (event) => void (event.userId === userId && seen.push(`after ${event.deviceIds.join()}`)),
    });
    await sessions.open({ userId, deviceId: 'A' });
    await sessions.open({ userId, deviceId: 'B' });
    await sessions.closeAll(userId, 'B');
    expect(seen).toEqual(['tx A', 'after A']);
  });

  it('lets an administrator act as a user without touching the user’s own sessions', async () => {
    const admin = await users
      .get(AccountService)
      .register({ localpart: `admin${++serial}`, isAdmin: true, origin: {} });
    const userId = await newUser();
    const own = await sessions.open({ userId });
    const token = await sessions.openPuppet(admin, userId, undefined);
    expect(await whoIs(token)).toMatchObject({ userId, puppetedBy: admin, deviceId: undefined, isAdmin: false });
    await sessions.closeAll(userId);
    expect((await refusal(whoIs(own.accessToken))).errcode).toBe('M_UNKNOWN_TOKEN');
    expect(await whoIs(token)).toMatchObject({ userId });
    await sessions.closeAll(admin);
    expect((await refusal(whoIs(token))).errcode).toBe('M_UNKNOWN_TOKEN');
  });

  it('treats locked, suspended, guest and ordinary accounts as the endpoint says', async () => {
    const accounts = users.get(AccountService);
    const userId = await newUser();
    const { accessToken } = await sessions.open({ userId });
    await whoIs(accessToken);
    await accounts.setFlags(userId, { locked: true });
    expect(await refusal(whoIs(accessToken))).toMatchObject({
      status: 401,
      errcode: 'M_USER_LOCKED',
      extra: { soft_logout: true },
    });
    expect(await whoIs(accessToken, { locked: true })).toMatchObject({ locked: true });
    await accounts.setFlags(userId, { locked: false, suspended: true });
    expect(await whoIs(accessToken)).toMatchObject({ suspended: true });
    expect(await refusal(whoIs(accessToken, { suspended: false }))).toMatchObject({
      status: 403,
      errcode: 'M_USER_SUSPENDED',
    });
    await accounts.setFlags(userId, { suspended: false, shadowBanned: true });
    expect(await whoIs(accessToken)).toMatchObject({ shadowBanned: true });
    expect((await refusal(whoIs(accessToken, { admin: true }))).errcode).toBe('M_FORBIDDEN');
    const guest = await accounts.register({ isGuest: true, origin: {} });
    const guestSession = await sessions.open({ userId: guest });
    expect((await refusal(whoIs(guestSession.accessToken))).errcode).toBe('M_GUEST_ACCESS_FORBIDDEN');
    expect(await whoIs(guestSession.accessToken, { guests: true })).toMatchObject({ isGuest: true });
  });

  it('asks for a token where one is needed', async () => {
    const authenticator = users.get(RequestAuthenticator);
    const request = users.request('GET', '/x');
    expect(await refusal(authenticator.authenticate(request, { auth: 'required' }))).toMatchObject({
      status: 401,
      errcode: 'M_MISSING_TOKEN',
    });
    expect(await authenticator.authenticate(request, { auth: 'optional' })).toBeUndefined();
    expect(await authenticator.authenticate(request, { auth: 'none' })).toBeUndefined();
    expect(
      (
        await refusal(
          authenticator.authenticate(users.request('GET', '/x', undefined, { token: 'x'.repeat(10_000) }), {
            auth: 'optional',
          }),
        )
      ).errcode,
    ).toBe('M_UNKNOWN_TOKEN');
  });

  it('opens none for an account that was closed since the login was checked', async () => {
    const userId = await newUser();
    await Promise.allSettled([
      users.get(DeactivationService).deactivate(userId, false, true, {}),
      sessions.open({ userId, deviceId: 'EARLY' }),
    ]);
    expect((await refusal(sessions.open({ userId, deviceId: 'LATE' }))).errcode).toBe('M_USER_DEACTIVATED');
    await users.get(DeactivationService).reactivate(userId, {});
    expect(await test.database.query('SELECT device_id FROM devices WHERE user_id = ?', [userId])).toEqual([]);
    expect(await test.database.query('SELECT id FROM access_tokens WHERE user_id = ?', [userId])).toEqual([]);
  });

  it.each([
    { first: 'account_flags', second: 'session_open_puppet' },
    { first: 'session_open_puppet', second: 'account_flags' },
  ])('lets nobody go on as others who is no administrator anymore: $first, $second', async ({ first, second }) => {
    const [root, puppet] = [await newUser(), await newUser()];
    await users.get(AccountService).setFlags(root, { isAdmin: true });
    const writes: Record<string, () => Promise<unknown>> = {
      account_flags: () => users.get(AccountService).setFlags(root, { isAdmin: false }),
      session_open_puppet: () => sessions.openPuppet(root, puppet, undefined),
    };
    const reached = holdUp(test.database, first, second);
    const held = writes[first]!();
    await reached;
    await Promise.allSettled([held, writes[second]!()]);
    expect(await test.database.query('SELECT id FROM access_tokens WHERE user_id = ?', [root])).toEqual([]);
  });

  it.each([{ isAdmin: false }, { locked: true }])(
    'ends those in which an administrator acts as others with %j',
    async (flags) => {
      const [root, puppet] = [await newUser(), await newUser()];
      const accounts = users.get(AccountService);
      await accounts.setFlags(root, { isAdmin: true });
      const token = await sessions.openPuppet(root, puppet, undefined);
      expect(await whoIs(token)).toMatchObject({ userId: puppet, puppetedBy: root });
      await accounts.setFlags(root, { isAdmin: true, locked: false });
      expect(await whoIs(token)).toMatchObject({ userId: puppet });
      await accounts.setFlags(root, flags);
      expect((await refusal(whoIs(token))).errcode).toBe('M_UNKNOWN_TOKEN');
    },
  );
});
