import type { Db, SqlValue } from '../database.js';

/** Behind which row, or block, the next page begins; `null` at the beginning. */
export type Cursor = readonly (string | number)[] | null;

/** How the rows of a table are gone through, each once, while nothing changes them. */
export interface PageSource {
  readonly table: string;
  /** Blocks of PostgreSQL; on SQLite the row id, or the key of a table without row ids. */
  readonly by: 'blocks' | readonly string[];
}

export interface Page {
  readonly rows: readonly (readonly SqlValue[])[];
  readonly cursor: Cursor;
  readonly finished: boolean;
}

const blocksPerPage = 200;

export async function pageSourceOf(db: Db, table: string): Promise<PageSource> {
  if (db.dialect.name === 'postgres') return { table, by: 'blocks' };
  const key = await db.query<{ name: string }>(
    `SELECT name FROM pragma_table_info('${table}') WHERE pk > 0 ORDER BY pk`,
  );
  const made = await db.get<{ wr: number }>(`SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?`, [
    table,
  ]);
  return { table, by: made?.wr === 1 ? key.map(({ name }) => name) : ['rowid'] };
}

/** The next rows of a table, about `limit`, columns in the order given. */
export async function nextPage(
  db: Db,
  { table, by }: PageSource,
  columns: readonly string[],
  cursor: Cursor,
  limit: number,
): Promise<Page> {
  const list = columns.join(', ');
  if (by === 'blocks') {
    const first = Number(cursor?.[0] ?? 0);
    const size = await db.get<{ blocks: number }>(
      "SELECT pg_relation_size(to_regclass(?)) / current_setting('block_size')::BIGINT AS blocks",
      [table],
    );
    const rows = await db.query<Record<string, SqlValue>>(
      `SELECT ${list} FROM ${table} WHERE ctid >= '(${first},0)'::tid AND ctid < '(${first + blocksPerPage},0)'::tid`,
    );
    const next = first + blocksPerPage;
    return {
      rows: rows.map((row) => valuesOf(row, columns)),
      cursor: [next],
      finished: next >= Number(size?.blocks ?? 0),
    };
  }
  const keys = by.map((name, i) => `${name} AS key_${i}`).join(', ');
  const behind = cursor === null ? '' : `WHERE (${by.join(', ')}) > (${by.map(() => '?').join(', ')})`;
  const rows = await db.query<Record<string, SqlValue>>(
    `SELECT ${keys}, ${list} FROM ${table} ${behind} ORDER BY ${by.join(', ')} LIMIT ${limit}`,
    cursor ?? [],
  );
  const last = rows.at(-1);
  return {
    rows: rows.map((row) => valuesOf(row, columns)),
    cursor: last === undefined ? cursor : by.map((_, i) => last[`key_${i}`] as string | number),
    finished: rows.length < limit,
  };
}

const valuesOf = (row: Readonly<Record<string, SqlValue>>, columns: readonly string[]): SqlValue[] =>
  columns.map((column) => row[column] ?? null);
