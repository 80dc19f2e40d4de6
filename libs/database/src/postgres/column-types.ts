import { LRUCache } from 'lru-cache';
import type { Db } from '../database.js';

const maxTables = 500;

interface ColumnRow {
  readonly name: string;
  readonly type: string;
  readonly is_array: boolean;
}

/** The types of tables' columns, asked once per table, for inserts that send a column as one array. */
export class ColumnTypes {
  readonly #tables = new LRUCache<string, ReadonlyMap<string, ColumnRow>>({ max: maxTables });

  /** The types in the order of `columns`; `undefined` where one of them is an array itself, or is not there. */
  async of(db: Db, table: string, columns: readonly string[]): Promise<string[] | undefined> {
    let known = this.#tables.get(table);
    if (!known || columns.some((name) => !known?.has(name))) {
      known = new Map((await this.#load(db, table)).map((row) => [row.name, row]));
      this.#tables.set(table, known);
    }
    const found = columns.map((name) => known.get(name));
    return found.every((row) => row && !row.is_array) ? found.map((row) => row?.type ?? '') : undefined;
  }

  #load(db: Db, table: string): Promise<ColumnRow[]> {
    return db.query<ColumnRow>(
      `SELECT attname AS name, format_type(atttypid, atttypmod) AS type, attndims > 0 AS is_array
         FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped`,
      [table],
    );
  }
}
