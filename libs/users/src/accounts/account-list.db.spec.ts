import { databaseMigrations } from '@rookery/database';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { type AccountPage, listAccounts } from './account-list.query.js';

eachDatabase('lists of accounts', (open) => {
  let test: TestDatabase;
  const page: AccountPage = { offset: 0, limit: 10, orderBy: 'last_seen_ts', descending: false };

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const names = ['@a:x', '@b:x', '@c:x', '@d:x'];
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'users',
        ['name', 'creation_ts'],
        names.map((name) => [name, 1]),
      );
      await tx.insertMany(
        'user_ips',
        ['user_id', 'device_id', 'ip', 'user_agent', 'last_seen'],
        [
          ['@a:x', 'ONE', '192.0.2.1', '', 20],
          ['@a:x', 'TWO', '192.0.2.1', '', 40],
          ['@b:x', 'ONE', '192.0.2.1', '', 10],
        ],
      );
      await tx.insertMany(
        'devices',
        ['user_id', 'device_id', 'last_seen'],
        [
          ['@a:x', 'ONE', 90],
          ['@c:x', 'ONE', 30],
          ['@c:x', 'TWO', null],
        ],
      );
    });
  });
  afterAll(() => test.close());

  it('are ordered by when users were seen last, who never was at the end, each address and device looked at once', async () => {
    let seen: unknown[] = [];
    const scans = await scansOf(test.database, async (db) => {
      const { accounts } = await listAccounts(db, {}, page);
      seen = accounts.map(({ userId, lastSeenMs }) => [userId, lastSeenMs]);
    });
    expect(seen).toEqual([
      ['@b:x', 10],
      ['@c:x', 30],
      ['@a:x', 40],
      ['@d:x', undefined],
    ]);
    if (test.database.dialect.name !== 'sqlite') return;
    const gone = (table: string): number => scans.filter((scan) => scan.startsWith(`SCAN ${table} `)).length;
    expect([gone('user_ips'), gone('devices')]).toEqual([1, 1]);
  });

  it('look at no address and no device but those of the page where another order is asked for', async () => {
    const scans = await scansOf(test.database, (db) => listAccounts(db, {}, { ...page, orderBy: 'name' }));
    expect(scans.filter((scan) => !scan.startsWith('SCAN u'))).toEqual([]);
    expect(scans.filter((scan) => scan.startsWith('SCAN user_ips'))).toEqual([]);
  });
});
