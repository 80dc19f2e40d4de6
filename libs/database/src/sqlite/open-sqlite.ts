import { chmodSync, closeSync, existsSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import Sqlite from 'better-sqlite3';
import type { Clock, Logger } from '@rookery/platform';
import type { Database } from '../database.js';
import { DatabaseError, errorCode, errorText } from '../errors.js';
import type { SqliteOptions } from '../options.js';
import type { StatementObserver, TransactionReport } from '../transaction.js';
import { isOlder } from '../version.js';
import { Checkpoints } from './checkpoints.js';
import { SqliteConnection, TimedSqliteConnection } from './sqlite-connection.js';
import { SqliteDatabase } from './sqlite-database.js';

const oldest = '3.27';
const busyAtStartMs = 5000;
// SQLite waits by blocking the whole process; the longer waiting is done by SqliteDatabase.
const busyTimeoutMs = 20;
// The system keeps the file's pages in memory as well: what is kept twice is kept for nothing.
const writerCacheKiB = 2_000;
const readerCacheKiB = 500;
/** What the write-ahead log may occupy while it is empty: what it takes between two checkpoints, so that it need not grow anew. */
const maxIdleLogBytes = 50 * 1_048_576;
// Pages that change again and again reach the file once per checkpoint: fewer checkpoints, fewer writes to the disk. With 4,000
// joins were a tenth slower.
const checkpointPages = 12_000;
const ownerOnly = 0o600;
const owner = 0o700;
const everybody = 0o007;

/** @throws DatabaseError when the file cannot be used */
export async function openSqlite(
  options: SqliteOptions,
  clock: Clock,
  logger: Logger,
  onTransaction?: (report: TransactionReport) => void,
  onStatement?: StatementObserver,
): Promise<Database> {
  const { path } = options;
  if (path === ':memory:' || path === '') {
    throw new DatabaseError(
      'SQLite needs a file: reads and writes use a connection each',
      'Set database.args.database to a path.',
    );
  }
  const isNew = !existsSync(path);
  const opened: Sqlite.Database[] = [];
  let checkpoints: Checkpoints | undefined;
  const disconnect = async (): Promise<void> => {
    // Whoever closes the file last empties the log into it, which belongs to the one that writes.
    await checkpoints?.close();
    for (const handle of opened.splice(0).reverse()) handle.close();
  };
  try {
    if (!isNew) checkContent(path, logger);
    keepPrivate(path);
    // The writer comes first: it makes the file and its write-ahead log, which the reader needs.
    const writer = connect(path, false, opened);
    checkSqliteVersion(
      new SqliteConnection(writer).get<{ version: string }>('SELECT sqlite_version() AS version')?.version ?? '0',
    );
    const reader = connect(path, true, opened);
    const connection = (handle: Sqlite.Database): SqliteConnection =>
      onStatement ? new TimedSqliteConnection(handle, clock, onStatement) : new SqliteConnection(handle);
    const writing = connection(writer);
    checkpoints = new Checkpoints(writing, { pages: checkpointPages, path, clock, logger });
    return new SqliteDatabase({
      writer: writing,
      reader: connection(reader),
      checkpoints,
      clock,
      logger,
      onTransaction,
      disconnect,
    });
  } catch (error) {
    await disconnect();
    throw error instanceof DatabaseError ? error : explain(error, path);
  }
}

/** @throws DatabaseError */
export function checkSqliteVersion(version: string): void {
  if (isOlder(version, oldest))
    throw new DatabaseError(`SQLite ${version} is too old`, `Rookery needs SQLite ${oldest} or newer.`);
}

function connect(path: string, readonly: boolean, opened: Sqlite.Database[]): Sqlite.Database {
  const handle = new Sqlite(path, { readonly, fileMustExist: readonly, timeout: busyAtStartMs });
  opened.push(handle);
  handle.pragma(`cache_size = -${readonly ? readerCacheKiB : writerCacheKiB}`);
  handle.pragma('temp_store = MEMORY');
  handle.pragma('foreign_keys = ON');
  if (!readonly) {
    // Only a file that is still empty takes this: what is purged can be given back in small steps.
    handle.pragma('auto_vacuum = INCREMENTAL');
    // What was acknowledged survives a loss of power: the log is flushed with every commit.
    handle.pragma('journal_mode = WAL');
    handle.pragma('synchronous = FULL');
    // No stale copies within pages that are written anyway: what is erased later must have no other trace.
    handle.pragma('secure_delete = FAST');
    handle.pragma(`journal_size_limit = ${maxIdleLogBytes}`);
  }
  // Reads the schema, so that a file which is no database or is damaged shows at once; takes the writer's lock, so that an
  // unwritable one does.
  handle.prepare('SELECT count(*) FROM sqlite_master').get();
  if (!readonly) handle.exec('BEGIN IMMEDIATE; ROLLBACK');
  handle.pragma(`busy_timeout = ${busyTimeoutMs}`);
  return handle;
}

/**
 * A file without a byte is nothing to SQLite, which would delete a log that still holds what the file has lost, even to read.
 * @throws DatabaseError when there is such a log
 */
export function checkContent(path: string, logger: Logger): void {
  const sizeOf = (file: string): number => (existsSync(file) ? statSync(file).size : 0);
  if (!statSync(path).isFile() || sizeOf(path) > 0) return;
  if (sizeOf(`${path}-wal`) > 0) {
    throw new DatabaseError(
      `${path} is empty, but its log ${path}-wal is not`,
      'Put a backup in its place, or move both files away to begin anew.',
    );
  }
  logger.warn('The file of the database is empty: everything begins anew', { path });
}

/**
 * Makes the file where it is missing, for nobody but its owner: it holds passwords, though hashed, and messages. One that
 * everybody may read, as SQLite itself makes it, is closed as well; a group that was let in stays in. What SQLite puts beside
 * the file gets the same rights.
 */
function keepPrivate(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  if (!existsSync(path)) closeSync(openSync(path, 'a', ownerOnly));
  for (const file of [path, `${path}-wal`, `${path}-shm`]) {
    if (!existsSync(file)) continue;
    const found = statSync(file);
    const isOurs = found.isFile() && found.uid === process.getuid?.();
    if (isOurs && (found.mode & everybody) !== 0) chmodSync(file, found.mode & owner);
  }
}

function explain(error: unknown, path: string): DatabaseError {
  const code = errorCode(error) ?? '';
  const options = { cause: error };
  if (code === 'SQLITE_NOTADB' || code.startsWith('SQLITE_CORRUPT')) {
    return new DatabaseError(
      `${path} is damaged or is no SQLite database (${errorText(error)})`,
      'Put a backup in its place, or move the file away to begin anew.',
      options,
    );
  }
  if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) {
    return new DatabaseError(`${path} is in use by another program`, 'Stop the other program first.', options);
  }
  return new DatabaseError(
    `Cannot open the database ${path}: ${errorText(error)}`,
    `The server's user must be able to write to the file and to its folder ${dirname(path)}.`,
    options,
  );
}
