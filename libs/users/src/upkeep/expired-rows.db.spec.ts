import { databaseMigrations } from '@rookery/database';
import { RequestAuthenticator } from '@rookery/http';
import type { MatrixError } from '@rookery/matrix-types';
import { eachDatabase, eventually, FakeClock } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { insertRegistrationToken } from '../store/registration-token.query.js';
import { RegistrationService } from '../registration/registration.service.js';
import { UserHooks } from '../hooks.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { OpenIdService } from '../openid/openid.service.js';
import { ClientActivity } from '../sessions/client-activity.js';
import { LoginTokens } from '../login/login-tokens.js';
import { DeviceService } from '../sessions/device.service.js';
import { SessionService } from '../sessions/session.service.js';
import { buildUsers } from '../users.fixture.js';
import { ExpiredRows } from './expired-rows.js';

const day = 86_400_000;

eachDatabase('what expires', (open) => {
  const leaver = async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const users = await buildUsers({ database: test.database, clock });
    const userId = await users.get(AccountService).register({ localpart: 'leaver', origin: {} });
    return { clock, test, users, userId };
  };

  it('is deleted, and gives back what it held', async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const settings = { registration_requires_token: true, delete_stale_devices_after: '10d', user_ips_max_age: '20d' };
    const users = await buildUsers({ database: test.database, clock, settings });
    const count = async (table: string): Promise<number> =>
      (await test.database.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n;
    const alice = await users.get(AccountService).register({ localpart: 'alice', origin: {} });

    await test.database.write((tx) => insertRegistrationToken(tx, 'held', 1, undefined));
    const body = { username: 'never', password: 'pw', auth: { type: 'm.login.registration_token', token: 'held' } };
    await users
      .get(RegistrationService)
      .register(users.request('POST', '/register', body), body)
      .catch(() => undefined);
    await users.get(LoginTokens).create(alice, 1000);
    await users.get(OpenIdService).create(alice);
    await users.get(SessionService).open({ userId: alice, refreshable: true, deviceId: 'OLD' });
    await users.get(SessionService).open({ userId: alice, deviceId: 'UNSEEN' });
    await users.get(DeviceService).create(alice, 'DEHYDRATED', undefined);
    users.get(ClientActivity).seen(alice, 'OLD', '192.0.2.1', 'agent', clock.nowMs());
    await users.get(ClientActivity).flush();
    expect(await test.database.get('SELECT pending FROM registration_tokens')).toEqual({ pending: 1 });
    // The rows age, rather than the clock: its timers would fire thousands of times.
    const purgeAfter = async (ms: number): Promise<void> => {
      await users.get(ExpiredRows).purge(clock.nowMs() + ms);
      await users.get(ExpiredRows).deleteStaleDevices(clock.nowMs() + ms);
    };

    await purgeAfter(0);
    expect(
      await Promise.all(
        ['ui_auth_sessions', 'login_tokens', 'open_id_tokens', 'user_ips', 'access_tokens', 'devices'].map(count),
      ),
    ).toEqual([1, 1, 1, 1, 2, 3]);
    await purgeAfter(3 * day);
    expect(
      await Promise.all(
        [
          'ui_auth_sessions',
          'ui_auth_sessions_credentials',
          'login_tokens',
          'open_id_tokens',
          'user_ips',
          'access_tokens',
          'devices',
        ].map(count),
      ),
    ).toEqual([0, 0, 0, 0, 1, 2, 3]);
    expect(await test.database.get('SELECT pending, completed FROM registration_tokens')).toEqual({
      pending: 0,
      completed: 0,
    });
    await purgeAfter(11 * day);
    // Nobody logs in with a dehydrated one: it waits to be found.
    expect(await test.database.query('SELECT device_id FROM devices')).toEqual([{ device_id: 'DEHYDRATED' }]);
    expect(await Promise.all(['access_tokens', 'refresh_tokens'].map(count))).toEqual([0, 0]);
    await purgeAfter(21 * day);
    expect(await count('user_ips')).toBe(0);
    await users.close();
  });

  it('leaves a device that is there what tells its client to log in softly', async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const users = await buildUsers({ database: test.database, clock });
    const [alice, admin] = [
      await users.get(AccountService).register({ localpart: 'alice', origin: {} }),
      await users.get(AccountService).register({ localpart: 'admin', isAdmin: true, origin: {} }),
    ];
    const sessions = users.get(SessionService);
    const { accessToken } = await sessions.open({ userId: alice, refreshable: true, deviceId: 'PHONE' });
    await sessions.openPuppet(admin, alice, clock.nowMs() + 1000);
    const refusal = async (token: string): Promise<unknown> => {
      const request = users.request('GET', '/account/whoami', undefined, { token });
      const refused = users.get(RequestAuthenticator).authenticate(request, { auth: 'required' });
      const { status, errcode, extra } = await refused.then(
        () => ({}) as MatrixError,
        (error: MatrixError) => error,
      );
      return [status, errcode, extra?.['soft_logout']];
    };
    await clock.advance(300_000);
    await users.get(ExpiredRows).purge(clock.nowMs() + 15 * day);
    expect(await refusal(accessToken)).toEqual([401, 'M_UNKNOWN_TOKEN', true]);
    expect(await test.database.query('SELECT user_id, device_id FROM access_tokens')).toEqual([
      { user_id: alice, device_id: 'PHONE' },
    ]);
    await sessions.closeDevices(alice, ['PHONE']);
    expect(await refusal(accessToken)).toEqual([401, 'M_UNKNOWN_TOKEN', false]);
    await users.close();
  });

  it('goes on with a deactivation that was interrupted', async () => {
    const { users, userId } = await leaver();
    const left: boolean[] = [];
    let broken = true;
    users.get(UserHooks).deactivated.subscribe({
      afterCommit: async ({ erase }) => {
        if (broken) throw new Error('crash');
        left.push(erase);
      },
    });
    await users.get(DeactivationService).deactivate(userId, true, false, {});
    expect(left).toEqual([]);
    broken = false;
    await users.get(DeactivationService).resume();
    await users.get(DeactivationService).resume();
    broken = true;
    await users.get(DeactivationService).deactivate(userId, false, false, {});
    await users.get(DeactivationService).reactivate(userId, {});
    broken = false;
    // Who is back keeps the rooms.
    await users.get(DeactivationService).resume();
    expect(left).toEqual([true]);
    await users.close();
  });

  it('takes up by itself what a deactivation has left undone, after pauses that grow', async () => {
    const { clock, test, users, userId } = await leaver();
    const tries: number[] = [];
    users.get(UserHooks).deactivated.subscribe({
      afterCommit: async () => {
        if (tries.push(clock.monotonicMs()) < 3) throw new Error('the database is away');
      },
    });
    const startedMs = clock.monotonicMs();
    const pending = () => test.database.query('SELECT user_id FROM users_pending_deactivation');
    await users.get(DeactivationService).deactivate(userId, true, false, {});
    for (const [pauseMs, count] of [
      [9_999, 1],
      [1, 2],
      [19_999, 2],
      [1, 3],
    ] as const) {
      expect(await pending()).toEqual([{ user_id: userId }]);
      await clock.advance(pauseMs);
      await eventually(() => tries.length === count);
    }
    await eventually(async () => (await pending()).length === 0);
    expect(tries.map((ms) => ms - startedMs)).toEqual([0, 10_000, 30_000]);
    await clock.advance(3_600_000);
    expect(tries).toHaveLength(3);
    await users.close();
  });

  it('goes on with no deactivation once the account is open again, nor takes another one for complete', async () => {
    const { clock, test, users, userId } = await leaver();
    const following: { readonly reopened: AbortSignal | undefined; end(): void }[] = [];
    users.get(UserHooks).deactivated.subscribe({
      afterCommit: ({ reopened }) => new Promise((end) => void following.push({ reopened, end })),
    });
    const pending = async (): Promise<number> =>
      (await test.database.query('SELECT user_id FROM users_pending_deactivation')).length;
    const deactivations = users.get(DeactivationService);
    const close = async (): Promise<void> => {
      let isClosed = false;
      const closing = deactivations.deactivate(userId, false, false, {}).then(() => (isClosed = true));
      await eventually(async () => isClosed || (await clock.advance(1_000), false));
      await closing;
    };
    await close();
    expect(following).toHaveLength(1);
    await deactivations.reactivate(userId, {});
    expect(following[0]!.reopened?.aborted).toBe(true);
    await close();
    // One after the other.
    expect(following).toHaveLength(1);
    following[0]!.end();
    await eventually(() => following.length === 2);
    expect([following[1]!.reopened?.aborted, await pending()]).toEqual([false, 1]);
    await close();
    following[1]!.end();
    await eventually(() => following.length === 3);
    expect(await pending()).toBe(1);
    following[2]!.end();
    await eventually(async () => (await pending()) === 0);
    await users.close();
  });

  it('forgets who wanted that, though the deactivation was interrupted before', async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const users = await buildUsers({ database: test.database, clock });
    const accounts = users.get(AccountService);
    const userId = await accounts.register({ localpart: 'leaver', displayName: 'Lea', origin: {} });
    const admin = await accounts.register({ localpart: 'admin', isAdmin: true, origin: {} });
    await users.get(SessionService).openPuppet(admin, userId, undefined);
    let broken = true;
    users.get(UserHooks).profileChanged.subscribe({
      prepare: () => (broken ? Promise.reject(new Error('crash')) : Promise.resolve()),
    });
    await users.get(DeactivationService).deactivate(userId, true, false, {});
    const names = 'SELECT displayname FROM profiles WHERE user_id = ? AND displayname IS NOT NULL';
    expect(await test.database.query(names, [userId])).toHaveLength(1);
    // An administrator who acts as the user must not wake up with the account.
    expect(await test.database.query('SELECT id FROM access_tokens')).toEqual([]);
    broken = false;
    await users.get(DeactivationService).resume();
    expect(await test.database.query(names, [userId])).toEqual([]);
    await users.close();
  });
});
