import { closeSync, openSync, realpathSync } from 'node:fs';
import Sqlite from 'better-sqlite3';
import { DatabaseError, errorCode, errorText } from '../errors.js';
import type { SqliteOptions } from '../options.js';
import type { DatabaseClaim, Held } from './claim.js';

/** What a server locks, beside the database: that one stays open to backups and to commands. */
const suffix = '.lock';

/** The right to be the only server on a database, which has to exist. @throws DatabaseError */
export const claimSqlite = (options: SqliteOptions): Promise<DatabaseClaim | Held> => lockBeside(options, suffix);

/**
 * Holds a lock of the operating system on a file beside the database, which has to exist. The file stays when the claim ends:
 * to remove it would let two processes lock two files of the same name.
 * @throws DatabaseError
 */
export function lockBeside({ path }: SqliteOptions, suffix: string): Promise<DatabaseClaim | Held> {
  // By whatever links the database is reached.
  const database = realpathSync(path);
  const file = `${database}${suffix}`;
  let handle: Sqlite.Database | undefined;
  try {
    closeSync(openSync(file, 'a', 0o600));
    handle = new Sqlite(file, { timeout: 0 });
    handle.pragma('journal_mode = MEMORY');
    handle.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    handle?.close();
    const code = errorCode(error) ?? '';
    if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) return Promise.resolve({ heldBy: path });
    throw new DatabaseError(
      `Cannot lock the database by ${file}: ${errorText(error)}`,
      "The server's user must be able to write to that file.",
      { cause: error },
    );
  }
  const held = handle;
  return Promise.resolve({
    lost: new Promise<never>(() => {}),
    release: () => {
      held.close();
      return Promise.resolve();
    },
  });
}
