import Sqlite from 'better-sqlite3';
import { type Clock, SilentLogger } from '@rookery/platform';
import { existsSync } from 'node:fs';
import type { Db } from './database.js';
import { sqliteDialect } from './dialect.js';
import { DatabaseError, errorText } from './errors.js';
import { openDatabase } from './open-database.js';
import type { DatabaseOptions } from './options.js';
import { checkContent } from './sqlite/open-sqlite.js';
import { SqliteConnection } from './sqlite/sqlite-connection.js';

/** A database that is only looked at. */
export interface DatabaseReader {
  readonly db: Db;
  close(): Promise<void>;
}

/**
 * Opens a database without changing anything in it or beside it, also while a server runs on it.
 * @returns nothing where a file of SQLite does not exist
 * @throws DatabaseError
 */
export async function openReader(options: DatabaseOptions, clock: Clock): Promise<DatabaseReader | undefined> {
  if (options.name !== 'sqlite3') {
    const database = await openDatabase(options, clock);
    return { db: database, close: () => database.close() };
  }
  if (!existsSync(options.path)) return undefined;
  checkContent(options.path, new SilentLogger());
  try {
    const handle = new Sqlite(options.path, { readonly: true, fileMustExist: true, timeout: 5000 });
    const connection = new SqliteConnection(handle);
    connection.get('SELECT count(*) FROM sqlite_master');
    return {
      db: {
        dialect: sqliteDialect,
        query: <Row>(sql: string, params: Parameters<Db['query']>[1]) =>
          new Promise<Row[]>((resolve) => resolve(connection.all<Row>(sql, params))),
        get: <Row>(sql: string, params: Parameters<Db['get']>[1]) =>
          new Promise<Row | undefined>((resolve) => resolve(connection.get<Row>(sql, params))),
      },
      close: () => {
        handle.close();
        return Promise.resolve();
      },
    };
  } catch (error) {
    throw new DatabaseError(
      `Cannot read the database ${options.path}: ${errorText(error)}`,
      'Is that an SQLite database, and may this user read it and its folder?',
      { cause: error },
    );
  }
}
