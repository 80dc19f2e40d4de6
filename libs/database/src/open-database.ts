import { type Clock, type Logger, SilentLogger } from '@rookery/platform';
import type { Database } from './database.js';
import type { DatabaseOptions } from './options.js';
import { openSqlite } from './sqlite/open-sqlite.js';
import type { StatementObserver, TransactionReport } from './transaction.js';

/**
 * Connects to the database and checks that it can be trusted with data: version, collation, readable, writable.
 * @param onTransaction told about each finished transaction, for metrics; must be quick
 * @param onStatement told about each statement, for metrics; must be quick
 * @param processNumber of this process among several of the server ({@link ProcessRegistry}), PostgreSQL only: the connections end
 *   when it loses its right to write, and it gets no new ones
 * @throws DatabaseError with one line for the operator and a hint
 */
export async function openDatabase(
  options: DatabaseOptions,
  clock: Clock,
  logger: Logger = new SilentLogger(),
  onTransaction?: (report: TransactionReport) => void,
  onStatement?: StatementObserver,
  processNumber?: number,
): Promise<Database> {
  if (options.name === 'sqlite3') return openSqlite(options, clock, logger, onTransaction, onStatement);
  // The driver stays in memory once it is loaded.
  const { openPostgres } = await import('./postgres/open-postgres.js');
  return openPostgres(options, clock, logger, onTransaction, onStatement, processNumber);
}
