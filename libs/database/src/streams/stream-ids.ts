import type { Database, Tx } from '../database.js';
import { type Logger, SilentLogger } from '@rookery/platform';
import { IdBlocks, type IdBlocksOptions } from './id-blocks.js';

export interface StreamIdsOptions extends IdBlocksOptions {
  /** `down` counts −1, −2, −3…: events from before the server joined. `up` unless told. */
  readonly direction?: 'up' | 'down' | undefined;
}

/** Positions that are taken but not yet readable. */
export interface Allocation {
  /** In the order in which they were given out: ascending, or descending for a stream that counts down. */
  readonly ids: readonly number[];
  /** The rows are committed, or never will be. May be called more than once. */
  done(): void;
}

/**
 * The positions of one stream. Transactions that overlap commit in any order, so a reader must stop before the first
 * position that is still being written: {@link current} is that limit.
 *
 * ```ts
 * await database.write(async (tx) => {
 *   const [id] = await stream.allocateIn(tx);
 *   await tx.run('INSERT …', [id]);
 *   tx.afterCommit(() => notifier.announce(stream.name, id, { users }));
 * });
 * ```
 */
export class StreamIds {
  readonly #blocks: IdBlocks;
  readonly #sign: 1 | -1;
  readonly #logger: Logger;
  // First to last of what is being written, in the order of allocation.
  readonly #inFlight = new Map<number, number>();
  readonly #listeners = new Set<(position: number) => void>();
  #current: number;

  private constructor(
    /** Name of the stream, snake_case: `events`, `backfill`, `receipts`. */
    readonly name: string,
    blocks: IdBlocks,
    options: StreamIdsOptions,
  ) {
    this.#blocks = blocks;
    this.#sign = options.direction === 'down' ? -1 : 1;
    this.#logger = options.logger ?? new SilentLogger();
    this.#current = blocks.last;
  }

  /**
   * Needs the tables of `databaseMigrations`. One process may have a stream open at a time. After a restart positions go on
   * behind the block that was reserved, so tokens that were given out stay valid and ordered.
   */
  static async load(database: Database, name: string, options: StreamIdsOptions = {}): Promise<StreamIds> {
    return new StreamIds(name, await IdBlocks.load(database, name, options), options);
  }

  /** The furthest position up to which everything is committed or given up: what a reader may read. 0 in a new stream. */
  current(): number {
    return this.#current === 0 ? 0 : this.#sign * this.#current;
  }

  /** Takes positions for rows of this transaction and frees them with its outcome. */
  async allocateIn(tx: Tx, count = 1): Promise<readonly number[]> {
    const first = await this.#blocks.takeIn(tx, count, (given) => {
      this.#inFlight.set(given, given + count - 1);
      const done = (): void => this.#finish(given);
      tx.afterCommit(done);
      tx.afterRollback(done);
    });
    return this.#idsFrom(first, count);
  }

  /**
   * Takes positions outside of a transaction: for streams in memory, or when they must be known before it begins. `done` must
   * be called in every case, or readers stop before them for good. Never call it inside a transaction.
   */
  async allocate(count = 1): Promise<Allocation> {
    const first = await this.#blocks.take(count, (given) => void this.#inFlight.set(given, given + count - 1));
    return { ids: this.#idsFrom(first, count), done: () => this.#finish(first) };
  }

  /** Calls `listener` with the new {@link current} each time it moves; returns how to stop that. */
  onAdvance(listener: (position: number) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #idsFrom(first: number, count: number): number[] {
    return Array.from({ length: count }, (_, i) => this.#sign * (first + i));
  }

  #finish(first: number): void {
    if (!this.#inFlight.delete(first)) return;
    const oldest = this.#inFlight.keys().next();
    const current = oldest.done ? this.#blocks.last : oldest.value - 1;
    if (current <= this.#current) return;
    this.#current = current;
    for (const listener of this.#listeners) {
      try {
        listener(this.current());
      } catch (error) {
        this.#logger.error('A listener of a stream threw', { stream: this.name, err: error });
      }
    }
  }
}
