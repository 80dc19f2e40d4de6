import { type Clock, type Logger, SystemClock } from '@rookery/platform';
import type { Db, Dialect, SqlValue, Tx, WriteOptions } from './database.js';
import { DatabaseError } from './errors.js';

/**
 * The statements of one open transaction, as a driver runs them. What `exec` and `insertMany` resolve to need not be their
 * outcome: a driver may send them on without waiting, and then tells their failure with the next outcome that it waits for.
 */
export interface Statements extends Db {
  /** They fail by throwing, and what they resolve to is there already. */
  readonly throwsAtOnce?: boolean;
  run(sql: string, params?: readonly SqlValue[]): Promise<number>;
  exec(sql: string, params?: readonly SqlValue[]): Promise<void>;
  insertMany(
    table: string,
    columns: readonly string[],
    rows: readonly (readonly SqlValue[])[],
    suffix?: string,
  ): Promise<void>;
}

/** Told about each finished transaction, for metrics. */
export interface TransactionReport {
  readonly name: string;
  /** Time from the call until its first statement could run. */
  readonly waitMs: number;
  /** Time from then until it was durable or rolled back. */
  readonly durationMs: number;
  readonly committed: boolean;
}

/**
 * Told about each statement that was waited for, for metrics; those that travel together with a later one count with that.
 * @param isAlone it was a read outside of any transaction
 */
export type StatementObserver = (sql: string, durationMs: number, isAlone: boolean) => void;

/** What became of a transaction. `unknown`: its commit was sent and never answered. */
export type Ending = 'committed' | 'rolled back' | 'unknown';

/** Rows that are handed to a driver at once which does its work at once. */
const rowsAtOnce = 500;
const warnAfterMs = 10_000;
const defaultLimitMs = 60_000;

/** Real time, not the server's: what a statement waits for happens elsewhere, however fast a test lets time pass here. */
const realTime: Pick<Clock, 'after'> = new SystemClock();

/**
 * A transaction's bookkeeping, the same on both databases: a failed statement spoils it, it cannot be used once it has
 * ended, and it is given up when it hangs.
 */
export class Transaction implements Tx {
  #ended = false;
  #failure: { readonly error: unknown } | undefined;
  readonly #listeners: { readonly on: readonly Ending[]; readonly fn: () => void }[] = [];
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  get dialect(): Dialect {
    return this.#statements.dialect;
  }
  /** The first statement that failed, if one did. */
  get failure(): { readonly error: unknown } | undefined {
    return this.#failure;
  }
  get ended(): boolean {
    return this.#ended;
  }

  query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return this.#guard(() => this.#statements.query<Row>(sql, params));
  }
  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.#guard(() => this.#statements.get<Row>(sql, params));
  }
  run(sql: string, params?: readonly SqlValue[]): Promise<number> {
    return this.#guard(() => this.#statements.run(sql, params));
  }
  exec(sql: string, params?: readonly SqlValue[]): Promise<void> {
    return this.#guard(() => this.#statements.exec(sql, params));
  }
  insertMany(
    table: string,
    columns: readonly string[],
    rows: readonly (readonly SqlValue[])[],
    suffix?: string,
  ): Promise<void> {
    const insert = (some: readonly (readonly SqlValue[])[]): Promise<void> =>
      this.#guard(() => this.#statements.insertMany(table, columns, some, suffix));
    const isLong = this.#statements.throwsAtOnce === true && rows.length > rowsAtOnce;
    return isLong ? this.#inParts(rows, insert) : insert(rows);
  }

  /** Where a driver does its work at once: what comes in many rows would hold up everything else for as long. */
  async #inParts<Row>(rows: readonly Row[], insert: (some: readonly Row[]) => Promise<void>): Promise<void> {
    for (let start = 0; start < rows.length; start += rowsAtOnce) await insert(rows.slice(start, start + rowsAtOnce));
  }

  afterCommit(fn: () => void): void {
    this.#listeners.push({ on: ['committed'], fn });
  }
  afterRollback(fn: () => void): void {
    this.#listeners.push({ on: ['rolled back', 'unknown'], fn });
  }
  unlessRolledBack(fn: () => void): void {
    this.#listeners.push({ on: ['committed', 'unknown'], fn });
  }

  /**
   * Runs the transaction's function with its time limit. Whatever comes of it, the transaction cannot be used afterwards.
   * @throws what `fn` threw, or the error of a failed statement that `fn` swallowed
   */
  async execute<T>(
    fn: (tx: Tx) => Promise<T>,
    logger: Logger,
    options: WriteOptions,
    time: Pick<Clock, 'after'> = realTime,
  ): Promise<T> {
    const name = options.name ?? 'unnamed';
    const limitMs = options.limitMs ?? defaultLimitMs;
    let giveUp: (error: Error) => void = () => {};
    const tooLong = new Promise<never>((_, reject) => (giveUp = reject));
    const stop = (): void => giveUp(new DatabaseError(`Transaction ${name} was given up after ${limitMs} ms`));
    let timer = time.after(Math.min(warnAfterMs, limitMs), () => {
      if (limitMs <= warnAfterMs) return stop();
      logger.warn('A transaction is still open; it holds up others', { transaction: name, openMs: warnAfterMs });
      if (limitMs !== Infinity) timer = time.after(limitMs - warnAfterMs, stop);
    });
    try {
      const result = await Promise.race([fn(this), tooLong]);
      if (this.#failure) throw this.#failure.error;
      return result;
    } finally {
      timer.cancel();
      this.#ended = true;
    }
  }

  /** Runs what was registered for the outcome. A listener's own error is logged: the outcome stands. */
  settle(ending: Ending, logger: Logger): void {
    for (const { on, fn } of this.#listeners) {
      if (!on.includes(ending)) continue;
      try {
        fn();
      } catch (error) {
        logger.error('A listener of a transaction threw', { ending, err: error });
      }
    }
  }

  #guard<T>(statement: () => Promise<T>): Promise<T> {
    if (this.#ended)
      return Promise.reject(new Error('The transaction has ended: a statement was not awaited, or came too late'));
    if (this.#failure) {
      const text = 'An earlier statement of the transaction failed; nothing of it can be kept';
      return Promise.reject(new Error(text, { cause: this.#failure.error }));
    }
    try {
      const outcome = statement();
      return this.#statements.throwsAtOnce ? outcome : outcome.catch((error: unknown) => this.#failed(error));
    } catch (error) {
      return this.#failed(error);
    }
  }

  #failed(error: unknown): Promise<never> {
    this.#failure ??= { error };
    return Promise.reject(error);
  }
}
