import { type Database, databaseMigrations, migrate, openDatabase } from '@rookery/database';
import { SystemClock } from '@rookery/platform';
import { makeTestDatabasePlace, PostgresLine, type TestDatabasePlace } from '@rookery/testing';
import { appservicesMigrations } from '../migrations/index.js';
import { TransactionStore } from './transaction-store.js';
import { sendersOf } from './transactions.fixture.js';

describe('transactions of application services whose commit PostgreSQL does not answer', () => {
  let place: TestDatabasePlace;
  let line: PostgresLine;
  let db: Database;

  beforeAll(async () => {
    place = await makeTestDatabasePlace('postgres');
    line = await PostgresLine.open();
    const { options } = place;
    if (options.name === 'sqlite3') throw new Error('not PostgreSQL');
    db = await openDatabase(
      { ...options, args: { ...options.args, host: '127.0.0.1', port: line.port, cp_max: 3 } },
      new SystemClock(),
    );
    await migrate(db, [...databaseMigrations, ...appservicesMigrations]);
  });
  afterAll(async () => {
    await db.close();
    line.close();
    await place.remove();
  });

  it.each(['cut before', 'cut behind'] as const)('hold each event once (%s)', async (fault) => {
    const asId = fault;
    const store = new TransactionStore(db);
    await store.open();
    for (const eventIds of [['$1', '$2'], ['$3'], ['$4', '$5']]) {
      line.breakAt('COMMIT', fault);
      await store.add([{ asId, eventIds }], () => Promise.resolve());
    }
    const held: string[] = [];
    for (let next = await store.next(asId); next; next = await store.next(asId)) {
      held.push(...next.eventIds);
      await sendersOf(db, store).here.taken(asId, next.txnId, false);
    }
    expect(held).toEqual(['$1', '$2', '$3', '$4', '$5']);
  });
});
