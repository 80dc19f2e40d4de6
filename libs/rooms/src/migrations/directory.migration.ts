import type { Tx } from '@rookery/database';

const statements = [
  `CREATE TABLE room_aliases (room_alias TEXT PRIMARY KEY, room_id TEXT NOT NULL, creator TEXT)`,
  `CREATE INDEX room_aliases_room ON room_aliases (room_id)`,
  `CREATE TABLE room_alias_servers (room_alias TEXT NOT NULL, server TEXT NOT NULL)`,
  `CREATE INDEX room_alias_servers_alias ON room_alias_servers (room_alias)`,
  `CREATE TABLE appservice_room_list (
    appservice_id TEXT NOT NULL, network_id TEXT NOT NULL, room_id TEXT NOT NULL,
    UNIQUE (appservice_id, network_id, room_id))`,
  `CREATE TABLE blocked_rooms (room_id TEXT PRIMARY KEY, user_id TEXT NOT NULL)`,
  `CREATE TABLE room_retention (
    room_id TEXT NOT NULL, event_id TEXT NOT NULL, min_lifetime BIGINT, max_lifetime BIGINT,
    PRIMARY KEY (room_id, event_id))`,
  `CREATE TABLE event_reports (
    id BIGINT PRIMARY KEY, received_ts BIGINT NOT NULL, room_id TEXT NOT NULL, event_id TEXT NOT NULL,
    user_id TEXT NOT NULL, reason TEXT, content TEXT)`,
  `CREATE TABLE room_reports (
    id BIGINT PRIMARY KEY, received_ts BIGINT NOT NULL, room_id TEXT NOT NULL, user_id TEXT NOT NULL, reason TEXT NOT NULL)`,
  `CREATE TABLE user_reports (
    id BIGINT PRIMARY KEY, received_ts BIGINT NOT NULL, target_user_id TEXT NOT NULL, user_id TEXT NOT NULL,
    reason TEXT NOT NULL)`,
  `CREATE TABLE room_stats_state (
    room_id TEXT PRIMARY KEY, name TEXT, canonical_alias TEXT, join_rules TEXT, history_visibility TEXT, encryption TEXT,
    avatar TEXT, guest_access TEXT, is_federatable BOOLEAN, topic TEXT, room_type TEXT)`,
  `CREATE TABLE room_stats_current (
    room_id TEXT PRIMARY KEY, current_state_events INTEGER NOT NULL DEFAULT 0, joined_members INTEGER NOT NULL DEFAULT 0,
    invited_members INTEGER NOT NULL DEFAULT 0, left_members INTEGER NOT NULL DEFAULT 0,
    banned_members INTEGER NOT NULL DEFAULT 0, knocked_members INTEGER NOT NULL DEFAULT 0,
    local_users_in_room INTEGER NOT NULL DEFAULT 0, completed_delta_stream_id BIGINT NOT NULL DEFAULT 0)`,
  `CREATE INDEX room_stats_current_joined ON room_stats_current (joined_members, room_id)`,
];

/** Aliases, the directory, reports and the per-room figures that both are listed by. */
export async function directorySchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
