import type { Migration, Tx } from '@rookery/database';

/**
 * What connections were told of rooms. A room has one row for each position at which that changed; of those up to the
 * position from which a client goes on, the newest counts.
 */
const statements = [
  `CREATE TABLE sliding_sync_connections (
    connection_key BIGINT PRIMARY KEY, user_id TEXT NOT NULL, device_id TEXT NOT NULL, conn_id TEXT NOT NULL,
    base_position BIGINT NOT NULL, position BIGINT NOT NULL, created_ts BIGINT NOT NULL, last_used_ts BIGINT NOT NULL,
    UNIQUE (user_id, device_id, conn_id))`,
  `CREATE INDEX sliding_sync_connections_used ON sliding_sync_connections (last_used_ts)`,
  `CREATE TABLE sliding_sync_connection_rooms (
    connection_key BIGINT NOT NULL, room_id TEXT NOT NULL, position BIGINT NOT NULL, section TEXT NOT NULL,
    sent_up_to BIGINT, timeline_limit INTEGER NOT NULL, required_state_id TEXT NOT NULL, told INTEGER NOT NULL,
    PRIMARY KEY (connection_key, room_id, position))`,
  `CREATE TABLE sliding_sync_connection_required_state (
    connection_key BIGINT NOT NULL, required_state_id TEXT NOT NULL, required_state TEXT NOT NULL,
    PRIMARY KEY (connection_key, required_state_id))`,
];

/** Where the last change of each field of a profile lies. */
const profileStatements = [
  `CREATE TABLE profile_updates (
    user_id TEXT NOT NULL, field TEXT NOT NULL, stream_id BIGINT NOT NULL, PRIMARY KEY (user_id, field))`,
  `CREATE INDEX profile_updates_stream ON profile_updates (stream_id)`,
];

async function slidingSyncSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}

/** Tables of syncs. */
export const syncMigrations: readonly Migration[] = [
  { version: 1, name: 'sync_01_sliding', up: slidingSyncSchema },
  {
    version: 1,
    name: 'sync_02_profile_updates',
    async up(tx) {
      for (const statement of profileStatements) await tx.run(statement);
    },
  },
];
