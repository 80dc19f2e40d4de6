import { LRUCache } from 'lru-cache';
import { numberPlaceholders } from './placeholders.js';

const maxRemembered = 4000;
// A named statement stays in the memory of every connection of the server, so there must not be many.
const maxNamed = 800;
const namedFromUse = 4;

interface Remembered {
  readonly text: string;
  uses: number;
  name: string | undefined;
}

/** A statement as the driver takes it. A `name` makes the server keep its plan. */
export interface PreparedText {
  readonly text: string;
  readonly name: string | undefined;
}

/** Translates statements once and names those that come often. */
export class StatementNames {
  readonly #remembered = new LRUCache<string, Remembered>({ max: maxRemembered });
  readonly #inserts = new LRUCache<string, string>({ max: maxRemembered });
  #named = 0;

  prepare(sql: string): PreparedText {
    let found = this.#remembered.get(sql);
    if (found === undefined) {
      found = { text: numberPlaceholders(sql), uses: 0, name: undefined };
      this.#remembered.set(sql, found);
    }
    if (++found.uses >= namedFromUse && found.name === undefined && this.#named < maxNamed)
      found.name = `rk${++this.#named}`;
    return found;
  }

  /** The statement that inserts one row, with `?` parameters. */
  insertOne(table: string, columns: readonly string[], suffix: string): string {
    const names = columns.join(', ');
    const key = `${table}(${names})${suffix}`;
    let sql = this.#inserts.get(key);
    if (sql === undefined) {
      sql = `INSERT INTO ${table} (${names}) VALUES (${columns.map(() => '?').join(', ')}) ${suffix}`;
      this.#inserts.set(key, sql);
    }
    return sql;
  }

  /** Gives no name out again: the plans behind them no longer fit the schema. */
  forget(): void {
    this.#remembered.clear();
  }
}
