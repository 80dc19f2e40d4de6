import { type Database, type DialectName, type Migration, migrate, type SqlValue } from '@rookery/database';
import { eachDatabase } from '@rookery/testing';
import { migrations } from '../../../apps/homeserver/src/schema.js';

/** What was added after the first servers had been set up, in any order. */
const later = new Set([
  ...['rooms_08_slim', 'rooms_09_push_notes', 'rooms_10_event_json', 'rooms_11_invite_senders'],
  ...['rooms_14_state_rows', 'rooms_15_member_deltas', 'rooms_16_event_expiry'],
  ...['push_04_threads', 'push_05_notes'],
  ...['push_06_groups', 'search_03_lean_messages', 'ephemeral_04_sticky_events', 'users_03_monthly_active_users'],
]);
const before = migrations.filter((migration) => !later.has(migration.name));
/** Tables whose rows are not to be the same afterwards. */
const excepted = new Set([
  ...['applied_schema_deltas', 'schema_version', 'schema_compat_version', 'background_updates', 'stream_cursors'],
  // Moved into the rows of the events.
  'event_push_defaults',
]);

interface Column {
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly isRequired: boolean;
}

async function columnsOf(database: Database): Promise<ReadonlyMap<string, readonly Column[]>> {
  const rows =
    database.dialect.name === 'sqlite'
      ? await database.query<{ tbl: string; col: string; type: string; required: number }>(
          `SELECT m.name AS tbl, c.name AS col, upper(c.type) AS type, c."notnull" OR c.pk > 0 AS required
           FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c
           WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND m.name NOT LIKE '%search%'`,
        )
      : await database.query<{ tbl: string; col: string; type: string; required: boolean }>(
          `SELECT table_name AS tbl, column_name AS col, upper(data_type) AS type, is_nullable = 'NO' AS required
           FROM information_schema.columns WHERE table_schema = current_schema() AND table_name NOT LIKE '%search%'`,
        );
  const byTable = new Map<string, Column[]>();
  for (const { tbl, col, type, required } of rows) {
    const column = { table: tbl, name: col, type, isRequired: Boolean(required) };
    byTable.set(tbl, [...(byTable.get(tbl) ?? []), column]);
  }
  return byTable;
}

/** Whatever the database knows about its tables, but the order of columns. */
async function shapeOf(database: Database): Promise<unknown> {
  const columns = [...(await columnsOf(database)).values()]
    .flat()
    .map(({ table, name, type, isRequired }) => `${table}.${name} ${type}${isRequired ? ' required' : ''}`);
  const indexes =
    database.dialect.name === 'sqlite'
      ? await database.query<{ text: string }>(
          `SELECT m.tbl_name || ' ' || coalesce(m.sql, '') || ' ' || i.origin || ' ' || i."unique" || ' ' ||
             (SELECT group_concat(coalesce(x.name, '?'), ', ') FROM pragma_index_info(i.name) x) AS text
           FROM sqlite_master t JOIN pragma_index_list(t.name) i LEFT JOIN sqlite_master m ON m.name = i.name
           WHERE t.type = 'table' AND t.name NOT LIKE '%search\\_%' ESCAPE '\\'`,
        )
      : await database.query<{ text: string }>(
          `SELECT indexdef AS text FROM pg_indexes WHERE schemaname = current_schema()
           UNION ALL SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
           WHERE connamespace = current_schema()::regnamespace AND contype <> 'n'`,
        );
  return [...columns, ...indexes.map((row) => row.text)].sort();
}

const rowCount = 5;

/** Something that fits a column. Equal names have equal values in a row of the same number. */
function valueFor({ name, type, isRequired }: Column, n: number): SqlValue {
  if (!isRequired && n % 2 === 1) return null;
  if (name === 'stream_ordering') return n - 2;
  if (/INT|NUMERIC|REAL|DOUBLE/.test(type)) return n;
  if (type === 'BOOLEAN') return n % 3 === 0;
  if (type === 'BLOB' || type === 'BYTEA') return new Uint8Array([n, 0, 255]);
  if (/^CHAR/.test(type)) return 'X';
  return `${name} ${n} ü`;
}

async function fill(database: Database): Promise<void> {
  for (const [table, columns] of await columnsOf(database)) {
    if (['applied_schema_deltas', 'schema_version', 'schema_compat_version', 'background_updates'].includes(table))
      continue;
    const rows = Array.from({ length: rowCount }, (_, n) => columns.map((column) => valueFor(column, n)));
    await database.write((tx) =>
      tx.insertMany(
        table,
        columns.map((column) => `"${column.name}"`),
        rows,
        database.dialect.name === 'postgres' ? 'ON CONFLICT DO NOTHING' : '',
      ),
    );
  }
}

/** All rows of the tables there were, by the columns there were. */
async function contentOf(database: Database, tables: ReadonlyMap<string, readonly Column[]>): Promise<unknown> {
  const content: Record<string, string[]> = {};
  for (const [table, columns] of tables) {
    if (excepted.has(table)) continue;
    const names = columns.map((column) => `"${column.name}"`).sort();
    const rows = await database.query(`SELECT ${names.join(', ')} FROM ${table}`);
    content[table] = rows.map((row) => JSON.stringify(row)).sort();
  }
  return content;
}

eachDatabase('a server that was set up earlier', (open, kind: DialectName) => {
  it('has the same tables after its upgrade as a new one, with everything in them, whenever it was interrupted', async () => {
    const fresh = await open();
    await fresh.migrate(migrations);
    const shape = await shapeOf(fresh.database);
    await fresh.close();

    const test = await open();
    await test.migrate(before);
    await fill(test.database);
    const tables = await columnsOf(test.database);
    const content = await contentOf(test.database, tables);
    expect(Object.values(content as Record<string, string[]>).filter((rows) => rows.length > 0).length).toBeGreaterThan(
      60,
    );

    const interrupted = (name: string): readonly Migration[] =>
      migrations.map((migration) =>
        migration.name !== name
          ? migration
          : {
              ...migration,
              up: async (tx) => {
                await migration.up(tx);
                throw new Error('power failed');
              },
            },
      );
    for (const { name } of migrations.filter((migration) => later.has(migration.name))) {
      await expect(migrate(test.database, interrupted(name))).rejects.toThrow('power failed');
    }
    await test.migrate(migrations);
    expect(await shapeOf(test.database)).toEqual(shape);
    expect(await contentOf(test.database, tables)).toEqual(content);
    const again = await migrate(test.database, migrations);
    expect(again.applied).toEqual([]);

    const texts = await test.database.query(
      `SELECT e.stream_ordering, e.event_id, j.json FROM events e JOIN event_json j USING (stream_ordering)
       WHERE j.event_id = e.event_id ORDER BY 1`,
    );
    expect(texts).toHaveLength(rowCount);
    const notes = await test.database.query('SELECT push_thread FROM events WHERE push_thread IS NOT NULL');
    expect([kind, notes.length]).toEqual([kind, rowCount]);
    await test.close();
  });
});
