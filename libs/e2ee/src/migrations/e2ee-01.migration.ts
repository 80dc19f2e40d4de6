import type { Migration } from '@rookery/database';
import { dropLeftInboxes, leftInboxesSchema } from './left-inboxes.migration.js';

/**
 * `e2e_one_time_keys_json` keeps claimed keys for a while (`claimed_ts`), so that an upload that is sent again cannot bring
 * one back; `upload_order` is the order in which keys are handed out. `e2e_room_keys_versions.key_count` saves counting.
 */
const statements = [
  `CREATE TABLE e2e_device_keys_json (
    user_id TEXT NOT NULL, device_id TEXT NOT NULL, ts_added_ms BIGINT NOT NULL, key_json TEXT NOT NULL,
    PRIMARY KEY (user_id, device_id))`,
  `CREATE TABLE e2e_one_time_keys_json (
    user_id TEXT NOT NULL, device_id TEXT NOT NULL, algorithm TEXT NOT NULL, key_id TEXT NOT NULL,
    ts_added_ms BIGINT NOT NULL, key_json TEXT NOT NULL, upload_order BIGINT NOT NULL DEFAULT 0, claimed_ts BIGINT,
    PRIMARY KEY (user_id, device_id, algorithm, key_id))`,
  `CREATE INDEX e2e_one_time_keys_next ON e2e_one_time_keys_json (user_id, device_id, algorithm, upload_order, key_id)
    WHERE claimed_ts IS NULL`,
  `CREATE TABLE e2e_fallback_keys_json (
    user_id TEXT NOT NULL, device_id TEXT NOT NULL, algorithm TEXT NOT NULL, key_id TEXT NOT NULL, key_json TEXT NOT NULL,
    used BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (user_id, device_id, algorithm))`,
  `CREATE TABLE e2e_cross_signing_keys (
    user_id TEXT NOT NULL, keytype TEXT NOT NULL, keydata TEXT NOT NULL, stream_id BIGINT NOT NULL,
    updatable_without_uia_before_ms BIGINT, instance_name TEXT, PRIMARY KEY (user_id, keytype, stream_id))`,
  `CREATE UNIQUE INDEX e2e_cross_signing_keys_stream ON e2e_cross_signing_keys (stream_id)`,
  `CREATE TABLE e2e_cross_signing_signatures (
    user_id TEXT NOT NULL, key_id TEXT NOT NULL, target_user_id TEXT NOT NULL, target_device_id TEXT NOT NULL,
    signature TEXT NOT NULL, PRIMARY KEY (target_user_id, target_device_id, user_id, key_id))`,
  `CREATE INDEX e2e_cross_signing_signatures_user ON e2e_cross_signing_signatures (user_id)`,
  `CREATE TABLE user_signature_stream (
    stream_id BIGINT NOT NULL PRIMARY KEY, from_user_id TEXT NOT NULL, user_ids TEXT NOT NULL, instance_name TEXT)`,
  `CREATE INDEX user_signature_stream_user ON user_signature_stream (from_user_id, stream_id)`,
  `CREATE TABLE device_lists_stream (
    stream_id BIGINT NOT NULL, user_id TEXT NOT NULL, device_id TEXT NOT NULL, instance_name TEXT,
    PRIMARY KEY (user_id, device_id))`,
  `CREATE INDEX device_lists_stream_id ON device_lists_stream (stream_id, user_id)`,
  `CREATE TABLE device_inbox (
    user_id TEXT NOT NULL, device_id TEXT NOT NULL, stream_id BIGINT NOT NULL, message_json TEXT NOT NULL,
    instance_name TEXT, PRIMARY KEY (user_id, device_id, stream_id))`,
  `CREATE INDEX device_inbox_stream ON device_inbox (stream_id)`,
  `CREATE TABLE device_federation_outbox (
    destination TEXT NOT NULL, stream_id BIGINT NOT NULL, queued_ts BIGINT NOT NULL, messages_json TEXT NOT NULL,
    instance_name TEXT, PRIMARY KEY (destination, stream_id))`,
  `CREATE INDEX device_federation_outbox_stream ON device_federation_outbox (stream_id)`,
  `CREATE TABLE device_federation_inbox (
    origin TEXT NOT NULL, message_id TEXT NOT NULL, received_ts BIGINT NOT NULL, instance_name TEXT,
    PRIMARY KEY (origin, message_id))`,
  `CREATE INDEX device_federation_inbox_ts ON device_federation_inbox (received_ts)`,
  `CREATE TABLE to_device_transactions (
    user_id TEXT NOT NULL, device_id TEXT NOT NULL, event_type TEXT NOT NULL, txn_id TEXT NOT NULL, sent_ts BIGINT NOT NULL,
    PRIMARY KEY (user_id, device_id, event_type, txn_id))`,
  `CREATE INDEX to_device_transactions_ts ON to_device_transactions (sent_ts)`,
  `CREATE TABLE e2e_room_keys_versions (
    user_id TEXT NOT NULL, version BIGINT NOT NULL, algorithm TEXT NOT NULL, auth_data TEXT NOT NULL,
    deleted SMALLINT NOT NULL DEFAULT 0, etag BIGINT NOT NULL DEFAULT 0, key_count BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, version))`,
  `CREATE TABLE e2e_room_keys (
    user_id TEXT NOT NULL, room_id TEXT NOT NULL, session_id TEXT NOT NULL, version BIGINT NOT NULL,
    first_message_index BIGINT NOT NULL, forwarded_count BIGINT NOT NULL, is_verified BOOLEAN NOT NULL,
    session_data TEXT NOT NULL, PRIMARY KEY (user_id, version, room_id, session_id))`,
  `CREATE TABLE dehydrated_devices (
    user_id TEXT NOT NULL PRIMARY KEY, device_id TEXT NOT NULL, device_data TEXT NOT NULL)`,
];

/** Keys, signatures, device lists, to-device messages, key backups. */
export const e2eeMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'e2ee_01_keys_messages_backups',
    async up(tx) {
      for (const statement of statements) await tx.run(statement);
    },
  },
  { version: 1, name: 'e2ee_02_left_inboxes', up: leftInboxesSchema, back: dropLeftInboxes },
];
