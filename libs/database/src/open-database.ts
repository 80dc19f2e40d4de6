import { type Clock, type Logger, SilentLogger } from '@rookery/platform';
import type { Database } from './database.js';
import type { DatabaseOptions } from './options.js';
import { openPostgres } from './postgres/open-postgres.js';
import { openSqlite } from './sqlite/open-sqlite.js';
import type { TransactionReport } from './transaction.js';

/**
 * Connects to the database and checks that it can be trusted with data: version, collation, readable, writable.
 * @param onTransaction told about each finished transaction, for metrics; must be quick
 * @throws DatabaseError with one line for the operator and a hint
 */
export function openDatabase(
  options: DatabaseOptions,
  clock: Clock,
  logger: Logger = new SilentLogger(),
  onTransaction?: (report: TransactionReport) => void,
): Promise<Database> {
  return options.name === 'sqlite3'
    ? openSqlite(options, clock, logger, onTransaction)
    : openPostgres(options, clock, logger, onTransaction);
}
