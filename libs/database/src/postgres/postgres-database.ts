import { AsyncLocalStorage } from 'node:async_hooks';
// Real time, not the clock's: what is waited for happens in another process.
import { setTimeout as pause } from 'node:timers/promises';
import type { Pool, PoolClient } from 'pg';
import { type Clock, type Logger, Semaphore } from '@rookery/platform';
import { Database, type SqlValue, type Tx, type WriteOptions } from '../database.js';
import { postgresDialect } from '../dialect.js';
import { DatabaseError, errorText, isTransient, noted, passing } from '../errors.js';
import { type Ending, type StatementObserver, Transaction, type TransactionReport } from '../transaction.js';
import { ColumnTypes } from './column-types.js';
import { isBrokenConnection, isConflict, isStalePlan } from './postgres-errors.js';
import { PostgresStatements, runStatement, type TimedQuery } from './postgres-statements.js';
import { StatementNames } from './statement-names.js';

const maxAttempts = 5;
const maxWaitingWrites = 10_000;
const reconnectDelayMs = 100;
const conflictDelayMs = 10;
// A little more than the server's own limit for a statement.
const readTimeoutMs = 70_000;
const begin = 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE';

const maxOutcomePauseMs = 5_000;
const tellAfterAttempts = 6;
/** The end of a transaction, answered or given up: the server's own limit does not help when the connection is cut off. */
const ending = (text: string): TimedQuery => ({ text, query_timeout: readTimeoutMs });

/** Carries an error that must not be answered by another attempt: the commit may have happened. */
class UncertainCommit extends Error {}

export interface PostgresParts {
  /** Its connections are read-only outside of a transaction that says otherwise. */
  readonly pool: Pool;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onTransaction?: ((report: TransactionReport) => void) | undefined;
  readonly onStatement?: StatementObserver | undefined;
  readonly disconnect: () => Promise<void>;
}

/** PostgreSQL through the driver's pool. */
export class PostgresDatabase extends Database {
  readonly dialect = postgresDialect;
  readonly #parts: PostgresParts;
  readonly #names = new StatementNames();
  readonly #types = new ColumnTypes();
  readonly #open = new AsyncLocalStorage<Transaction>();
  readonly #permits: Semaphore;
  readonly #running = new Set<Promise<unknown>>();
  #closed = false;

  constructor(parts: PostgresParts) {
    super();
    this.#parts = parts;
    // Some connections are left to reads: transactions that held all of them while each waits for a read would wait for ever.
    this.#permits = new Semaphore(Math.max(1, parts.pool.options.max - Math.ceil(parts.pool.options.max / 4)), {
      maxWaiting: maxWaitingWrites,
      refuse: () => passing(new DatabaseError('Too many writes are waiting for the database')),
    });
  }

  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    try {
      return await this.#read<Row>(sql, params);
    } catch (error) {
      // Reading twice does no harm.
      if (isBrokenConnection(error)) await pause(reconnectDelayMs);
      else if (isStalePlan(error)) this.#names.forget();
      else throw noted(error);
    }
    try {
      return await this.#read<Row>(sql, params);
    } catch (error) {
      throw noted(error);
    }
  }

  async get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return (await this.query<Row>(sql, params))[0];
  }

  async write<T>(fn: (tx: Tx) => Promise<T>, options: WriteOptions = {}): Promise<T> {
    if (this.#closed) throw passing(new DatabaseError('The database is closed'));
    const outer = this.#open.getStore();
    if (outer && !outer.ended) throw new Error('write() inside write(): pass the transaction on instead');
    const work = this.#withRetries(fn, options);
    this.#running.add(work);
    try {
      return await work;
    } catch (error) {
      throw noted(error);
    } finally {
      this.#running.delete(work);
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.allSettled(this.#running);
    await this.#parts.disconnect();
  }

  async #read<Row>(sql: string, params: readonly SqlValue[] | undefined): Promise<Row[]> {
    const { pool, clock, onStatement } = this.#parts;
    const startedAtMs = clock.monotonicMs();
    const { rows } = await runStatement<Row>(pool, this.#names, sql, params, readTimeoutMs);
    onStatement?.(sql, clock.monotonicMs() - startedAtMs, true);
    return rows;
  }

  async #withRetries<T>(fn: (tx: Tx) => Promise<T>, options: WriteOptions): Promise<T> {
    const { logger } = this.#parts;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#attempt(fn, options);
      } catch (error) {
        if (error instanceof UncertainCommit) throw error.cause;
        const broken = isBrokenConnection(error);
        if (attempt >= maxAttempts || !(broken || isConflict(error) || isStalePlan(error))) throw error;
        logger.warn('A transaction is tried again', {
          transaction: options.name ?? 'unnamed',
          attempt,
          error: errorText(error),
        });
        if (isStalePlan(error)) this.#names.forget();
        // Somebody who tries again at once may take the other's lock before the other has woken, and block it once more.
        await pause((broken ? reconnectDelayMs : conflictDelayMs) * 2 ** attempt);
      }
    }
  }

  async #attempt<T>(fn: (tx: Tx) => Promise<T>, options: WriteOptions): Promise<T> {
    const { pool, clock, logger, onTransaction, onStatement } = this.#parts;
    const calledAtMs = clock.monotonicMs();
    const release = await this.#permits.acquire();
    const client = await pool.connect().catch((error: unknown) => {
      release();
      throw error;
    });
    const startedAtMs = clock.monotonicMs();
    const statements = new PostgresStatements(client, this.#names, this.#types, opening(options), clock, onStatement);
    const transaction = new Transaction(statements);
    let unusable: Error | undefined;
    let ending: Ending = 'rolled back';
    try {
      const value = await this.#open.run(transaction, () => transaction.execute(fn, logger, options));
      try {
        await this.#commit(statements);
      } catch (error) {
        if (!(error instanceof UncertainCommit)) throw error;
        letGo(client, (unusable = error));
        const happened = await this.#hasHappened(client, options);
        if (happened !== true) throw happened === false ? error.cause : error;
      }
      ending = 'committed';
      return value;
    } catch (error) {
      if (error instanceof UncertainCommit) ending = 'unknown';
      unusable ??= await this.#rollBack(client, statements, error);
      // What the function threw may only be the consequence of the statement that failed.
      const cause = transaction.failure?.error;
      throw cause !== undefined && (isConflict(cause) || isBrokenConnection(cause) || isStalePlan(cause))
        ? cause
        : error;
    } finally {
      if (!(unusable instanceof UncertainCommit)) letGo(client, unusable);
      release();
      transaction.settle(ending, logger);
      try {
        onTransaction?.({
          name: options.name ?? 'unnamed',
          waitMs: startedAtMs - calledAtMs,
          durationMs: clock.monotonicMs() - startedAtMs,
          committed: ending === 'committed',
        });
      } catch (error) {
        logger.error('The observer of transactions threw', { err: error });
      }
    }
  }

  async #commit(statements: PostgresStatements): Promise<void> {
    let command: string | undefined;
    try {
      command = await statements.commit(readTimeoutMs);
    } catch (error) {
      throw isBrokenConnection(error) ? new UncertainCommit('commit', { cause: error }) : error;
    }
    // After a failed statement PostgreSQL answers by rolling back.
    if (command !== undefined && command !== 'COMMIT') {
      throw new DatabaseError('PostgreSQL rolled the transaction back instead of committing it');
    }
  }

  /**
   * Whether a transaction has happened whose commit was not answered. Asked until there is an answer, however long the server is
   * away: the caller's memory of what is in the database must not differ from it. Where nobody can be asked, it waits a while for
   * the end of whatever the server still does: what appears later is behind the backs of those who read on by position.
   * @returns `undefined` when that cannot be told
   */
  async #hasHappened(client: PoolClient, { happened, name }: WriteOptions): Promise<boolean | undefined> {
    const { logger } = this.#parts;
    const { processID } = client as unknown as { processID: number | null };
    for (let attempt = 0; attempt <= tellAfterAttempts || (happened && !this.#closed); attempt++) {
      await pause(Math.min(reconnectDelayMs * 2 ** attempt, maxOutcomePauseMs));
      try {
        // Whatever the other end still does must not come after the question. After a restart its number may be another's.
        const left = await this.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE pid = ? AND pid <> pg_backend_pid() AND usename = current_user AND datname = current_database()`,
          [processID],
        );
        if (left.length === 0) return await happened?.(this);
      } catch (error) {
        if (!isTransient(error)) {
          logger.error('It cannot be told whether a transaction has happened', { transaction: name, err: error });
          return undefined;
        }
      }
      if (attempt === tellAfterAttempts)
        logger.warn('PostgreSQL has not told yet whether a transaction has happened', { transaction: name });
    }
    return undefined;
  }

  /** Returns the reason why the connection must not go back to the pool, if there is one. */
  async #rollBack(client: PoolClient, statements: PostgresStatements, error: unknown): Promise<Error | undefined> {
    if (!statements.hasSent) return undefined;
    const reason = error instanceof Error ? error : new Error(errorText(error));
    // A transaction that was given up may still have a statement running: only closing its connection ends it.
    if (error instanceof UncertainCommit || error instanceof DatabaseError) return reason;
    if (isBrokenConnection(error) || isStalePlan(error) || statements.hasUnclearNames) return reason;
    try {
      await client.query(ending('ROLLBACK'));
      return undefined;
    } catch {
      return reason;
    }
  }
}

/** Gives a connection back; with a reason it is closed at once, whatever is still on its way. */
function letGo(client: PoolClient, unusable: Error | undefined): void {
  client.release(unusable);
  if (unusable) (client as Closable).connection?.stream?.destroy();
}

/** What the driver's connections have besides what its types say. */
type Closable = PoolClient & { readonly connection?: { readonly stream?: { destroy(): void } } };

function opening({ limitMs }: WriteOptions): readonly string[] {
  return limitMs === undefined ? [begin] : [begin, `SET LOCAL statement_timeout = ${statementLimit(limitMs)}`];
}

function statementLimit(limitMs: number): number {
  return limitMs === Infinity ? 0 : Math.max(1, Math.ceil(limitMs));
}
