import type { MigrationCost, Tx } from '@rookery/database';

/**
 * What SQLite writes anew, so that each row lies where it is looked for: a table without row ids is its own index, and the
 * stream ordering is the events' row id. Every page less in a commit is time that the sender of a message does not wait.
 */
const rebuilt: readonly (readonly [table: string, columns: string, end: string])[] = [
  [
    'events',
    `event_id TEXT NOT NULL, type TEXT NOT NULL, room_id TEXT NOT NULL, sender TEXT NOT NULL, state_key TEXT,
     topological_ordering BIGINT NOT NULL, depth BIGINT NOT NULL, stream_ordering INTEGER PRIMARY KEY,
     origin_server_ts BIGINT NOT NULL, received_ts BIGINT NOT NULL,
     processed BOOLEAN NOT NULL DEFAULT TRUE, outlier BOOLEAN NOT NULL DEFAULT FALSE,
     soft_failed BOOLEAN NOT NULL DEFAULT FALSE, contains_url BOOLEAN NOT NULL DEFAULT FALSE,
     rejection_reason TEXT, instance_name TEXT, content TEXT, unrecognized_keys TEXT`,
    '',
  ],
  ['event_to_state_groups', `event_id TEXT NOT NULL PRIMARY KEY, state_group BIGINT NOT NULL`, 'WITHOUT ROWID'],
  [
    'event_forward_extremities',
    `event_id TEXT NOT NULL, room_id TEXT NOT NULL, PRIMARY KEY (room_id, event_id)`,
    'WITHOUT ROWID',
  ],
  [
    'event_txn_id_device_id',
    `event_id TEXT NOT NULL, room_id TEXT NOT NULL, user_id TEXT NOT NULL, device_id TEXT NOT NULL,
     txn_id TEXT NOT NULL, inserted_ts BIGINT NOT NULL, PRIMARY KEY (room_id, user_id, device_id, txn_id)`,
    'WITHOUT ROWID',
  ],
  [
    'state_group_edges',
    `state_group BIGINT NOT NULL, prev_state_group BIGINT NOT NULL, PRIMARY KEY (state_group, prev_state_group)`,
    'WITHOUT ROWID',
  ],
  [
    'state_groups_state',
    `state_group BIGINT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL,
     event_id TEXT NOT NULL, PRIMARY KEY (state_group, type, state_key)`,
    'WITHOUT ROWID',
  ],
  [
    'current_state_events',
    `event_id TEXT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL, membership TEXT,
     event_stream_ordering BIGINT, PRIMARY KEY (room_id, type, state_key)`,
    'WITHOUT ROWID',
  ],
  [
    'event_auth_chains',
    `event_id TEXT NOT NULL PRIMARY KEY, chain_id BIGINT NOT NULL, sequence_number BIGINT NOT NULL, generation BIGINT`,
    'WITHOUT ROWID',
  ],
  [
    'state_events',
    `event_id TEXT NOT NULL PRIMARY KEY, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL,
     prev_state TEXT`,
    'WITHOUT ROWID',
  ],
  [
    'room_memberships',
    `event_id TEXT NOT NULL PRIMARY KEY, user_id TEXT NOT NULL, sender TEXT NOT NULL, room_id TEXT NOT NULL,
     membership TEXT NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0, display_name TEXT, avatar_url TEXT,
     event_stream_ordering BIGINT NOT NULL, participant BOOLEAN NOT NULL DEFAULT FALSE`,
    'WITHOUT ROWID',
  ],
  [
    'local_current_membership',
    `room_id TEXT NOT NULL, user_id TEXT NOT NULL, event_id TEXT NOT NULL, membership TEXT NOT NULL,
     event_stream_ordering BIGINT NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (user_id, room_id)`,
    'WITHOUT ROWID',
  ],
  [
    'room_stats_current',
    `room_id TEXT NOT NULL PRIMARY KEY, current_state_events INTEGER NOT NULL DEFAULT 0,
     joined_members INTEGER NOT NULL DEFAULT 0, invited_members INTEGER NOT NULL DEFAULT 0,
     left_members INTEGER NOT NULL DEFAULT 0, banned_members INTEGER NOT NULL DEFAULT 0,
     knocked_members INTEGER NOT NULL DEFAULT 0, local_users_in_room INTEGER NOT NULL DEFAULT 0,
     completed_delta_stream_id BIGINT NOT NULL DEFAULT 0`,
    'WITHOUT ROWID',
  ],
];

const indexesOnSqlite = [
  `CREATE UNIQUE INDEX events_event_id ON events (event_id)`,
  `CREATE INDEX events_room_stream ON events (room_id, stream_ordering)`,
  `CREATE INDEX events_order_room ON events (room_id, topological_ordering, stream_ordering)`,
  `CREATE INDEX events_room_ts ON events (room_id, origin_server_ts)`,
  `CREATE INDEX event_to_state_groups_group ON event_to_state_groups (state_group)`,
  `CREATE INDEX event_txn_id_device_id_ts ON event_txn_id_device_id (inserted_ts)`,
  `CREATE INDEX state_group_edges_prev ON state_group_edges (prev_state_group)`,
  `CREATE UNIQUE INDEX current_state_events_event ON current_state_events (event_id)`,
  `CREATE INDEX current_state_events_member ON current_state_events (state_key, room_id) WHERE type = 'm.room.member'`,
  `CREATE UNIQUE INDEX event_auth_chains_position ON event_auth_chains (chain_id, sequence_number)`,
  `CREATE INDEX room_memberships_user ON room_memberships (user_id, event_stream_ordering)`,
  `CREATE INDEX room_memberships_room_user ON room_memberships (room_id, user_id, event_stream_ordering)`,
  `CREATE INDEX local_current_membership_room ON local_current_membership (room_id, membership)`,
  `CREATE INDEX room_stats_current_joined ON room_stats_current (joined_members, room_id)`,
];

const onPostgres = [
  `DROP INDEX events_sender`,
  `DROP INDEX event_txn_id_device_id_txn`,
  `DROP INDEX event_txn_id_device_id_event`,
  `DROP INDEX event_txn_id_device_id_ts`,
  `ALTER TABLE event_txn_id_device_id ADD PRIMARY KEY (room_id, user_id, device_id, txn_id)`,
  // Rows come in the order of their time: a range of blocks says enough about them, in next to no space.
  `CREATE INDEX event_txn_id_device_id_ts ON event_txn_id_device_id USING BRIN (inserted_ts) WITH (pages_per_range = 16)`,
  `ALTER TABLE event_forward_extremities DROP CONSTRAINT event_forward_extremities_event_id_room_id_key`,
  `DROP INDEX event_forward_extremities_room`,
  `ALTER TABLE event_forward_extremities ADD PRIMARY KEY (room_id, event_id)`,
];

/** What the step goes over. */
export const slimCost: readonly MigrationCost[] = [
  { on: 'sqlite', tables: rebuilt.map(([table]) => table), secondsPerMillion: 5, rewrites: true },
  { on: 'postgres', tables: ['event_txn_id_device_id', 'event_forward_extremities'], secondsPerMillion: 2 },
];

/** Keys and indexes that the storing of an event does not have to wait for. */
export async function slimSchema(tx: Tx): Promise<void> {
  if (tx.dialect.name === 'postgres') {
    for (const statement of onPostgres) await tx.run(statement);
    return;
  }
  for (const [table, columns, end] of rebuilt) {
    await tx.run(`CREATE TABLE ${table}_slim (${columns}) ${end}`);
    const names = (await tx.query<{ name: string }>(`SELECT name FROM pragma_table_info('${table}_slim')`))
      .map((column) => column.name)
      .join(', ');
    await tx.run(`INSERT INTO ${table}_slim (${names}) SELECT ${names} FROM ${table}`);
    await tx.run(`DROP TABLE ${table}`);
    await tx.run(`ALTER TABLE ${table}_slim RENAME TO ${table}`);
  }
  for (const index of indexesOnSqlite) await tx.run(index);
}
