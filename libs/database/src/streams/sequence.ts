import type { Database, Db, Tx } from '../database.js';
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

  /** The number up to which a sequence reserved any, as the database tells; 0 before the first. */
  static async positionOf(db: Db, name: string): Promise<number> {
    const row = await db.get<{ stream_id: number }>(
      "SELECT stream_id FROM stream_positions WHERE stream_name = ? AND instance_name = ''",
      [name],
    );
    return row?.stream_id ?? 0;
  }

  /** The statements that set a sequence, for an operator whose server does not run; `name` is one of ours. */
  static settingStatements(name: string, position: number): string[] {
    return [
      `DELETE FROM stream_positions WHERE stream_name = '${name}';`,
      `INSERT INTO stream_positions (stream_name, instance_name, stream_id) VALUES ('${name}', '', ${position});`,
    ];
  }

  /** The number given out last; before the first, the one behind which it goes on. */
  get last(): number {
    return this.#blocks.last;
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
