import type { Tx } from '@rookery/database';

const statements = [
  // The stream position of the devices at the join belongs to the table of the field; nothing here needs it.
  `CREATE TABLE partial_state_rooms (
    room_id TEXT PRIMARY KEY, device_lists_stream_id BIGINT NOT NULL DEFAULT 0, join_event_id TEXT, joined_via TEXT)`,
  `CREATE TABLE partial_state_rooms_servers (
    room_id TEXT NOT NULL, server_name TEXT NOT NULL, UNIQUE (room_id, server_name))`,
  `CREATE TABLE partial_state_events (room_id TEXT NOT NULL, event_id TEXT NOT NULL, UNIQUE (event_id))`,
  `CREATE INDEX partial_state_events_room ON partial_state_events (room_id)`,
  `CREATE TABLE un_partial_stated_room_stream (
    stream_id BIGINT PRIMARY KEY, instance_name TEXT NOT NULL, room_id TEXT NOT NULL)`,
  `CREATE INDEX un_partial_stated_room_stream_room ON un_partial_stated_room_stream (room_id, stream_id)`,
];

/** Rooms that were joined before their state was here, and the events that came meanwhile. */
export async function partialStateSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
