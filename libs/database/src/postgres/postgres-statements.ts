import type { QueryArrayConfig, QueryConfig, QueryResult, QueryResultRow } from 'pg';
import type { SqlValue } from '../database.js';
import { postgresDialect } from '../dialect.js';
import type { Clock } from '@rookery/platform';
import type { StatementObserver, Statements } from '../transaction.js';
import type { ColumnTypes } from './column-types.js';
import { type NamedStatement, StatementBatch } from './statement-batch.js';
import type { StatementNames } from './statement-names.js';

/** What a pool and one of its connections have in common. */
export interface Queryable {
  query<Row extends QueryResultRow>(config: QueryConfig): Promise<QueryResult<Row>>;
  query<Row extends unknown[]>(config: QueryArrayConfig): Promise<QueryResult<Row>>;
}

/** A connection, which also takes statements of our own making. */
export interface Connection extends Queryable {
  query<Row extends QueryResultRow>(config: QueryConfig): Promise<QueryResult<Row>>;
  query<Row extends unknown[]>(config: QueryArrayConfig): Promise<QueryResult<Row>>;
  query(statement: StatementBatch): unknown;
}

// The protocol counts parameters in 16 bits.
const maxParameters = 65_000;
/** So many statements are held back; those of an ordinary transaction travel together with its beginning and its end. */
const maxHeld = 64;

/** The driver knows the field, its types do not. */
export interface TimedQuery extends QueryConfig {
  query_timeout?: number;
}

/**
 * Runs one statement with `?` parameters.
 * @param timeoutMs gives the connection up when no answer came by then: the server's own limit does not help when it is cut off
 */
export function runStatement<Row>(
  target: Queryable,
  names: StatementNames,
  sql: string,
  params: readonly SqlValue[] = [],
  timeoutMs?: number,
): Promise<QueryResult<Row & QueryResultRow>> {
  const { name, text } = names.prepare(sql);
  const query: TimedQuery = { text, values: params as SqlValue[] };
  if (name !== undefined) query.name = name;
  if (timeoutMs !== undefined) query.query_timeout = timeoutMs;
  return target.query<Row & QueryResultRow>(query);
}

/** What the driver's connections have besides what its types say. */
interface Corkable {
  readonly connection?: { readonly stream?: { cork(): void; uncork(): void } };
}

/**
 * Holds back what is written to a connection until the code that runs now waits for something: what it issues meanwhile is
 * one write for the system and wakes the database once.
 */
function writeTogether(client: object): void {
  const stream = (client as Corkable).connection?.stream;
  if (stream === undefined) return;
  stream.cork();
  process.nextTick(() => stream.uncork());
}

/**
 * The statements of a transaction on one connection. Those that answer nothing are held back until an answer is needed, at the
 * latest for the commit, and sent as one; what they failed with comes before the outcome of whatever follows.
 */
export class PostgresStatements implements Statements {
  readonly dialect = postgresDialect;
  readonly #held: NamedStatement[] = [];
  readonly #openingLength: number;
  #failure: { readonly error: unknown } | undefined;
  #hasSent = false;
  #hasUnclearNames = false;

  /**
   * @param opening what begins the transaction; sent with its first statement
   * @param onStatement told what the statements took that were waited for, by `clock`
   */
  constructor(
    private readonly connection: Connection,
    private readonly names: StatementNames,
    private readonly types: ColumnTypes,
    opening: readonly string[],
    private readonly clock?: Clock,
    private readonly onStatement?: StatementObserver,
  ) {
    this.#openingLength = opening.length;
    for (const sql of opening) this.#hold(sql);
  }

  /** Whether the server has heard of the transaction. */
  get hasSent(): boolean {
    return this.#hasSent;
  }

  /** Whether the connection may not know what the server keeps for it. */
  get hasUnclearNames(): boolean {
    return this.#hasUnclearNames;
  }

  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return (await this.#outcome<Row>(sql, params)).rows;
  }

  async get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return (await this.query<Row>(sql, params))[0];
  }

  async run(sql: string, params?: readonly SqlValue[]): Promise<number> {
    return (await this.#outcome(sql, params)).rowCount ?? 0;
  }

  async exec(sql: string, params: readonly SqlValue[] = []): Promise<void> {
    this.#check();
    this.#hold(sql, params);
    if (this.#held.length >= maxHeld) void this.#send();
  }

  async insertMany(
    table: string,
    columns: readonly string[],
    rows: readonly (readonly SqlValue[])[],
    suffix = '',
  ): Promise<void> {
    if (rows.length === 0) return;
    if (rows.length === 1) return this.exec(this.names.insertOne(table, columns, suffix), rows[0]);
    const into = `INSERT INTO ${table} (${columns.join(', ')})`;
    const types = await this.types.of(this, table, columns);
    if (types) {
      // One array per column: the statement's text, and so its plan, does not depend on the number of rows.
      const arrays = columns.map((_, i) => rows.map((row) => row[i] as string));
      return this.exec(
        `${into} SELECT * FROM unnest(${types.map((type) => `?::${type}[]`).join(', ')}) ${suffix}`,
        arrays,
      );
    }
    const tuple = `(${columns.map(() => '?').join(', ')})`;
    const perStatement = Math.floor(maxParameters / columns.length);
    for (let at = 0; at < rows.length; at += perStatement) {
      const chunk = rows.slice(at, at + perStatement);
      await this.exec(`${into} VALUES ${chunk.map(() => tuple).join(', ')} ${suffix}`, chunk.flat());
    }
  }

  /**
   * Commits, behind whatever is held back or on its way.
   * @param timeoutMs gives the connection up when no answer came by then
   * @returns what the server has done about it; `undefined` where there was nothing to commit
   * @throws the first failure of what was sent without waiting
   */
  async commit(timeoutMs: number): Promise<string | undefined> {
    this.#check();
    if (!this.#hasSent && this.#held.length === this.#openingLength) return undefined;
    this.#hold('COMMIT');
    const command = await this.#send(timeoutMs);
    this.#check();
    return command;
  }

  #check(): void {
    if (this.#failure) throw this.#failure.error;
  }

  #hold(sql: string, values: readonly SqlValue[] = []): void {
    const { name, text } = this.names.prepare(sql);
    this.#held.push({ name, text, values });
  }

  /** Sends what is held back; what the last of it did, or `undefined` when something failed. */
  #send(timeoutMs?: number): Promise<string | undefined> {
    this.#hasSent = true;
    return new Promise((resolve) => {
      const batch = new StatementBatch(this.#held.splice(0), (error) => {
        if (error) this.#failure ??= { error };
        if (batch.leavesNamesUnclear) this.#hasUnclearNames = true;
        resolve(batch.command);
      });
      batch.query_timeout = timeoutMs;
      this.connection.query(batch);
    });
  }

  async #outcome<Row>(sql: string, params?: readonly SqlValue[]): Promise<QueryResult<Row & QueryResultRow>> {
    if (this.#held.length > 0) {
      writeTogether(this.connection);
      void this.#send();
    }
    try {
      const { clock, onStatement } = this;
      if (!clock || !onStatement) return await runStatement<Row>(this.connection, this.names, sql, params);
      const startedAtMs = clock.monotonicMs();
      const outcome = await runStatement<Row>(this.connection, this.names, sql, params);
      onStatement(sql, clock.monotonicMs() - startedAtMs, false);
      return outcome;
    } catch (error) {
      // After a failure every further statement is refused, which says nothing of the reason.
      throw this.#failure ? this.#failure.error : error;
    }
  }
}
