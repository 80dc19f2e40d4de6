import type pg from 'pg';
import type { SqlValue } from '../database.js';
import { readSchemaShape } from '../image/postgres-schema.query.js';
import type { PostgresOptions } from '../options.js';
import { copyIn, copyOut } from '../postgres/copy-rows.js';
import { connectAlone } from '../postgres/open-postgres.js';
import { areLinesExact, copyLine } from './copy-lines.js';
import { hashOf } from './row-hashes.js';

/** Keys and indexes that are made again when the rows are there; it stays until they are. */
const asideTable = 'database_move_indexes';
const sessionSettings = `
  SET statement_timeout = 0;
  SET idle_in_transaction_session_timeout = 0;
  SET synchronous_commit = off;
  SET maintenance_work_mem = '256MB';
  SET bytea_output = 'hex'`;

/** Rows on their way into PostgreSQL in bulk. */
export interface BulkRows {
  /** As they are sent. */
  readonly text: string;
  /** The sum of the hashes of their lines. */
  readonly sum: bigint;
}

/** Fills a database of PostgreSQL that nobody uses: by COPY, without keys and indexes, which are made at the end. */
export class BulkTarget {
  readonly #types = new Map<string, readonly string[]>();

  private constructor(private readonly client: pg.Client) {}

  /** @param tables those that are filled */
  static async open(options: PostgresOptions, tables: readonly string[]): Promise<BulkTarget> {
    const client = await connectAlone(options);
    try {
      await client.query(sessionSettings);
      const target = new BulkTarget(client);
      await target.#setAside(new Set(tables));
      return target;
    } catch (error) {
      await client.end().catch(() => {});
      throw error;
    }
  }

  /** Whether a table's lines can be compared: they read as they were written. */
  async isExact(table: string, columns: readonly string[]): Promise<boolean> {
    return areLinesExact(await this.#typesOf(table, columns));
  }

  async prepare(table: string, columns: readonly string[], rows: readonly (readonly SqlValue[])[]): Promise<BulkRows> {
    const types = await this.#typesOf(table, columns);
    const lines = rows.map((row) => copyLine(row, types));
    return { text: lines.join(''), sum: hashOf(lines.map((line) => line.slice(0, -1))) };
  }

  /** Adds rows, together with a statement that notes them. */
  async write(table: string, columns: readonly string[], rows: BulkRows, note: pg.QueryConfig): Promise<void> {
    await this.client.query('BEGIN');
    try {
      if (rows.text !== '')
        await copyIn(this.client, `COPY ${table} (${columns.join(', ')}) FROM STDIN`, [Buffer.from(rows.text)]);
      await this.client.query(note);
      await this.client.query('COMMIT');
    } catch (error) {
      await this.client.query('ROLLBACK').catch(() => {});
      throw error;
    }
  }

  /** How many rows a table has, and the sum of the hashes of their lines. */
  async sumOf(table: string, columns: readonly string[]): Promise<{ readonly rows: number; readonly sum: bigint }> {
    let [rows, sum] = [0, 0n];
    for await (const group of copyOut(this.client, `COPY ${table} (${columns.join(', ')}) TO STDOUT`)) {
      rows += group.length;
      sum += hashOf(group.map((line) => line.subarray(0, line.length - 1)));
    }
    return { rows, sum: BigInt.asUintN(64, sum) };
  }

  /** Makes keys and indexes; what was interrupted goes on. */
  async putBack(onIndex: (done: number, all: number) => void | Promise<void>): Promise<void> {
    const { rows } = await this.client.query<{ place: number; sql: string }>(
      `SELECT place, sql FROM ${asideTable} ORDER BY place`,
    );
    // One after the other: each is a long work of the server's.
    for (const [done, { place, sql }] of rows.entries()) {
      await onIndex(done, rows.length);
      await this.client.query('BEGIN');
      await this.client.query(sql);
      await this.client.query(`DELETE FROM ${asideTable} WHERE place = $1`, [place]);
      await this.client.query('COMMIT');
    }
    await this.client.query(`DROP TABLE ${asideTable}`);
    // What was written without waiting for the disk is waited for.
    await this.client.query('SET synchronous_commit = on');
    await this.client.query('ANALYZE');
  }

  async close(): Promise<void> {
    await this.client.end().catch(() => {});
  }

  async #setAside(tables: ReadonlySet<string>): Promise<void> {
    const { rows } = await this.client.query<{ name: string | null }>(
      `SELECT to_regclass('${asideTable}')::text AS name`,
    );
    if (rows[0]?.name !== null) return;
    const { client } = this;
    await client.query('BEGIN');
    const before = await readSchemaShape(client);
    await this.#dropKeysAndIndexes([...tables]);
    // What is no longer there, in the order in which it is made again.
    const left = new Set((await readSchemaShape(client)).after);
    await client.query(`CREATE TABLE ${asideTable} (place INTEGER PRIMARY KEY, sql TEXT NOT NULL)`);
    const gone = before.after.filter((sql) => !left.has(sql));
    await client.query(
      `INSERT INTO ${asideTable} SELECT t.place, t.sql FROM unnest($1::text[]) WITH ORDINALITY AS t (sql, place)`,
      [gone],
    );
    await client.query('COMMIT');
  }

  async #dropKeysAndIndexes(tables: readonly string[]): Promise<void> {
    const { client } = this;
    const of = `c.relnamespace = current_schema()::regnamespace AND c.relname = ANY ($1::text[])`;
    const keys = await client.query<{ sql: string }>(
      `SELECT format('ALTER TABLE %I DROP CONSTRAINT %I', c.relname, k.conname) AS sql FROM pg_constraint k
         JOIN pg_class c ON c.oid = k.conrelid WHERE ${of} AND k.contype IN ('p', 'u', 'x', 'f') ORDER BY k.contype <> 'f'`,
      [tables],
    );
    for (const { sql } of keys.rows) await client.query(sql);
    const indexes = await client.query<{ sql: string }>(
      `SELECT format('DROP INDEX %I', x.relname) AS sql FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
         JOIN pg_class x ON x.oid = i.indexrelid WHERE ${of}`,
      [tables],
    );
    for (const { sql } of indexes.rows) await client.query(sql);
  }

  async #typesOf(table: string, columns: readonly string[]): Promise<readonly string[]> {
    const known = this.#types.get(table);
    if (known !== undefined) return known;
    const { rows } = await this.client.query<{ name: string; type: string }>(
      `SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute
        WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`,
      [table],
    );
    const byName = new Map(rows.map(({ name, type }) => [name, type]));
    const types = columns.map((column) => byName.get(column) ?? '');
    this.#types.set(table, types);
    return types;
  }
}
