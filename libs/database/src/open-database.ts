import type { Clock } from '@rookery/platform';
import type { Database } from './database.js';
import { type DatabaseLog, silentLog, type TransactionReport } from './log.js';
import type { DatabaseOptions } from './options.js';
import { openPostgres } from './postgres/open-postgres.js';
import { openSqlite } from './sqlite/open-sqlite.js';

/** What {@link openDatabase} may be given besides. */
export interface OpenExtras {
  readonly log?: DatabaseLog | undefined;
  /** Told about each finished transaction; must be quick. */
  readonly onTransaction?: ((report: TransactionReport) => void) | undefined;
}

/**
 * Connects to the database and checks that it can be trusted with data: version, collation, readable, writable.
 * @throws DatabaseError with one line for the operator and a hint
 */
export function openDatabase(options: DatabaseOptions, clock: Clock, extras: OpenExtras = {}): Promise<Database> {
  const { log = silentLog, onTransaction } = extras;
  return options.name === 'sqlite3'
    ? openSqlite(options, clock, log, onTransaction)
    : openPostgres(options, clock, log, onTransaction);
}
