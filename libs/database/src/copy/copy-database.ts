import type { Database, Db, SqlValue, Tx } from '../database.js';
import { DatabaseError } from '../errors.js';
import type { DatabaseOptions } from '../options.js';
import { passOnRestored, restoredMarkers } from '../restored.query.js';
import { readSchemaState } from '../schema-state.js';
import type { BulkTarget } from './bulk-rows.query.js';
import { type Cursor, nextPage, pageSourceOf } from './pages.js';
import { hashOf } from './row-hashes.js';
import { columnsOf, resetIdentities, tablesOf } from './tables.js';

/** For {@link copyDatabase}. */
export interface CopyOptions {
  /** Tables that are made anew from the others, and are not copied. */
  readonly derived?: ReadonlySet<string>;
  /** Tables that lie elsewhere, or stay where they are, and are not copied. */
  readonly except?: ReadonlySet<string>;
  /** Only these are copied, whatever else the databases hold; the target must have them, and nothing in them. */
  readonly only?: readonly string[];
  /** Tables whose rows come from another database in place of the source. */
  readonly from?: { readonly database: Database; readonly tables: readonly string[] };
  /** The copy stays open to be gone on with until {@link finishCopy}, because it is a part of a larger one. */
  readonly isPart?: boolean;
  /** Where the target is: one of PostgreSQL is filled in bulk, on a connection of its own. */
  readonly targetOptions?: DatabaseOptions;
  /** Told after each page; waited for. */
  readonly onProgress?: (table: string, rows: number) => void | Promise<void>;
  /** Put right within the target once everything is there. */
  readonly finish?: (source: Db, tx: Tx) => Promise<void>;
}

/** What was copied of a table. */
export interface CopiedTable {
  readonly table: string;
  readonly rows: number;
}

interface Progress {
  /** Nothing of it was copied yet where there is none. */
  readonly cursor: Cursor | undefined;
  readonly rows: number;
  /** Sum of the rows' hashes, so that their order does not matter. */
  readonly sum: bigint;
  readonly finished: boolean;
}

/** Where a copy that was interrupted goes on; gone once it is finished. */
const progressTable = 'database_move_progress';
const bookkeeping = new Set([
  'schema_version',
  'schema_compat_version',
  'applied_schema_deltas',
  progressTable,
  'database_move_indexes',
  ...restoredMarkers,
]);
const pageRows = 5_000;
const mask = (1n << 64n) - 1n;

/**
 * Copies every row of a database into another one, whose schema is the same and which holds nothing yet, or what an interrupted
 * copy has left. Nobody may use either meanwhile. At the end each table is read back and compared by count and hash. Between the
 * interruption and now somebody may have used the source: what was copied before is compared with what is there now. A copy of a
 * whole database that was put back to an earlier day, and that no server has begun on, is one that was put back, too.
 * @throws DatabaseError when the databases do not fit, what was copied has changed since, or what arrived is not what was sent
 */
export async function copyDatabase(
  source: Database,
  target: Database,
  options: CopyOptions = {},
): Promise<CopiedTable[]> {
  const tables = options.only ?? (await tablesToCopy(source, target, options));
  await begin(target, tables, options.only);
  const bulk = await openBulk(target, tables, options);
  const copied: CopiedTable[] = [];
  try {
    for (const table of tables) {
      const from = options.from?.tables.includes(table) ? options.from.database : source;
      const { cursor: begun } = await progressOf(target, table);
      const sent = await copyTable(from, target, bulk, table, options.onProgress);
      if (begun !== undefined) await compareWithSource(from, target, bulk, table, sent, options.onProgress);
      copied.push({ table, rows: sent.rows });
    }
    for (const table of tables) await compare(target, bulk, table);
    await bulk?.putBack((done, all) => options.onProgress?.(`keys and indexes, of ${all}`, done));
  } finally {
    await bulk?.close();
  }
  await target.write(
    async (tx) => {
      await resetIdentities(tx, tables);
      if (options.only === undefined) await passOnRestored(source, tx);
      await options.finish?.(source, tx);
      if (!options.isPart) await tx.run(`DROP TABLE ${progressTable}`);
    },
    { name: 'move_finish', limitMs: Infinity },
  );
  return copied;
}

/** Ends a copy that was a part of a larger one. */
export async function finishCopy(target: Database): Promise<void> {
  await target.write((tx) => tx.run(`DROP TABLE ${progressTable}`), { name: 'move_finish', limitMs: Infinity });
}

async function openBulk(
  target: Database,
  tables: readonly string[],
  { targetOptions }: CopyOptions,
): Promise<BulkTarget | undefined> {
  if (target.dialect.name !== 'postgres' || targetOptions === undefined || targetOptions.name === 'sqlite3')
    return undefined;
  return (await import('./bulk-rows.query.js')).BulkTarget.open(targetOptions, tables);
}

async function tablesToCopy(
  source: Database,
  target: Database,
  { derived = new Set(), except = new Set(), from: other }: CopyOptions,
): Promise<string[]> {
  const deltasOf = async (db: Db): Promise<string> =>
    (await readSchemaState(db)).applied.map(({ version, file }) => `${version} ${file}`).join();
  if ((await deltasOf(source)) !== (await deltasOf(target))) {
    throw new DatabaseError(
      'The databases do not have the same schema',
      'Start this version of the server once on the old database, stop it, and try again.',
    );
  }
  const to = new Set(await tablesOf(target));
  const from = new Set([...(await tablesOf(source)), ...(other?.tables ?? [])]);
  const wanted = [...from]
    .filter((table) => !bookkeeping.has(table) && !derived.has(table) && !except.has(table))
    .sort();
  const missing = wanted.filter((table) => !to.has(table));
  if (missing.length > 0) {
    throw new DatabaseError(
      `The new database has no tables ${missing.join(', ')}: they belong to modules, or to background updates under way`,
      'Let background updates finish; remove the modules with what they stored (rookery module remove), or copy these tables by hand first.',
    );
  }
  return wanted;
}

/** @throws DatabaseError when the target holds something that no copy of before has put there */
async function begin(target: Database, tables: readonly string[], only: readonly string[] = []): Promise<void> {
  const isResumed = (await tablesOf(target)).includes(progressTable);
  if (isResumed) return;
  await target.write(
    async (tx) => {
      // What the migrations themselves put into an empty database comes with the rest.
      for (const table of tables) {
        if (table === 'users' || table === 'events' || only.includes(table)) {
          if ((await tx.get(`SELECT 1 AS found FROM ${table} LIMIT 1`)) !== undefined)
            throw new DatabaseError(
              `The new database is not empty: there are rows in ${table}`,
              only.includes(table)
                ? 'Delete what is left there of earlier, or give an empty one.'
                : 'Give an empty one.',
            );
        }
        await tx.run(`DELETE FROM ${table}`);
      }
      await tx.run(
        `CREATE TABLE ${progressTable} (
           table_name TEXT PRIMARY KEY, cursor_json TEXT NOT NULL, row_count BIGINT NOT NULL, hash_sum TEXT NOT NULL,
           finished SMALLINT NOT NULL)`,
      );
    },
    { name: 'move_begin', limitMs: Infinity },
  );
}

async function progressOf(target: Db, table: string): Promise<Progress> {
  const row = await target.get<{ cursor_json: string; row_count: number; hash_sum: string; finished: number }>(
    `SELECT cursor_json, row_count, hash_sum, finished FROM ${progressTable} WHERE table_name = ?`,
    [table],
  );
  if (row === undefined) return { cursor: undefined, rows: 0, sum: 0n, finished: false };
  return {
    cursor: JSON.parse(row.cursor_json) as Cursor,
    rows: row.row_count,
    sum: BigInt(row.hash_sum),
    finished: row.finished === 1,
  };
}

const noteProgress = `INSERT INTO ${progressTable} (table_name, cursor_json, row_count, hash_sum, finished) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (table_name) DO UPDATE SET cursor_json = excluded.cursor_json, row_count = excluded.row_count,
    hash_sum = excluded.hash_sum, finished = excluded.finished`;

async function copyTable(
  source: Database,
  target: Database,
  bulk: BulkTarget | undefined,
  table: string,
  onProgress: CopyOptions['onProgress'],
): Promise<Progress> {
  const columns = await columnsOf(target, table);
  const pages = await pageSourceOf(source, table);
  const areLines = (await bulk?.isExact(table, columns)) ?? false;
  let progress = await progressOf(target, table);
  // While a page is written the next one is read.
  let writing: Promise<void> = Promise.resolve();
  while (!progress.finished) {
    const { rows, cursor, finished } = await nextPage(source, pages, columns, progress.cursor ?? null, pageRows);
    const lines = await bulk?.prepare(table, columns, rows);
    const sum = areLines && lines !== undefined ? lines.sum : sumOf(rows);
    progress = { cursor, rows: progress.rows + rows.length, sum: (progress.sum + sum) & mask, finished };
    const { rows: total, sum: all } = progress;
    const note = [table, JSON.stringify(cursor), total, String(all), finished ? 1 : 0];
    await writing;
    const written =
      bulk !== undefined && lines !== undefined
        ? bulk.write(table, columns, lines, { text: numbered(noteProgress), values: note })
        : target.write(
            async (tx) => {
              await tx.insertMany(table, columns, rows);
              await tx.run(noteProgress, note);
            },
            { name: 'move_rows', limitMs: Infinity },
          );
    writing = written.then(() => onProgress?.(table, total));
    // Its failure is met where it is waited for.
    writing.catch(() => {});
  }
  await writing;
  return progress;
}

/** @throws DatabaseError when the source does not hold any more what was copied of it before an interruption */
async function compareWithSource(
  source: Database,
  target: Database,
  bulk: BulkTarget | undefined,
  table: string,
  sent: Progress,
  onProgress: CopyOptions['onProgress'],
): Promise<void> {
  const columns = await columnsOf(target, table);
  const areLines = (await bulk?.isExact(table, columns)) ?? false;
  const { rows, sum } = await sumInPages(source, table, columns, {
    sumOf: async (page) => (areLines && bulk ? (await bulk.prepare(table, columns, page)).sum : sumOf(page)),
    onPage: (done) => onProgress?.(`${table}, compared with the old database`, done),
  });
  if (rows === sent.rows && sum === sent.sum) return;
  throw new DatabaseError(
    `${table} has changed in the old database since the copy began: what is in the new one does not belong together`,
    'Somebody wrote to the old database after the copy was interrupted, probably the server. Stop it, and begin anew with an empty new database.',
  );
}

/** For a connection that does not know `?`. */
function numbered(sql: string): string {
  let number = 0;
  return sql.replaceAll('?', () => `$${++number}`);
}

async function compare(target: Database, bulk: BulkTarget | undefined, table: string): Promise<void> {
  const sent = await progressOf(target, table);
  const columns = await columnsOf(target, table);
  const { rows, sum } =
    bulk !== undefined && (await bulk.isExact(table, columns))
      ? await bulk.sumOf(table, columns)
      : await sumInPages(target, table, columns);
  if (rows !== sent.rows || sum !== sent.sum) {
    throw new DatabaseError(
      `${table} did not arrive as it was sent: ${rows} rows of ${sent.rows}, hash ${sum} in place of ${sent.sum}`,
      'The old database is as it was. Begin anew with an empty new one.',
    );
  }
}

async function sumInPages(
  db: Database,
  table: string,
  columns: readonly string[],
  how: {
    readonly sumOf?: (rows: readonly (readonly SqlValue[])[]) => Promise<bigint>;
    readonly onPage?: (rows: number) => void | Promise<void>;
  } = {},
): Promise<{ readonly rows: number; readonly sum: bigint }> {
  const pages = await pageSourceOf(db, table);
  let cursor: Cursor = null;
  let [rows, sum] = [0, 0n];
  for (let finished = false; !finished;) {
    const page = await nextPage(db, pages, columns, cursor, pageRows);
    ({ cursor, finished } = page);
    rows += page.rows.length;
    sum = (sum + (await (how.sumOf?.(page.rows) ?? sumOf(page.rows)))) & mask;
    await how.onPage?.(rows);
  }
  return { rows, sum };
}

/** The same on both databases, whatever the order of the rows. */
const sumOf = (rows: readonly (readonly SqlValue[])[]): bigint =>
  hashOf(rows.map((row) => JSON.stringify(row.map(plain))));

function plain(value: SqlValue): unknown {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (typeof value === 'bigint') return String(value);
  if (value instanceof Uint8Array) return { hex: Buffer.from(value).toString('hex') };
  return value;
}
