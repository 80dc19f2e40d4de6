import type { Db, Tx } from '../database.js';

/** Tables that hold rows of their own, by name; not those in which SQLite keeps a full-text index. */
export async function tablesOf(db: Db): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    db.dialect.name === 'sqlite'
      ? `SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         ORDER BY name`
      : `SELECT table_name AS name FROM information_schema.tables
         WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY table_name`,
  );
  return rows.map(({ name }) => name);
}

/** Columns of a table, by name. */
export async function columnsOf(db: Db, table: string): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    db.dialect.name === 'sqlite'
      ? 'SELECT name FROM pragma_table_info(?) ORDER BY name'
      : `SELECT column_name AS name FROM information_schema.columns
         WHERE table_schema = current_schema() AND table_name = ? ORDER BY column_name`,
    [table],
  );
  return rows.map(({ name }) => name);
}

/** Lets self-numbering columns go on behind the rows that are there; SQLite does so by itself. */
export async function resetIdentities(tx: Tx, tables: readonly string[]): Promise<void> {
  if (tx.dialect.name === 'sqlite') return;
  const columns = await tx.query<{ tbl: string; col: string }>(
    `SELECT table_name AS tbl, column_name AS col FROM information_schema.columns
      WHERE table_schema = current_schema() AND is_identity = 'YES' AND ${tx.dialect.anyOf('table_name')}`,
    [tables],
  );
  // One statement each: names cannot be bound, and there are few.
  for (const { tbl, col } of columns) {
    await tx.query(
      `SELECT setval(pg_get_serial_sequence('${tbl}', '${col}'), GREATEST(1, (SELECT MAX(${col}) FROM ${tbl})),
                     EXISTS (SELECT 1 FROM ${tbl}))`,
    );
  }
}
