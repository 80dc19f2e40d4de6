import type Sqlite from 'better-sqlite3';
import { LRUCache } from 'lru-cache';
import type { SqlValue } from '../database.js';

const maxStatements = 500;

type Bound = string | number | bigint | null | Uint8Array;

// The driver binds every number as a float, which a TEXT column would store as "5.0".
function bind(value: SqlValue): Bound {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (typeof value === 'boolean') return value ? 1n : 0n;
  if (Array.isArray(value)) return JSON.stringify(value);
  return value as Bound;
}

/** One SQLite connection with its prepared statements, the most recently used {@link maxStatements} of them. */
export class SqliteConnection {
  readonly #statements = new LRUCache<string, Sqlite.Statement<Bound[]>>({ max: maxStatements });

  constructor(readonly handle: Sqlite.Database) {}

  all<Row>(sql: string, params: readonly SqlValue[] = []): Row[] {
    const statement = this.#prepare(sql);
    if (statement.reader) return statement.all(...params.map(bind)) as Row[];
    statement.run(...params.map(bind));
    return [];
  }

  get<Row>(sql: string, params: readonly SqlValue[] = []): Row | undefined {
    const statement = this.#prepare(sql);
    if (statement.reader) return statement.get(...params.map(bind)) as Row | undefined;
    statement.run(...params.map(bind));
    return undefined;
  }

  run(sql: string, params: readonly SqlValue[] = []): number {
    const statement = this.#prepare(sql);
    if (statement.reader) return statement.all(...params.map(bind)).length;
    return statement.run(...params.map(bind)).changes;
  }

  #prepare(sql: string): Sqlite.Statement<Bound[]> {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.handle.prepare<Bound[]>(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}
