import { databaseMigrations, type Tx } from '@rookery/database';
import { eachDatabase, eventually, type TestDatabase } from '@rookery/testing';
import { plansOf } from '@rookery/testing/internal';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { noteActive } from '../usage/monthly-users.query.js';
import { recordActivity, type Sighting } from './client-activity.query.js';

const [ann, zoe] = ['@ann:x', '@zoe:x'];
const deviceId = 'PHONE';
const sighting = (userId: string, seenMs: number, more: Partial<Sighting> = {}): Sighting => ({
  ...{ userId, deviceId, ip: '192.0.2.5', userAgent: `agent ${seenMs}`, seenMs },
  ...more,
});

eachDatabase('What processes note of activity', (open, kind) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    await test.database.write(async (tx) => {
      const users = [ann, zoe];
      await tx.insertMany(
        'users',
        ['name', 'creation_ts'],
        users.map((userId) => [userId, 1]),
      );
      await tx.insertMany(
        'devices',
        ['user_id', 'device_id'],
        users.map((userId) => [userId, deviceId]),
      );
    });
  });
  afterAll(() => test.close());

  const note = (...batch: readonly Sighting[]): Promise<void> => test.database.write((tx) => recordActivity(tx, batch));

  it('is what was seen last, in whichever order it comes', async () => {
    const device = (): Promise<unknown> =>
      test.database.get('SELECT last_seen, ip, user_agent FROM devices WHERE user_id = ?', [ann]);
    await note(sighting(ann, 20));
    await note(sighting(ann, 10));
    expect(
      await test.database.query('SELECT last_seen, user_agent FROM user_ips WHERE user_id = ? AND device_id = ?', [
        ann,
        deviceId,
      ]),
    ).toEqual([{ last_seen: 20, user_agent: 'agent 20' }]);
    expect(await device()).toEqual({ last_seen: 20, ip: '192.0.2.5', user_agent: 'agent 20' });
    await note(sighting(ann, 40, { ip: '192.0.2.1' }), sighting(ann, 30, { ip: '192.0.2.9' }));
    expect(await device()).toEqual({ last_seen: 40, ip: '192.0.2.1', user_agent: 'agent 40' });
    const counted = async (nowMs: number): Promise<unknown> => {
      await test.database.write((tx) => noteActive(tx, [ann], nowMs));
      return test.database.get('SELECT timestamp FROM monthly_active_users WHERE user_id = ?', [ann]);
    };
    expect(await counted(20)).toEqual({ timestamp: 20 });
    expect(await counted(10)).toEqual({ timestamp: 20 });
  });

  it('is looked for by user and device together', async () => {
    const users = Array.from({ length: 30 }, (_, n) => `@many${n}:x`);
    await test.database.write((tx) =>
      tx.insertMany(
        'devices',
        ['user_id', 'device_id'],
        users.map((userId, n) => [userId, `D${n}`]),
      ),
    );
    // Each at a device of its own, and at that of the next, which is not theirs.
    const batch = users.flatMap((userId, n) => [
      sighting(userId, 60, { deviceId: `D${n}` }),
      sighting(userId, 60, { deviceId: `D${(n + 1) % users.length}` }),
    ]);
    await note(...batch);
    const seen = await test.database.query<{ user_id: string; device_id: string }>(
      `SELECT user_id, device_id FROM devices WHERE user_id LIKE '@many%' AND last_seen = 60`,
    );
    expect(seen.map((row) => `${row.user_id} ${row.device_id}`).toSorted()).toEqual(
      users.map((userId, n) => `${userId} D${n}`).toSorted(),
    );
    const plans = await test.database.write((tx) => plansOf(tx, (listening) => recordActivity(listening, batch)));
    // Never each user with each device.
    expect(plans.flat().filter((step) => step.includes('LIST SUBQUERY'))).toEqual([]);
    if (kind === 'sqlite')
      expect(plans.flat()).toContainEqual(expect.stringMatching(/^SEARCH d .*\(user_id=\? AND device_id=\?\)/));
  });

  if (kind === 'postgres') {
    it.each<[table: string, write: (tx: Tx) => Promise<void>]>([
      ['user_ips', (tx) => recordActivity(tx, [sighting(zoe, 50), sighting(ann, 50)])],
      ['monthly_active_users', (tx) => noteActive(tx, [zoe, ann], 50)],
    ])('locks rows of %s in one order, whoever came first', async (table, write) => {
      const { database } = test;
      await database.write(write);
      const [held, free] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const holding = database.write(async (tx) => {
        await tx.query(`SELECT 1 AS found FROM ${table} WHERE user_id = ? FOR UPDATE`, [ann]);
        held.resolve();
        await free.promise;
      });
      await held.promise;
      const writing = database.write(write);
      try {
        await eventually(async () => {
          const waiting = await database.query(
            `SELECT 1 AS found FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
          );
          return waiting.length > 0;
        });
        // Whoever waits for the first has none of the others.
        const untouched = await database.write((tx) =>
          tx.query(`SELECT user_id FROM ${table} WHERE user_id = ? FOR UPDATE SKIP LOCKED`, [zoe]),
        );
        expect(untouched).toEqual([{ user_id: zoe }]);
      } finally {
        free.resolve();
        await Promise.all([holding, writing]);
      }
    });
  }
});
