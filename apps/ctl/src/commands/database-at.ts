import {
  type DatabaseOptions,
  type DatabaseReader,
  DatabaseError,
  openReader,
  readSchemaState,
} from '@rookery/database';
import { type Config, SystemClock } from '@rookery/platform';
import { CommandError } from '../command-error.js';

const defaultPort = 5432;

/** Where the settings' database is, for people: a path, or a name at a host. No two databases have the same. */
export function placeOf(options: DatabaseOptions): string {
  if (options.name === 'sqlite3') return `${options.path} (SQLite)`;
  const { dbname, database, user, host = 'localhost', port = defaultPort, options: session } = options.args ?? {};
  const at = Number(port) === defaultPort ? String(host) : `${String(host)}:${String(port)}`;
  const inside = session === undefined ? '' : `, ${String(session)}`;
  return `${String(dbname ?? database ?? user ?? '')} at ${at}${inside} (PostgreSQL)`;
}

/** Calls a function with the settings' database, only to look at; with nothing where there is none yet. @throws CommandError */
export async function readingDatabase<T>(
  config: Config,
  fn: (reader: DatabaseReader['db'] | undefined, options: DatabaseOptions) => Promise<T>,
): Promise<T> {
  // The server is large: it is loaded only when it is needed.
  const { databaseOptions } = await import('@rookery/homeserver');
  return withDatabaseErrors(async () => {
    const options = databaseOptions(config);
    const reader = await openReader(options, new SystemClock());
    try {
      return await fn(reader?.db, options);
    } finally {
      await reader?.close();
    }
  });
}

/** The same with the database of state, where the settings give it one of its own; nothing is called where they do not. */
export async function readingStateDatabase<T>(
  config: Config,
  fn: (reader: DatabaseReader['db'] | undefined, options: DatabaseOptions) => Promise<T>,
): Promise<T | undefined> {
  const { stateDatabaseOptions } = await import('@rookery/homeserver');
  return withDatabaseErrors(async () => {
    const options = stateDatabaseOptions(config);
    if (options === undefined) return undefined;
    const reader = await openReader(options, new SystemClock());
    try {
      return await fn(reader?.db, options);
    } finally {
      await reader?.close();
    }
  });
}

/**
 * For what opens a database to change it, which would make one where there is none.
 * @param isState it holds rows of state alone, which may have come there by hand
 * @throws CommandError when there is none, or a server like this one has never run on it
 */
export async function assertThere(options: DatabaseOptions, isState = false): Promise<void> {
  const reader = await openReader(options, new SystemClock());
  try {
    if (reader === undefined) throw new CommandError(`There is no database ${placeOf(options)}`);
    if (isState) return;
    const { madeBy } = await readSchemaState(reader.db);
    if (madeBy === 'none') throw new CommandError(`The database ${placeOf(options)} holds nothing of a server`);
    if (madeBy === 'another') throw new CommandError(`The database ${placeOf(options)} belongs to another homeserver`);
  } finally {
    await reader?.close();
  }
}

/** What is wrong with a database is said to the operator in a line. */
export async function withDatabaseErrors<T>(fn: () => Promise<T>): Promise<T> {
  try {
    return await fn();
  } catch (error) {
    if (!(error instanceof DatabaseError)) throw error;
    throw new CommandError(error.hint === undefined ? error.message : `${error.message}\n${error.hint}`);
  }
}
