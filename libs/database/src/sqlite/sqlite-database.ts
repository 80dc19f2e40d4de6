import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import type { Clock, Logger } from '@rookery/platform';
import { Database, type SqlValue, type Tx, type WriteOptions } from '../database.js';
import { sqliteDialect } from '../dialect.js';
import { DatabaseError, errorCode, noted, passing } from '../errors.js';
import { type Statements, Transaction, type TransactionReport } from '../transaction.js';
import type { Checkpoints } from './checkpoints.js';
import type { SqliteConnection } from './sqlite-connection.js';

const maxWaitingWrites = 10_000;
// A commit is shared by at most this many writes, and by those that begin within this time.
const maxSharedWrites = 200;
const maxShareMs = 20;
// Ten seconds, besides the short time for which SQLite itself waits.
const maxBusyAttempts = 200;
const busyPauseMs = 50;
// Moving one page takes microseconds; free pages that stay are used again soon.
const maxReclaimedPages = 500;
const keptFreePages = 256;

// Some milliseconds' worth.
const rowsPerTurn = 1_000;

const done = Promise.resolve();

/** One call of `write`, from the queue until its promise is settled. */
interface Job {
  /** Shares no commit, because one that it shared failed. */
  alone: boolean;
  readonly options: WriteOptions;
  readonly queuedAtMs: number;
  /** The caller's asynchronous context, so that log lines carry the right request. */
  readonly context: AsyncResource;
  run(tx: Tx): Promise<unknown>;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** A job that has run and which waits for the commit. */
interface Outcome {
  readonly job: Job;
  readonly transaction: Transaction;
  readonly startedAtMs: number;
  readonly value?: unknown;
  readonly rejection?: { readonly error: unknown };
}

export interface SqliteParts {
  readonly writer: SqliteConnection;
  readonly reader: SqliteConnection;
  readonly checkpoints: Pick<Checkpoints, 'committed'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onTransaction?: ((report: TransactionReport) => void) | undefined;
  /** Closes both connections. */
  readonly disconnect: () => Promise<void>;
}

/**
 * SQLite with one writer. Writes run strictly one after the other, and those that wait share
 * a commit, since the commit's flush to disk is what costs. Reads see committed rows only: while a write is open they go to a
 * second, read-only connection, otherwise to the writer's, which has in memory what it has written.
 */
export class SqliteDatabase extends Database {
  readonly dialect = sqliteDialect;
  readonly #parts: SqliteParts;
  readonly #open = new AsyncLocalStorage<Transaction>();
  readonly #queue: Job[] = [];
  readonly #statements: Statements;
  #pumping: Promise<void> | undefined;
  #closed = false;
  /** Rows that were inserted since others had a turn. */
  #rowsSinceTurn = 0;
  /** Something was erased of which the log or a free page may still hold a copy; after a start nobody knows. */
  #erased = true;

  constructor(parts: SqliteParts) {
    super();
    this.#parts = parts;
    const { writer } = parts;
    this.#statements = {
      dialect: sqliteDialect,
      throwsAtOnce: true,
      query: <Row>(sql: string, params?: readonly SqlValue[]) => Promise.resolve(writer.all<Row>(sql, params)),
      get: <Row>(sql: string, params?: readonly SqlValue[]) => Promise.resolve(writer.get<Row>(sql, params)),
      run: (sql, params) => Promise.resolve(writer.run(sql, params)),
      exec: (sql, params) => {
        writer.run(sql, params);
        return done;
      },
      insertMany: (table, columns, rows, suffix = '') => {
        writer.insert(table, columns, rows, suffix);
        this.#rowsSinceTurn += rows.length;
        if (this.#rowsSinceTurn < rowsPerTurn) return done;
        this.#rowsSinceTurn = 0;
        return turn();
      },
    };
  }

  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    try {
      return this.#forReading(sql).all<Row>(sql, params);
    } catch (error) {
      throw noted(error);
    }
  }

  async get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    try {
      return this.#forReading(sql).get<Row>(sql, params);
    } catch (error) {
      throw noted(error);
    }
  }

  /** Every commit makes the reader forget the pages it has read. A statement that is none for reading is refused there. */
  #forReading(sql: string): SqliteConnection {
    const { writer, reader } = this.#parts;
    return writer.handle.inTransaction || !writer.isReadOnly(sql) ? reader : writer;
  }

  async write<T>(fn: (tx: Tx) => Promise<T>, options: WriteOptions = {}): Promise<T> {
    if (this.#closed) throw passing(new DatabaseError('The database is closed'));
    const outer = this.#open.getStore();
    if (outer && !outer.ended) throw new Error('write() inside write(): pass the transaction on instead');
    if (this.#queue.length >= maxWaitingWrites)
      throw passing(new DatabaseError('Too many writes are waiting for the database'));
    return new Promise<T>((resolve, reject) => {
      this.#queue.push({
        alone: false,
        options,
        queuedAtMs: this.#parts.clock.monotonicMs(),
        context: new AsyncResource('rookery.write', { requireManualDestroy: true }),
        run: fn,
        resolve: resolve as (value: unknown) => void,
        reject,
      });
      this.#pumping ??= this.#pump();
    });
  }

  override async reclaim(): Promise<number> {
    const { writer } = this.#parts;
    const { handle } = writer;
    const numberOf = (pragma: string): number => Number(handle.pragma(pragma, { simple: true }));
    const reclaimed = await this.write(
      async () => {
        // Pages that became free earlier, without being overwritten, may hold copies of what was erased since.
        const spare = numberOf('freelist_count') - (this.#erased ? 0 : keptFreePages);
        if (spare <= 0 || numberOf('auto_vacuum') !== 2) return 0;
        const before = numberOf('page_count');
        handle.pragma(`incremental_vacuum(${Math.min(spare, maxReclaimedPages)})`);
        return (before - numberOf('page_count')) * numberOf('page_size');
      },
      { name: 'reclaim_space' },
    );
    if (handle.inTransaction) return reclaimed;
    // The file itself becomes shorter with a checkpoint only.
    if (reclaimed > 0) handle.pragma('wal_checkpoint(PASSIVE)');
    else if (this.#erased) {
      const [outcome] = handle.pragma('wal_checkpoint(TRUNCATE)') as { readonly busy: number }[];
      this.#erased = outcome?.busy !== 0;
    }
    return reclaimed;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#pumping;
    await this.#parts.disconnect();
  }

  async #pump(): Promise<void> {
    // Writes called in the same turn share the first commit, too.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const taken: Job[] = [];
      try {
        await this.#runShared(taken);
      } catch (error) {
        // Whatever it was: those that come after must not wait for ever.
        this.#parts.logger.error('SQLite could not end a transaction', { err: error });
        for (const job of taken) job.reject(noted(error));
      }
    }
    this.#pumping = undefined;
  }

  /**
   * Runs waiting jobs in one transaction of SQLite, then settles them.
   * @param taken gets those that it has begun with
   * @throws what keeps SQLite from taking a transaction back
   */
  async #runShared(taken: Job[]): Promise<void> {
    const { writer, clock } = this.#parts;
    const outcomes: Outcome[] = [];
    let lost: { readonly error: unknown } | undefined;
    // Whoever comes while the file is waited for has not waited long enough yet.
    const waiting = this.#queue.length;
    try {
      await this.#begin();
    } catch (error) {
      for (const job of this.#queue.splice(0, waiting)) job.reject(noted(error));
      return;
    }
    const beganAtMs = clock.monotonicMs();
    while (outcomes.length < maxSharedWrites) {
      if (outcomes.length > 0 && this.#queue[0]?.alone) break;
      const job = this.#queue.shift();
      if (job === undefined) break;
      taken.push(job);
      const outcome = await this.#run(job, outcomes.length > 0);
      outcomes.push(outcome);
      if (!writer.handle.inTransaction) {
        // Full disk, I/O error: SQLite has rolled back everything, the earlier jobs included.
        lost = outcome.rejection ?? { error: new DatabaseError('SQLite rolled the transaction back') };
        break;
      }
      if (job.alone || clock.monotonicMs() - beganAtMs >= maxShareMs) break;
      // Requests that arrived meanwhile get their chance to share the flush.
      if (this.#queue.length === 0) await turn();
    }
    if (!lost) {
      try {
        writer.run('COMMIT');
      } catch (error) {
        lost = { error };
        if (writer.handle.inTransaction) writer.run('ROLLBACK');
      }
    }
    if (lost && outcomes.length > 1) this.#retryAlone(outcomes);
    else for (const outcome of outcomes) this.#settle(outcome, lost);
    if (!lost) this.#parts.checkpoints.committed();
  }

  /** Waits for a program that holds the file, without holding up the server meanwhile as SQLite's own waiting would. */
  async #begin(): Promise<void> {
    const { writer, logger } = this.#parts;
    for (let attempt = 1; ; attempt++) {
      try {
        if (writer.handle.inTransaction) writer.run('ROLLBACK');
        writer.run('BEGIN IMMEDIATE');
        return;
      } catch (error) {
        if (!errorCode(error)?.startsWith('SQLITE_BUSY') || attempt >= maxBusyAttempts) throw error;
        if (attempt === 1) logger.warn('Another program holds the database; writes wait for it');
        await pause(busyPauseMs);
      }
    }
  }

  /** One write must not cost others theirs: whoever did not fail by itself is run again with a commit of its own. */
  #retryAlone(outcomes: readonly Outcome[]): void {
    const { logger } = this.#parts;
    const again: Job[] = [];
    for (const outcome of outcomes) {
      if (outcome.rejection) {
        this.#settle(outcome, undefined);
        continue;
      }
      const { job, transaction } = outcome;
      job.context.runInAsyncScope(() => transaction.settle('rolled back', logger));
      job.alone = true;
      again.push(job);
    }
    this.#queue.unshift(...again);
  }

  /**
   * Runs one job.
   * @param isGuest others share its transaction already: it gets a savepoint, so that it can fail alone. That costs a copy of
   *   every page that it changes; whoever comes first does without, and takes back the transaction
   */
  async #run(job: Job, isGuest: boolean): Promise<Outcome> {
    const { writer, clock, logger } = this.#parts;
    const transaction = new Transaction(this.#statements);
    const startedAtMs = clock.monotonicMs();
    this.#rowsSinceTurn = 0;
    const { erase = false } = job.options;
    try {
      if (erase) writer.handle.pragma('secure_delete = ON');
      if (isGuest) writer.run('SAVEPOINT write_job');
      const value = await job.context.runInAsyncScope(() =>
        this.#open.run(transaction, () => transaction.execute(job.run.bind(job), logger, job.options)),
      );
      if (isGuest) writer.run('RELEASE write_job');
      return { job, transaction, startedAtMs, value };
    } catch (error) {
      this.#undo(isGuest);
      return { job, transaction, startedAtMs, rejection: { error } };
    } finally {
      if (erase) {
        this.#erased = true;
        writer.handle.pragma('secure_delete = FAST');
      }
    }
  }

  /** Takes back one job; where even that fails, everything since BEGIN. */
  #undo(isGuest: boolean): void {
    const { writer, logger } = this.#parts;
    if (!writer.handle.inTransaction) return;
    if (!isGuest) return void writer.run('ROLLBACK');
    try {
      writer.run('ROLLBACK TO write_job');
      writer.run('RELEASE write_job');
    } catch (error) {
      logger.error('SQLite could not take back a savepoint', { err: error });
      if (writer.handle.inTransaction) writer.run('ROLLBACK');
    }
  }

  #settle({ job, transaction, startedAtMs, value, rejection }: Outcome, lost: Outcome['rejection']): void {
    const { clock, logger, onTransaction } = this.#parts;
    const refusal = rejection ?? lost;
    job.context.runInAsyncScope(() => transaction.settle(refusal ? 'rolled back' : 'committed', logger));
    if (refusal) job.reject(noted(refusal.error));
    else job.resolve(value);
    if (!onTransaction) return;
    const report = {
      name: job.options.name ?? 'unnamed',
      waitMs: startedAtMs - job.queuedAtMs,
      durationMs: clock.monotonicMs() - startedAtMs,
      committed: refusal === undefined,
    };
    try {
      job.context.runInAsyncScope(onTransaction, undefined, report);
    } catch (error) {
      logger.error('The observer of transactions threw', { err: error });
    }
  }
}
