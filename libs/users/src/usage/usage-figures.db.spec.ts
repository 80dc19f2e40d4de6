import { databaseMigrations } from '@rookery/database';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { forgetDailyVisits, noteDailyVisits, returningUsers, userFigures } from './usage-figures.query.js';

const dayMs = 86_400_000;
const startMs = 1_700_000_000_000;

eachDatabase('figures of use', (open) => {
  let test: TestDatabase;
  let users: UsersFixture;
  beforeEach(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({ database: test.database, clock: new FakeClock() });
  });
  afterEach(async () => {
    await users.close();
    await test.close();
  });

  const register = (localpart: string, appserviceId?: string): Promise<string> =>
    users.get(AccountService).register({ localpart, origin: {}, ...(appserviceId ? { appserviceId } : {}) });
  /** A user was seen; the visit of that day is noted. */
  const visit = (userId: string, agent: string, atMs: number): Promise<void> =>
    test.database.write(async (tx) => {
      await tx.insertMany(
        'user_ips',
        ['user_id', 'device_id', 'ip', 'user_agent', 'last_seen'],
        [[userId, 'D', '127.0.0.1', agent, atMs]],
        'ON CONFLICT (user_id, device_id, ip) DO UPDATE SET user_agent = excluded.user_agent, last_seen = excluded.last_seen',
      );
      await noteDailyVisits(tx, atMs);
    });

  it('count who came back after thirty days, by client and once altogether', async () => {
    const [android, web, both, once, bridge] = await Promise.all([
      register('android'),
      register('web'),
      register('both'),
      register('once'),
      register('bridge', 'irc'),
    ]);
    for (const atMs of [startMs, startMs + 31 * dayMs]) {
      await visit(android, 'Element/1.6 (Android 15)', atMs);
      await visit(web, 'Mozilla/5.0 Gecko/20100101', atMs);
      await visit(bridge, 'Mozilla/5.0', atMs);
    }
    await visit(both, 'Mozilla/5.0', startMs);
    await visit(both, 'Element (iPhone; iOS 19)', startMs + 32 * dayMs);
    await visit(once, 'Mozilla/5.0', startMs + 20 * dayMs);
    await visit(once, 'Mozilla/5.0', startMs + 33 * dayMs);
    const nowMs = startMs + 33 * dayMs;
    expect(await returningUsers(test.database, nowMs)).toEqual({ all: 3, android: 1, electron: 0, ios: 0, web: 1 });
    // What lies more than sixty days back does not count any more, and is forgotten after ninety.
    expect((await returningUsers(test.database, startMs + 62 * dayMs)).all).toBe(0);
    await test.database.write((tx) => forgetDailyVisits(tx, startMs + 91 * dayMs));
    const { earliest } = (await test.database.get<{ earliest: number }>(
      'SELECT MIN(timestamp) AS earliest FROM user_daily_visits',
    ))!;
    expect(earliest).toBeGreaterThan(startMs);
  });

  it('tell bridged accounts from people’s, and today’s from older ones', async () => {
    await register('old');
    await register('ghost', 'irc');
    await test.database.write((tx) => tx.run('UPDATE users SET creation_ts = 1 WHERE appservice_id IS NULL'));
    const { creation_ts: madeMs } = (await test.database.get<{ creation_ts: number }>(
      'SELECT creation_ts FROM users WHERE appservice_id IS NOT NULL',
    ))!;
    const figures = await userFigures(test.database, madeMs + 1);
    expect(figures).toMatchObject({
      total: 2,
      nonbridged: 1,
      madeToday: { native: 0, guest: 0, bridged: 1 },
      activeToday: 0,
      activeThisMonth: 0,
    });
  });
});
