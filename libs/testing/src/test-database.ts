import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import {
  type Database,
  type DatabaseOptions,
  type DialectName,
  type Migration,
  migrate,
  openDatabase,
  type TransactionReport,
} from '@rookery/database';
import { type Clock, type Logger, SystemClock } from '@rookery/platform';
import { temporaryFolder } from './temporary-folder.js';

// The test runner's globals; this package is compiled without its types.
declare const describe: (name: string, define: () => void) => void;
declare const afterAll: (fn: () => Promise<void>) => void;

/** An empty place for one database: a temporary file, or a new database on the tests' PostgreSQL. */
export interface TestDatabasePlace {
  readonly options: DatabaseOptions;
  /** Removes it with everything in it; every connection must be closed. */
  remove(): Promise<void>;
}

/** A database of its own for a test. */
export interface TestDatabase {
  readonly database: Database;
  readonly options: DatabaseOptions;
  /** Where state lies: {@link database} but in a suite that gives it one of its own. */
  readonly state: Database;
  /** Where that is, if it is another one. */
  readonly stateOptions: DatabaseOptions | undefined;
  /** Brings the schema up to these migrations. */
  migrate(migrations: readonly Migration[]): Promise<void>;
  /** A further, independent set of connections to the same data, as after a restart; `close` closes it, too. */
  reopen(clock?: Clock): Promise<Database>;
  /** Closes and removes it. What was left open is closed at the end of the suite. */
  close(): Promise<void>;
}

export interface TestDatabaseExtras {
  readonly logger?: Logger;
  readonly onTransaction?: (report: TransactionReport) => void;
  /** State gets a database of its own, with these tables; the main one loses its own, so that nobody can use them. */
  readonly stateApart?: readonly Migration[] | undefined;
}

/** Opens a fresh database; `clock` is the system's unless told. */
export type OpenTestDatabase = (clock?: Clock, extras?: TestDatabaseExtras) => Promise<TestDatabase>;

/** The administrator's address of the tests' PostgreSQL. @throws when there is none: a suite must not pass by skipping. */
export function testPostgresUrl(): string {
  const url = process.env['ROOKERY_TEST_POSTGRES'];
  if (!url)
    throw new Error('ROOKERY_TEST_POSTGRES is not set: the tests need their PostgreSQL (test/setup/postgres-up.mjs)');
  return url;
}

/** Runs statements one by one as the administrator of the tests' PostgreSQL. */
export async function asPostgresAdmin(...statements: readonly string[]): Promise<void> {
  const client = new pg.Client({ connectionString: testPostgresUrl() });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

/** @param creation what follows `CREATE DATABASE name` on PostgreSQL */
export async function makeTestDatabasePlace(
  kind: DialectName,
  creation = "ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
): Promise<TestDatabasePlace> {
  if (kind === 'sqlite') {
    const folder = await temporaryFolder('rookery-db-');
    return {
      options: { name: 'sqlite3', path: join(folder, 'homeserver.db') },
      remove: () => rm(folder, { recursive: true, force: true }),
    };
  }
  const name = `test_${randomBytes(8).toString('hex')}`;
  await asPostgresAdmin(`CREATE DATABASE ${name} ${creation}`);
  return {
    options: { name: 'postgres', url: testPostgresUrl(), args: { dbname: name, cp_min: 0, cp_max: 8 } },
    remove: () => asPostgresAdmin(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`),
  };
}

/** Opens a fresh, empty database of a kind. */
export async function openTestDatabase(
  kind: DialectName,
  clock: Clock = new SystemClock(),
  extras: TestDatabaseExtras = {},
): Promise<TestDatabase> {
  const place = await makeTestDatabasePlace(kind);
  const database = await openDatabase(place.options, clock, extras.logger, extras.onTransaction);
  const open = [database];
  const { stateApart } = extras;
  const statePlace = stateApart && (await makeTestDatabasePlace(kind));
  const state = statePlace
    ? await openDatabase(statePlace.options, clock, extras.logger, extras.onTransaction)
    : database;
  if (state !== database) open.push(state);
  return {
    ...{ database, state },
    options: place.options,
    stateOptions: statePlace?.options,
    migrate: async (migrations) => {
      await migrate(database, migrations);
      if (stateApart === undefined) return;
      await migrate(state, stateApart);
      await database.write(async (tx) => {
        for (const table of ['state_groups', 'state_group_edges', 'state_groups_state'])
          await tx.run(`DROP TABLE IF EXISTS ${table}`);
      });
    },
    reopen: async (otherClock = clock) => {
      const other = await openDatabase(place.options, otherClock, extras.logger, extras.onTransaction);
      open.push(other);
      return other;
    },
    close: async () => {
      for (const one of open.splice(0)) await one.close();
      await place.remove();
      await statePlace?.remove();
    },
  };
}

/**
 * Defines a suite twice: on SQLite (a temporary file) and on a real PostgreSQL. Each call of `open` gives a database of its
 * own; what a test does not close is closed after the suite.
 * @param stateApart tables of state: then also twice with these in a database of their own
 */
export function eachDatabase(
  name: string,
  define: (open: OpenTestDatabase, kind: DialectName) => void,
  stateApart?: readonly Migration[],
): void {
  const kinds = ['sqlite', 'postgres'] as const;
  for (const kind of kinds) suite(`${name} (${kind})`, kind, define);
  if (stateApart !== undefined)
    for (const kind of kinds) suite(`${name} (${kind}, state apart)`, kind, define, stateApart);
}

function suite(
  name: string,
  kind: DialectName,
  define: (open: OpenTestDatabase, kind: DialectName) => void,
  stateApart?: readonly Migration[],
): void {
  describe(name, () => {
    const opened = new Set<TestDatabase>();
    afterAll(async () => {
      for (const one of opened) await one.close();
    });
    define(async (clock, extras) => {
      const one = await openTestDatabase(kind, clock, { ...extras, stateApart });
      opened.add(one);
      return one;
    }, kind);
  });
}
