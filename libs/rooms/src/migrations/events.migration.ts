import type { Tx } from '@rookery/database';

const statements = [
  `CREATE TABLE rooms (
    room_id TEXT PRIMARY KEY, is_public BOOLEAN NOT NULL DEFAULT FALSE, creator TEXT, room_version TEXT NOT NULL,
    has_auth_chain_index BOOLEAN NOT NULL DEFAULT TRUE)`,
  `CREATE INDEX rooms_public ON rooms (is_public, room_id)`,
  `CREATE TABLE events (
    event_id TEXT NOT NULL, type TEXT NOT NULL, room_id TEXT NOT NULL, sender TEXT NOT NULL, state_key TEXT,
    topological_ordering BIGINT NOT NULL, depth BIGINT NOT NULL, stream_ordering BIGINT NOT NULL,
    origin_server_ts BIGINT NOT NULL, received_ts BIGINT NOT NULL,
    processed BOOLEAN NOT NULL DEFAULT TRUE, outlier BOOLEAN NOT NULL DEFAULT FALSE,
    soft_failed BOOLEAN NOT NULL DEFAULT FALSE, contains_url BOOLEAN NOT NULL DEFAULT FALSE,
    rejection_reason TEXT, instance_name TEXT, content TEXT, unrecognized_keys TEXT)`,
  `CREATE UNIQUE INDEX events_event_id ON events (event_id)`,
  `CREATE UNIQUE INDEX events_stream ON events (stream_ordering)`,
  `CREATE INDEX events_room_stream ON events (room_id, stream_ordering)`,
  `CREATE INDEX events_order_room ON events (room_id, topological_ordering, stream_ordering)`,
  `CREATE INDEX events_room_ts ON events (room_id, origin_server_ts)`,
  `CREATE INDEX events_sender ON events (sender, room_id)`,
  `CREATE TABLE event_json (
    event_id TEXT PRIMARY KEY, room_id TEXT NOT NULL, internal_metadata TEXT NOT NULL, json TEXT NOT NULL,
    format_version INTEGER)`,
  `CREATE TABLE event_edges (
    event_id TEXT NOT NULL, prev_event_id TEXT NOT NULL, room_id TEXT, is_state BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (event_id, prev_event_id))`,
  `CREATE INDEX event_edges_prev ON event_edges (prev_event_id)`,
  `CREATE TABLE event_auth (event_id TEXT NOT NULL, auth_id TEXT NOT NULL, room_id TEXT NOT NULL)`,
  `CREATE INDEX event_auth_event ON event_auth (event_id)`,
  `CREATE TABLE event_auth_chains (
    event_id TEXT PRIMARY KEY, chain_id BIGINT NOT NULL, sequence_number BIGINT NOT NULL)`,
  `CREATE UNIQUE INDEX event_auth_chains_position ON event_auth_chains (chain_id, sequence_number)`,
  `CREATE TABLE event_auth_chain_links (
    origin_chain_id BIGINT NOT NULL, origin_sequence_number BIGINT NOT NULL,
    target_chain_id BIGINT NOT NULL, target_sequence_number BIGINT NOT NULL)`,
  `CREATE INDEX event_auth_chain_links_origin ON event_auth_chain_links (origin_chain_id, origin_sequence_number)`,
  `CREATE TABLE event_forward_extremities (event_id TEXT NOT NULL, room_id TEXT NOT NULL, UNIQUE (event_id, room_id))`,
  `CREATE INDEX event_forward_extremities_room ON event_forward_extremities (room_id)`,
  `CREATE TABLE event_backward_extremities (event_id TEXT NOT NULL, room_id TEXT NOT NULL, UNIQUE (event_id, room_id))`,
  `CREATE INDEX event_backward_extremities_room ON event_backward_extremities (room_id)`,
  `CREATE TABLE redactions (
    event_id TEXT PRIMARY KEY, redacts TEXT NOT NULL, have_censored BOOLEAN NOT NULL DEFAULT FALSE,
    received_ts BIGINT NOT NULL, recheck BOOLEAN NOT NULL DEFAULT TRUE)`,
  `CREATE INDEX redactions_redacts ON redactions (redacts)`,
  `CREATE INDEX redactions_censored ON redactions (have_censored, received_ts)`,
  `CREATE TABLE rejections (event_id TEXT PRIMARY KEY, reason TEXT NOT NULL, last_check TEXT NOT NULL)`,
  `CREATE TABLE event_relations (
    event_id TEXT PRIMARY KEY, relates_to_id TEXT NOT NULL, relation_type TEXT NOT NULL, aggregation_key TEXT)`,
  `CREATE INDEX event_relations_target ON event_relations (relates_to_id, relation_type)`,
  `CREATE TABLE threads (
    room_id TEXT NOT NULL, thread_id TEXT NOT NULL, latest_event_id TEXT NOT NULL,
    topological_ordering BIGINT NOT NULL, stream_ordering BIGINT NOT NULL, UNIQUE (room_id, thread_id))`,
  `CREATE INDEX threads_order ON threads (room_id, topological_ordering, stream_ordering)`,
  `CREATE TABLE event_txn_id_device_id (
    event_id TEXT NOT NULL, room_id TEXT NOT NULL, user_id TEXT NOT NULL, device_id TEXT NOT NULL,
    txn_id TEXT NOT NULL, inserted_ts BIGINT NOT NULL)`,
  `CREATE UNIQUE INDEX event_txn_id_device_id_txn ON event_txn_id_device_id (user_id, device_id, room_id, txn_id)`,
  `CREATE INDEX event_txn_id_device_id_event ON event_txn_id_device_id (event_id)`,
  `CREATE INDEX event_txn_id_device_id_ts ON event_txn_id_device_id (inserted_ts)`,
  `CREATE TABLE room_depth (room_id TEXT PRIMARY KEY, min_depth BIGINT)`,
  `CREATE TABLE event_failed_pull_attempts (
    room_id TEXT NOT NULL, event_id TEXT NOT NULL, num_attempts INTEGER NOT NULL, last_attempt_ts BIGINT NOT NULL,
    last_cause TEXT NOT NULL, PRIMARY KEY (room_id, event_id))`,
];

/** Rooms, events and what is known about each event. */
export async function eventsSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
