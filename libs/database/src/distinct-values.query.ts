import type { Db } from './database.js';

/**
 * The texts that a column holds, in order. Each is found by an index that has to begin with the column: what is asked costs what there are
 * of them, and not what there are of rows, which a DISTINCT goes through one by one.
 */
export async function distinctValues(db: Db, table: string, column: string): Promise<string[]> {
  const rows = await db.query<{ value: string }>(
    `WITH RECURSIVE found(value) AS (
       SELECT MIN(${column}) FROM ${table}
       UNION ALL
       SELECT (SELECT MIN(t.${column}) FROM ${table} t WHERE t.${column} > f.value) FROM found f WHERE f.value IS NOT NULL)
     SELECT value FROM found WHERE value IS NOT NULL`,
  );
  return rows.map((row) => row.value);
}
