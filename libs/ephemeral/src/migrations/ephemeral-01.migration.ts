import type { Migration } from '@rookery/database';

const statements = [
  `CREATE TABLE receipts_linearized (
    stream_id BIGINT NOT NULL, room_id TEXT NOT NULL, receipt_type TEXT NOT NULL, user_id TEXT NOT NULL,
    event_id TEXT NOT NULL, data TEXT NOT NULL, instance_name TEXT, event_stream_ordering BIGINT, thread_id TEXT)`,
  `CREATE UNIQUE INDEX receipts_linearized_threaded ON receipts_linearized (room_id, receipt_type, user_id, thread_id)`,
  // NULLs are distinct in a unique index: the receipts without a thread need one of their own.
  `CREATE UNIQUE INDEX receipts_linearized_unthreaded ON receipts_linearized (room_id, receipt_type, user_id)
    WHERE thread_id IS NULL`,
  `CREATE INDEX receipts_linearized_stream ON receipts_linearized (stream_id)`,
  `CREATE INDEX receipts_linearized_room_stream ON receipts_linearized (room_id, stream_id)`,
  `CREATE INDEX receipts_linearized_user ON receipts_linearized (user_id, receipt_type, stream_id)`,
  `CREATE TABLE presence_stream (
    stream_id BIGINT NOT NULL, user_id TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, last_active_ts BIGINT NOT NULL,
    last_federation_update_ts BIGINT NOT NULL, last_user_sync_ts BIGINT NOT NULL, status_msg TEXT,
    currently_active BOOLEAN NOT NULL DEFAULT FALSE, instance_name TEXT)`,
  `CREATE INDEX presence_stream_id ON presence_stream (stream_id)`,
  `CREATE INDEX presence_stream_shown ON presence_stream (stream_id) WHERE state <> 'offline'`,
];

/** Receipts, presence, and in which rooms somebody was typing when the server stopped; typing itself lives in memory. */
export const ephemeralMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'ephemeral_01_receipts_presence',
    async up(tx) {
      for (const statement of statements) await tx.run(statement);
    },
  },
  {
    version: 1,
    name: 'ephemeral_02_typing_at_stop',
    async up(tx) {
      await tx.run('CREATE TABLE typing_at_stop (room_id TEXT NOT NULL PRIMARY KEY)');
    },
  },
  {
    version: 1,
    name: 'ephemeral_03_receipts_by_event',
    cost: [{ tables: ['receipts_linearized'], secondsPerMillion: 2 }],
    async up(tx) {
      await tx.run('CREATE INDEX receipts_linearized_event ON receipts_linearized (event_id)');
    },
  },
  {
    version: 1,
    name: 'ephemeral_04_sticky_events',
    async up(tx) {
      await tx.run(`CREATE TABLE sticky_events (
        stream_id BIGINT NOT NULL PRIMARY KEY, instance_name TEXT NOT NULL, event_id TEXT NOT NULL, room_id TEXT NOT NULL,
        event_stream_ordering BIGINT NOT NULL, sender TEXT NOT NULL, expires_at BIGINT NOT NULL)`);
      await tx.run('CREATE INDEX sticky_events_room ON sticky_events (room_id, stream_id)');
      await tx.run('CREATE INDEX sticky_events_event ON sticky_events (event_id)');
      await tx.run('CREATE INDEX sticky_events_expiry ON sticky_events (expires_at)');
    },
  },
];
