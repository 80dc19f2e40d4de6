import type { Db } from './database.js';

/** A table that a statement is given, and the one value to bind for it. */
export interface GivenRows {
  readonly sql: string;
  readonly value: string;
}

/**
 * Rows of texts as a table `w` with some columns, for what is looked for by several of them together: of lists for each column everything in
 * one would be looked for with everything in the others. `CROSS JOIN` behind it makes SQLite begin with these rows.
 */
export function givenRows(
  { dialect }: Pick<Db, 'dialect'>,
  columns: readonly string[],
  rows: readonly (readonly string[])[],
): GivenRows {
  const isSqlite = dialect.name === 'sqlite';
  const selected = columns.map((name, at) =>
    isSqlite ? `json_extract(value, '$[${at}]') AS ${name}` : `value ->> ${at} AS ${name}`,
  );
  return {
    sql: `(SELECT ${selected.join(', ')} FROM ${isSqlite ? 'json_each(?)' : 'json_array_elements(CAST(? AS JSON))'}) AS w`,
    // PostgreSQL takes no halves of surrogates out of JSON; as a parameter of their own they would be replaced as well.
    value: JSON.stringify(rows.map((row) => row.map((text) => text.toWellFormed()))),
  };
}
