import { readFile, writeFile } from 'node:fs/promises';
import pg from 'pg';
import { type DatabaseOptions, type DialectName, migrate, openDatabase } from '@rookery/database';
import { SystemClock } from '@rookery/platform';
import { makeTestDatabasePlace, type TestDatabasePlace, testPostgresUrl } from './test-database.js';

/** Any number of its own: one thread makes the template, the others wait. */
const templateLock = 7_246_511;

let file: Promise<Buffer> | undefined;
let template: Promise<string | undefined> | undefined;

/**
 * A place of a database in which the tables of a whole homeserver are already, and nothing else. Copied from one that was migrated
 * once, since to make some hundred tables costs more than most tests.
 */
export async function makeMigratedPlace(kind: DialectName): Promise<TestDatabasePlace> {
  if (kind === 'postgres') return makeTestDatabasePlace(kind, await (template ??= postgresTemplate()));
  const place = await makeTestDatabasePlace(kind);
  if (place.options.name === 'sqlite3') await writeFile(place.options.path, await (file ??= sqliteFile()));
  return place;
}

async function sqliteFile(): Promise<Buffer> {
  const place = await makeTestDatabasePlace('sqlite');
  if (place.options.name !== 'sqlite3') throw new Error('A place of SQLite is a file');
  await migrateAll(place.options);
  const bytes = await readFile(place.options.path);
  await place.remove();
  return bytes;
}

/**
 * What follows `CREATE DATABASE name` for a copy: of the database that `ROOKERY_TEST_TEMPLATE` names, which whoever comes first makes.
 * @returns `undefined` where that is not set: nobody would remove it
 */
async function postgresTemplate(): Promise<string | undefined> {
  const name = process.env['ROOKERY_TEST_TEMPLATE'];
  if (name === undefined) return undefined;
  const client = new pg.Client({ connectionString: testPostgresUrl() });
  await client.connect();
  try {
    await client.query('SELECT pg_advisory_lock($1)', [templateLock]);
    const { rowCount } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [name]);
    if (rowCount === 0) {
      const place = await makeTestDatabasePlace('postgres');
      if (place.options.name !== 'postgres') throw new Error('A place of PostgreSQL is a database');
      await migrateAll(place.options);
      // Under this name it is whole: whoever ends before leaves another one.
      await client.query(`ALTER DATABASE ${place.options.args?.['dbname']} RENAME TO ${name}`);
    }
  } finally {
    await client.end();
  }
  return `TEMPLATE ${name}`;
}

async function migrateAll(options: DatabaseOptions): Promise<void> {
  // Loaded late, as the server itself.
  const { migrations } = await import('@rookery/homeserver');
  const database = await openDatabase(options, new SystemClock());
  await migrate(database, migrations);
  await database.close();
}
