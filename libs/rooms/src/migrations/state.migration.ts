import type { Tx } from '@rookery/database';

/**
 * `state_groups.chain_position` counts the changes since the last group that was written in full; the delta chains are
 * cut by it (see `state/state-groups.ts`). 0 means full.
 */
const statements = [
  `CREATE TABLE state_groups (
    id BIGINT PRIMARY KEY, room_id TEXT NOT NULL, event_id TEXT NOT NULL, chain_position BIGINT NOT NULL DEFAULT 0)`,
  `CREATE INDEX state_groups_room ON state_groups (room_id)`,
  `CREATE TABLE state_group_edges (state_group BIGINT NOT NULL, prev_state_group BIGINT NOT NULL)`,
  `CREATE UNIQUE INDEX state_group_edges_unique ON state_group_edges (state_group, prev_state_group)`,
  `CREATE INDEX state_group_edges_prev ON state_group_edges (prev_state_group)`,
  `CREATE TABLE state_groups_state (
    state_group BIGINT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL,
    event_id TEXT NOT NULL, PRIMARY KEY (state_group, type, state_key))`,
  `CREATE TABLE event_to_state_groups (event_id TEXT PRIMARY KEY, state_group BIGINT NOT NULL)`,
  `CREATE INDEX event_to_state_groups_group ON event_to_state_groups (state_group)`,
  `CREATE TABLE state_events (
    event_id TEXT PRIMARY KEY, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL, prev_state TEXT)`,
  `CREATE TABLE current_state_events (
    event_id TEXT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL, membership TEXT,
    event_stream_ordering BIGINT, PRIMARY KEY (room_id, type, state_key))`,
  `CREATE UNIQUE INDEX current_state_events_event ON current_state_events (event_id)`,
  `CREATE INDEX current_state_events_member ON current_state_events (state_key, room_id) WHERE type = 'm.room.member'`,
  `CREATE TABLE current_state_delta_stream (
    stream_id BIGINT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL, event_id TEXT,
    prev_event_id TEXT, instance_name TEXT)`,
  `CREATE INDEX current_state_delta_stream_id ON current_state_delta_stream (stream_id)`,
  `CREATE INDEX current_state_delta_stream_room ON current_state_delta_stream (room_id, stream_id)`,
  `CREATE TABLE room_memberships (
    event_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, sender TEXT NOT NULL, room_id TEXT NOT NULL,
    membership TEXT NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0, display_name TEXT, avatar_url TEXT,
    event_stream_ordering BIGINT NOT NULL, participant BOOLEAN NOT NULL DEFAULT FALSE)`,
  `CREATE INDEX room_memberships_user ON room_memberships (user_id, event_stream_ordering)`,
  `CREATE INDEX room_memberships_room_user ON room_memberships (room_id, user_id, event_stream_ordering)`,
  `CREATE TABLE local_current_membership (
    room_id TEXT NOT NULL, user_id TEXT NOT NULL, event_id TEXT NOT NULL, membership TEXT NOT NULL,
    event_stream_ordering BIGINT NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (user_id, room_id))`,
  `CREATE INDEX local_current_membership_room ON local_current_membership (room_id, membership)`,
];

/** State groups, current state and memberships. */
export async function stateSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
