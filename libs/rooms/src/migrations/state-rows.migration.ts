import type { MigrationCost, Tx } from '@rookery/database';

/** What SQLite writes anew; the key is the way in which the rows are read, so that no index beside the table is needed. */
const rebuilt: readonly (readonly [table: string, columns: string, end: string])[] = [
  [
    'state_groups',
    `id INTEGER PRIMARY KEY, room_id TEXT NOT NULL, event_id TEXT NOT NULL, chain_position BIGINT NOT NULL DEFAULT 0`,
    '',
  ],
  [
    'current_state_delta_stream',
    `stream_id BIGINT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL, event_id TEXT,
     prev_event_id TEXT, instance_name TEXT, PRIMARY KEY (stream_id, type, state_key)`,
    'WITHOUT ROWID',
  ],
  [
    'event_auth',
    `event_id TEXT NOT NULL, auth_id TEXT NOT NULL, room_id TEXT NOT NULL, PRIMARY KEY (event_id, auth_id)`,
    'WITHOUT ROWID',
  ],
  [
    'event_auth_chain_links',
    `origin_chain_id BIGINT NOT NULL, origin_sequence_number BIGINT NOT NULL, target_chain_id BIGINT NOT NULL,
     target_sequence_number BIGINT NOT NULL,
     PRIMARY KEY (origin_chain_id, origin_sequence_number, target_chain_id, target_sequence_number)`,
    'WITHOUT ROWID',
  ],
];

const indexesOnSqlite = [
  `CREATE INDEX state_groups_room ON state_groups (room_id)`,
  `CREATE INDEX current_state_delta_stream_room ON current_state_delta_stream (room_id, stream_id)`,
];

/** What the step goes over. */
export const stateRowsCost: readonly MigrationCost[] = [
  { on: 'sqlite', tables: rebuilt.map(([table]) => table), secondsPerMillion: 4, rewrites: true },
];

/** Fewer pages for each change of state: an index that nobody asks goes, and on SQLite four tables become their own. */
export async function stateRowsSchema(tx: Tx): Promise<void> {
  await tx.run('DROP INDEX current_state_events_event');
  if (tx.dialect.name === 'postgres') return;
  for (const [table, columns, end] of rebuilt) {
    await tx.run(`CREATE TABLE ${table}_lean (${columns}) ${end}`);
    const names = (await tx.query<{ name: string }>(`SELECT name FROM pragma_table_info('${table}_lean')`))
      .map((column) => column.name)
      .join(', ');
    await tx.run(`INSERT OR IGNORE INTO ${table}_lean (${names}) SELECT ${names} FROM ${table}`);
    await tx.run(`DROP TABLE ${table}`);
    await tx.run(`ALTER TABLE ${table}_lean RENAME TO ${table}`);
  }
  for (const index of indexesOnSqlite) await tx.run(index);
}
