import type Sqlite from 'better-sqlite3';
import type { Clock } from '@rookery/platform';
import type { SqlValue } from '../database.js';
import type { StatementObserver } from '../transaction.js';

const maxStatements = 500;
/** Of one table; a table into which the program writes in more ways than that has ways that are made up as it goes. */
const maxInsertions = 20;

type Bound = string | number | bigint | null | Uint8Array;

interface Prepared {
  readonly statement: Sqlite.Statement<[Bound[]]>;
  /** It answers with rows. */
  readonly isReader: boolean;
  /** It leaves the database as it is. */
  readonly isReadOnly: boolean;
}

/** An INSERT of one row, found without putting its text together again. */
interface Insertion {
  readonly columns: readonly string[];
  readonly suffix: string;
  readonly sql: string;
}

// The driver binds every number as a float, which a TEXT column would store as "5.0".
function bind(value: SqlValue): Bound {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (typeof value === 'boolean') return value ? 1n : 0n;
  if (Array.isArray(value)) return JSON.stringify(value);
  return value as Bound;
}

function isSame(columns: readonly string[], others: readonly string[]): boolean {
  if (columns.length !== others.length) return false;
  for (let i = 0; i < columns.length; i++) if (columns[i] !== others[i]) return false;
  return true;
}

/** One SQLite connection with its prepared statements, {@link maxStatements} of them at most. */
export class SqliteConnection {
  readonly #statements = new Map<string, Prepared>();
  readonly #insertions = new Map<string, Insertion[]>();

  constructor(readonly handle: Sqlite.Database) {}

  all<Row>(sql: string, params: readonly SqlValue[] = []): Row[] {
    const { statement, isReader } = this.#prepare(sql);
    if (isReader) return statement.all(params.map(bind)) as Row[];
    statement.run(params.map(bind));
    return [];
  }

  get<Row>(sql: string, params: readonly SqlValue[] = []): Row | undefined {
    const { statement, isReader } = this.#prepare(sql);
    if (isReader) return statement.get(params.map(bind)) as Row | undefined;
    statement.run(params.map(bind));
    return undefined;
  }

  run(sql: string, params: readonly SqlValue[] = []): number {
    const { statement, isReader } = this.#prepare(sql);
    if (isReader) return statement.all(params.map(bind)).length;
    return statement.run(params.map(bind)).changes;
  }

  /** Inserts rows, each in the order of `columns`, with `suffix` behind the values. */
  insert(table: string, columns: readonly string[], rows: readonly (readonly SqlValue[])[], suffix: string): void {
    const sql = this.#insertion(table, columns, suffix);
    for (const row of rows) this.run(sql, row);
  }

  /** Whether a statement leaves the database as it is. */
  isReadOnly(sql: string): boolean {
    return this.#prepare(sql).isReadOnly;
  }

  #insertion(table: string, columns: readonly string[], suffix: string): string {
    let known = this.#insertions.get(table);
    if (known === undefined || known.length >= maxInsertions) this.#insertions.set(table, (known = []));
    for (const each of known) if (each.suffix === suffix && isSame(each.columns, columns)) return each.sql;
    const sql = `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')}) ${suffix}`;
    known.push({ columns: [...columns], suffix, sql });
    return sql;
  }

  #prepare(sql: string): Prepared {
    let prepared = this.#statements.get(sql);
    if (prepared === undefined) {
      const statement = this.handle.prepare<[Bound[]]>(sql);
      prepared = { statement, isReader: statement.reader, isReadOnly: statement.readonly };
      // More than all that the program has of its own: what is needed again is soon there again.
      if (this.#statements.size >= maxStatements) this.#statements.clear();
      this.#statements.set(sql, prepared);
    }
    return prepared;
  }
}

/** The same, telling how long each statement took. */
export class TimedSqliteConnection extends SqliteConnection {
  constructor(
    handle: Sqlite.Database,
    private readonly clock: Clock,
    private readonly onStatement: StatementObserver,
  ) {
    super(handle);
  }

  override all<Row>(sql: string, params?: readonly SqlValue[]): Row[] {
    const isAlone = !this.handle.inTransaction;
    const startedAtMs = this.clock.monotonicMs();
    const rows = super.all<Row>(sql, params);
    this.onStatement(sql, this.clock.monotonicMs() - startedAtMs, isAlone);
    return rows;
  }

  override get<Row>(sql: string, params?: readonly SqlValue[]): Row | undefined {
    const isAlone = !this.handle.inTransaction;
    const startedAtMs = this.clock.monotonicMs();
    const row = super.get<Row>(sql, params);
    this.onStatement(sql, this.clock.monotonicMs() - startedAtMs, isAlone);
    return row;
  }

  override run(sql: string, params?: readonly SqlValue[]): number {
    const startedAtMs = this.clock.monotonicMs();
    const changes = super.run(sql, params);
    this.onStatement(sql, this.clock.monotonicMs() - startedAtMs, false);
    return changes;
  }
}
