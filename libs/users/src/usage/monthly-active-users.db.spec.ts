import { databaseMigrations } from '@rookery/database';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService, type Registration } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { ClientActivity } from '../sessions/client-activity.js';
import { ThreepidService } from '../threepids/threepid.service.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { MonthlyActiveUsers } from './monthly-active-users.service.js';
import { noteActive } from './monthly-users.query.js';
import { ParticipationGate } from './participation-gate.js';

const dayMs = 86_400_000;

/** A clock whose day can be put forward without the timers of a month firing one by one. */
class CalendarClock extends FakeClock {
  #skippedMs = 0;

  skip(byMs: number): void {
    this.#skippedMs += byMs;
  }
  override nowMs(): number {
    return super.nowMs() + this.#skippedMs;
  }
}

const id = (name: string): string => `@${name}:example.org`;

eachDatabase('monthly active users', (open) => {
  const clock = new CalendarClock();
  let test: TestDatabase;
  let users: UsersFixture;
  const start = async (settings: Record<string, unknown>): Promise<void> => {
    users = await buildUsers({ database: test.database, clock, settings });
  };
  const limitedTo = (max: number, more: Record<string, unknown> = {}): Promise<void> =>
    start({ limit_usage_by_mau: true, max_mau_value: max, ...more });
  const register = async (localpart: string, more: Partial<Registration> = {}): Promise<string> =>
    users.get(AccountService).register({ localpart, origin: {}, ...more });
  const counted = async (): Promise<string[]> =>
    (await test.database.query<{ user_id: string }>('SELECT user_id FROM monthly_active_users ORDER BY user_id')).map(
      (row) => row.user_id,
    );
  const active = (): MonthlyActiveUsers => users.get(MonthlyActiveUsers);

  beforeEach(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
  });
  afterEach(async () => {
    await users.close();
    await test.close();
  });

  it('counts nobody unless it is asked to', async () => {
    await start({});
    await register('alice');
    await active().seen([id('alice')]);
    expect(await active().admit(id('alice'))).toBe(true);
    expect(await counted()).toEqual([]);
  });

  it('gives the last place to one of those who come at once', async () => {
    await limitedTo(3);
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    for (const name of names) await register(name);
    const admitted = await Promise.all(names.map((name) => active().admit(id(name))));
    expect(admitted.filter(Boolean)).toHaveLength(3);
    expect(await counted()).toHaveLength(3);
    // Who is first, the database decides.
    expect(await active().admit(id(names[admitted.indexOf(true)]!))).toBe(true);
    await active().seen(names.map(id));
    expect(await counted()).toHaveLength(3);
  });

  it('counts without a limit where only the numbers are wanted', async () => {
    await start({ mau_stats_only: true, max_mau_value: 1 });
    for (const name of ['a', 'b']) await register(name);
    await active().seen([id('a'), id('b'), id('ghost')]);
    expect(await counted()).toEqual([id('a'), id('b')]);
    expect(await active().admit(id('c'))).toBe(true);
    await expect(users.get(ParticipationGate).assertRoomFor({})).resolves.toBeUndefined();
    expect(await active().activity()).toEqual({
      current: 2,
      limit: undefined,
      reserved: 0,
      byService: [{ service: 'native', total: 2 }],
    });
  });

  it('leaves out guests, support, and accounts in their trial days', async () => {
    await limitedTo(1, { mau_trial_days: 2, mau_appservice_trial_days: { bridge: 5 } });
    await register('guest', { isGuest: true });
    await register('helper', { userType: 'support' });
    await register('alice');
    await register('bridged', { appserviceId: 'bridge' });
    const all = ['guest', 'helper', 'alice', 'bridged'].map(id);
    await active().seen(all);
    expect(await counted()).toEqual([]);
    clock.skip(2 * dayMs);
    await active().seen(all);
    expect(await counted()).toEqual([id('alice')]);
    expect(await active().admit(id('bridged'))).toBe(true);
    clock.skip(3 * dayMs);
    expect(await active().admit(id('bridged'))).toBe(false);
  });

  it('frees the place of who was away for a month, or is gone', async () => {
    await limitedTo(1);
    await register('alice');
    await register('bob');
    expect(await active().admit(id('alice'))).toBe(true);
    expect(await active().admit(id('bob'))).toBe(false);
    clock.skip(29 * dayMs);
    await active().seen([id('alice')]);
    clock.skip(29 * dayMs);
    await active().tidy();
    expect(await active().admit(id('bob'))).toBe(false);
    clock.skip(dayMs);
    await active().tidy();
    expect(await active().admit(id('bob'))).toBe(true);
    expect(await active().admit(id('alice'))).toBe(false);
    await users.get(DeactivationService).deactivate(id('bob'), false, true, {});
    expect(await active().admit(id('alice'))).toBe(true);
  });

  it('does not count again whose account was closed since they were seen', async () => {
    await start({ mau_stats_only: true });
    for (const name of ['alice', 'bob']) await register(name);
    const activity = users.get(ClientActivity);
    for (const name of ['alice', 'bob']) activity.seen(id(name), undefined, '192.0.2.1', 'test', clock.nowMs());
    await users.get(DeactivationService).deactivate(id('bob'), false, true, {});
    await activity.flush();
    expect(await counted()).toEqual([id('alice')]);
    // Nor who is closed while that is written.
    await test.database.write((tx) => noteActive(tx, ['alice', 'bob', 'ghost'].map(id), clock.nowMs() + 5));
    expect(await counted()).toEqual([id('alice')]);
  });

  it('keeps a place for reserved addresses, and drops those seen longest ago when the limit is lowered', async () => {
    const settings = { mau_limit_reserved_threepids: [{ medium: 'email', address: 'Boss@Example.org' }] };
    await limitedTo(3, settings);
    for (const name of ['boss', 'old', 'new']) await register(name);
    for (const name of ['old', 'new']) {
      clock.skip(1000);
      await active().admit(id(name));
    }
    await users.get(ThreepidService).add(id('boss'), 'email', 'boss@example.org', 1, {});
    expect(await counted()).toEqual([id('boss'), id('new'), id('old')]);
    await users.close();
    await limitedTo(2, settings);
    await active().tidy();
    expect(await counted()).toEqual([id('boss'), id('new')]);
    clock.skip(40 * dayMs);
    await active().tidy();
    expect(await counted()).toEqual([id('boss')]);
    expect((await active().activity()).reserved).toBe(1);
    const gate = users.get(ParticipationGate);
    await register('last');
    await active().admit(id('last'));
    await expect(gate.assertRoomFor({})).rejects.toMatchObject({
      status: 403,
      errcode: 'M_RESOURCE_LIMIT_EXCEEDED',
      extra: { limit_type: 'monthly_active_user' },
    });
    await expect(gate.assertRoomForSomebody()).resolves.toBeUndefined();
    const threepids = [{ medium: 'email', address: 'boss@example.org' }];
    await expect(gate.assertRoomFor({ threepids })).resolves.toBeUndefined();
  });

  it('does not count whom an administrator or an application service acts as', async () => {
    await limitedTo(1, { server_notices: { system_mxid_localpart: 'notices' } });
    for (const name of ['admin', 'alice', 'bob']) await register(name);
    const gate = users.get(ParticipationGate);
    await gate.assertActive({ userId: id('alice'), puppetedBy: id('admin') });
    expect(await counted()).toEqual([id('admin')]);
    await gate.assertActive({ userId: id('alice'), appserviceId: 'bridge' });
    await gate.assertActive({ userId: id('notices') });
    await expect(gate.assertActive({ userId: id('bob') })).rejects.toMatchObject({ status: 403 });
    await users.close();
    // Where the activity of application services is noted, their users need places as all others do.
    await limitedTo(1, { track_appservice_user_ips: true });
    await expect(
      users.get(ParticipationGate).assertActive({ userId: id('bob'), appserviceId: 'bridge' }),
    ).rejects.toMatchObject({ status: 403 });
  });
});
