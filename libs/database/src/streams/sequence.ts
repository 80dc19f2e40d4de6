import type { Database, Tx } from '../database.js';
import { IdBlocks, type IdBlocksOptions } from './id-blocks.js';

/**
 * A counter without a notion of what is finished: state groups, chain ids. Numbers ascend from 1 and never repeat; a rolled
 * back transaction and a restart leave gaps.
 */
export class Sequence {
  readonly #blocks: IdBlocks;

  private constructor(
    /** The field's name: `state_group_id_seq`. */
    readonly name: string,
    blocks: IdBlocks,
  ) {
    this.#blocks = blocks;
  }

  /** Needs the tables of `databaseMigrations`. One process may have it open at a time. */
  static async load(database: Database, name: string, options: IdBlocksOptions = {}): Promise<Sequence> {
    return new Sequence(name, await IdBlocks.load(database, name, options));
  }

  /** The next number, within a transaction. */
  nextIn(tx: Tx): Promise<number> {
    return this.#blocks.takeIn(tx, 1);
  }

  /** The next `count` numbers, ascending, within a transaction. */
  async takeIn(tx: Tx, count: number): Promise<number[]> {
    const first = await this.#blocks.takeIn(tx, count);
    return Array.from({ length: count }, (_, i) => first + i);
  }

  /** The next number, before the transaction that will use it. Never call it inside one: use {@link nextIn} there. */
  next(): Promise<number> {
    return this.#blocks.take(1);
  }

  /** The next `count` numbers, before the transaction that will use them. */
  async take(count: number): Promise<number[]> {
    const first = await this.#blocks.take(count);
    return Array.from({ length: count }, (_, i) => first + i);
  }
}
