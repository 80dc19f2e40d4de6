import pg, { type QueryArrayConfig, type QueryConfig, type QueryResult, type QueryResultRow } from 'pg';
import type { SqlValue } from '../database.js';
import { postgresDialect } from '../dialect.js';
import type { Statements } from '../transaction.js';
import type { StatementNames } from './statement-names.js';
import type { ColumnTypes } from './column-types.js';

/** What a pool and one of its connections have in common. */
export interface Queryable {
  query<Row extends QueryResultRow>(config: QueryConfig): Promise<QueryResult<Row>>;
  query<Row extends unknown[]>(config: QueryArrayConfig): Promise<QueryResult<Row>>;
}

/** A connection, which also takes statements of the driver's own making. */
export interface Connection extends Queryable {
  query<Row extends QueryResultRow>(config: QueryConfig): Promise<QueryResult<Row>>;
  query<Row extends unknown[]>(config: QueryArrayConfig): Promise<QueryResult<Row>>;
  query(statement: InstanceType<DriverQuery>): unknown;
}

/** The driver's own statement, as far as it is used here; its types describe another one. */
type DriverQuery = new (text: string, values: SqlValue[], done: (error: Error | null) => void) => { name?: string };
const Query = pg.Query as unknown as DriverQuery;

// The protocol counts parameters in 16 bits.
const maxParameters = 65_000;

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
export function writeTogether(client: object): void {
  const stream = (client as Corkable).connection?.stream;
  if (stream === undefined) return;
  stream.cork();
  process.nextTick(() => stream.uncork());
}

/**
 * The statements of a transaction on one connection. Those that answer nothing are sent without waiting: the connection works
 * through them in order, and what they failed with comes before the outcome of whatever follows.
 */
export class PostgresStatements implements Statements {
  readonly dialect = postgresDialect;
  #failure: { readonly error: unknown } | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly connection: Connection,
    private readonly names: StatementNames,
    private readonly types: ColumnTypes,
  ) {}

  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return (await this.#outcome<Row>(sql, params)).rows;
  }

  async get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return (await this.query<Row>(sql, params))[0];
  }

  async run(sql: string, params?: readonly SqlValue[]): Promise<number> {
    return (await this.#outcome(sql, params)).rowCount ?? 0;
  }

  async exec(sql: string, params?: readonly SqlValue[]): Promise<void> {
    if (this.#failure) throw this.#failure.error;
    writeTogether(this.connection);
    const { name, text } = this.names.prepare(sql);
    this.#last = new Promise<void>((resolve) => {
      // Made by hand: the driver would copy a configuration with all its descriptors, which costs more than the rest.
      const query = new Query(text, params as SqlValue[], (error: Error | null) => {
        if (error) this.#failure ??= { error };
        resolve();
      });
      if (name !== undefined) query.name = name;
      this.connection.query(query);
    });
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

  /** @throws the first failure of what was sent without waiting, once the answers are there */
  async settled(): Promise<void> {
    await this.#last;
    if (this.#failure) throw this.#failure.error;
  }

  async #outcome<Row>(sql: string, params?: readonly SqlValue[]): Promise<QueryResult<Row & QueryResultRow>> {
    try {
      return await runStatement<Row>(this.connection, this.names, sql, params);
    } catch (error) {
      // After a failure every further statement is refused, which says nothing of the reason.
      throw this.#failure ? this.#failure.error : error;
    }
  }
}
