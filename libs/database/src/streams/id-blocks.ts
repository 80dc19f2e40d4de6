import { AsyncLocalStorage } from 'node:async_hooks';
import type { Database, Tx } from '../database.js';
import { type Logger, OnlyAtWriterError, SilentLogger } from '@rookery/platform';

/** How many numbers one reservation covers, unless told. */
export const defaultBlockSize = 1000;

export interface IdBlocksOptions {
  /** How many numbers one reservation covers; so many at most are skipped by a restart. {@link defaultBlockSize} unless told. */
  readonly blockSize?: number | undefined;
  /** Numbers up to this one are taken, whatever the table says: for data that was imported. */
  readonly takenUpTo?: number | undefined;
  readonly logger?: Logger | undefined;
}

/**
 * Gives out the numbers 1, 2, 3… of one counter, never one twice, over restarts as well. The database holds the end of the
 * reserved block; numbers come from memory, and the next block is reserved before this one is used up.
 */
export class IdBlocks {
  readonly #database: Database;
  readonly #name: string;
  readonly #blockSize: number;
  readonly #logger: Logger;
  // Reserving must not look like a write inside the transaction that happened to ask for a number.
  readonly #outside = AsyncLocalStorage.snapshot();
  #last: number;
  #reserved: number;
  #reserving: Promise<void> | undefined;

  private constructor(database: Database, name: string, start: number, options: IdBlocksOptions) {
    this.#database = database;
    this.#name = name;
    this.#blockSize = options.blockSize ?? defaultBlockSize;
    this.#logger = options.logger ?? new SilentLogger();
    this.#last = start;
    this.#reserved = start;
  }

  static async load(database: Database, name: string, options: IdBlocksOptions): Promise<IdBlocks> {
    const row = await database.get<{ stream_id: number }>(
      "SELECT stream_id FROM stream_positions WHERE stream_name = ? AND instance_name = ''",
      [name],
    );
    const blocks = new IdBlocks(database, name, Math.max(row?.stream_id ?? 0, options.takenUpTo ?? 0), options);
    try {
      await blocks.#reserveAhead();
    } catch (error) {
      // Who gives out none needs none.
      if (!(error instanceof OnlyAtWriterError)) throw error;
    }
    return blocks;
  }

  /** The number given out last. */
  get last(): number {
    return this.#last;
  }

  /**
   * Takes `count` numbers in a row for use outside of a transaction; the first of them. `given` hears of it in the very moment
   * in which they are taken, before anybody else can take or finish any.
   */
  async take(count: number, given?: (first: number) => void): Promise<number> {
    checkCount(count);
    while (this.#last + count > this.#reserved) await this.#reserveAhead(count);
    return this.#give(count, given);
  }

  /** The same for use in a transaction. */
  async takeIn(tx: Tx, count: number, given?: (first: number) => void): Promise<number> {
    checkCount(count);
    const first = this.#give(count, given);
    if (this.#last > this.#reserved) {
      // The block is used up: the reservation becomes durable together with the numbers that need it.
      const reserved = this.#last + this.#blockSize;
      tx.afterCommit(() => (this.#reserved = Math.max(this.#reserved, reserved)));
      await this.#store(tx, reserved);
    }
    return first;
  }

  #give(count: number, given?: (first: number) => void): number {
    const first = this.#last + 1;
    this.#last += count;
    given?.(first);
    if (this.#reserved - this.#last < this.#blockSize / 2) {
      this.#reserveAhead().catch((error: unknown) => {
        this.#logger.warn('Could not reserve stream ids', { stream: this.#name, err: error });
      });
    }
    return first;
  }

  #reserveAhead(count = 0): Promise<void> {
    this.#reserving ??= this.#outside(async () => {
      const reserved = this.#last + count + this.#blockSize;
      await this.#database.write((tx) => this.#store(tx, reserved), { name: 'reserve_ids' });
      this.#reserved = Math.max(this.#reserved, reserved);
    }).finally(() => (this.#reserving = undefined));
    return this.#reserving;
  }

  async #store(tx: Tx, reserved: number): Promise<void> {
    await tx.run(
      `INSERT INTO stream_positions (stream_name, instance_name, stream_id) VALUES (?, '', ?)
         ON CONFLICT (stream_name, instance_name) DO UPDATE SET stream_id = excluded.stream_id
         WHERE stream_positions.stream_id < excluded.stream_id`,
      [this.#name, reserved],
    );
  }
}

function checkCount(count: number): void {
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError('At least one id must be taken');
}
