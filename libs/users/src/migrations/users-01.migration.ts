import type { Migration } from '@rookery/database';
import { monthlyActiveUsers } from './users-02.migration.js';
import { rememberedParameters } from './users-04.migration.js';
import { dailyVisits } from './users-05.migration.js';
import { sessionEndings } from './users-06.migration.js';

/**
 * Accounts, sessions, interactive auth, profiles, third-party identifiers.
 *
 * Every secret that a client presents (access, refresh, login and OpenID tokens, interactive-auth session ids, validation
 * tokens) is stored as its SHA-256 only. User ids are full ids everywhere. Times are milliseconds.
 */
const accounts: Migration = {
  version: 1,
  name: 'users_01_accounts',
  async up(tx) {
    const identity = tx.dialect.identityType;
    for (const statement of [
      `CREATE TABLE users (
        name TEXT NOT NULL PRIMARY KEY,
        password_hash TEXT,
        creation_ts BIGINT NOT NULL,
        admin BOOLEAN NOT NULL DEFAULT FALSE,
        is_guest BOOLEAN NOT NULL DEFAULT FALSE,
        appservice_id TEXT,
        consent_version TEXT,
        consent_ts BIGINT,
        consent_server_notice_sent TEXT,
        user_type TEXT,
        deactivated BOOLEAN NOT NULL DEFAULT FALSE,
        shadow_banned BOOLEAN NOT NULL DEFAULT FALSE,
        approved BOOLEAN NOT NULL DEFAULT TRUE,
        locked BOOLEAN NOT NULL DEFAULT FALSE,
        suspended BOOLEAN NOT NULL DEFAULT FALSE
      )`,
      // Look-alikes by case: a new name is compared with existing ones in lower case.
      'CREATE INDEX users_lower_name ON users (lower(name))',
      'CREATE INDEX users_creation_ts ON users (creation_ts)',
      `CREATE TABLE erased_users (user_id TEXT NOT NULL PRIMARY KEY)`,
      `CREATE TABLE users_pending_deactivation (user_id TEXT NOT NULL PRIMARY KEY)`,
      `CREATE TABLE account_validity (
        user_id TEXT NOT NULL PRIMARY KEY,
        expiration_ts_ms BIGINT NOT NULL,
        email_sent BOOLEAN NOT NULL DEFAULT FALSE,
        renewal_token TEXT,
        token_used_ts_ms BIGINT
      )`,
      'CREATE INDEX account_validity_expiration ON account_validity (expiration_ts_ms)',
      'CREATE INDEX account_validity_token ON account_validity (renewal_token)',
      `CREATE TABLE registration_tokens (
        token TEXT NOT NULL PRIMARY KEY,
        uses_allowed INTEGER,
        pending INTEGER NOT NULL DEFAULT 0,
        completed INTEGER NOT NULL DEFAULT 0,
        expiry_time BIGINT
      )`,
      `CREATE TABLE profiles (
        user_id TEXT NOT NULL PRIMARY KEY,
        displayname TEXT,
        avatar_url TEXT,
        fields TEXT
      )`,
      `CREATE TABLE devices (
        user_id TEXT NOT NULL,
        device_id TEXT NOT NULL,
        display_name TEXT,
        last_seen BIGINT,
        ip TEXT,
        user_agent TEXT,
        hidden BOOLEAN NOT NULL DEFAULT FALSE,
        PRIMARY KEY (user_id, device_id)
      )`,
      'CREATE INDEX devices_last_seen ON devices (last_seen)',
      `CREATE TABLE device_auth_providers (
        user_id TEXT NOT NULL,
        device_id TEXT NOT NULL,
        auth_provider_id TEXT NOT NULL,
        auth_provider_session_id TEXT NOT NULL,
        PRIMARY KEY (user_id, device_id, auth_provider_id, auth_provider_session_id)
      )`,
      'CREATE INDEX device_auth_providers_session ON device_auth_providers (auth_provider_id, auth_provider_session_id)',
      `CREATE TABLE refresh_tokens (
        id ${identity},
        user_id TEXT NOT NULL,
        device_id TEXT NOT NULL,
        token_hash TEXT NOT NULL UNIQUE,
        next_token_id BIGINT,
        expiry_ts BIGINT,
        ultimate_session_expiry_ts BIGINT
      )`,
      'CREATE INDEX refresh_tokens_device ON refresh_tokens (user_id, device_id)',
      'CREATE INDEX refresh_tokens_next ON refresh_tokens (next_token_id)',
      `CREATE TABLE access_tokens (
        id ${identity},
        user_id TEXT NOT NULL,
        device_id TEXT,
        token_hash TEXT NOT NULL UNIQUE,
        valid_until_ms BIGINT,
        puppets_user_id TEXT,
        last_validated BIGINT,
        refresh_token_id BIGINT,
        used BOOLEAN NOT NULL DEFAULT FALSE
      )`,
      'CREATE INDEX access_tokens_device ON access_tokens (user_id, device_id)',
      'CREATE INDEX access_tokens_puppets ON access_tokens (puppets_user_id)',
      'CREATE INDEX access_tokens_validity ON access_tokens (valid_until_ms)',
      'CREATE INDEX access_tokens_refresh ON access_tokens (refresh_token_id)',
      `CREATE TABLE login_tokens (
        token_hash TEXT NOT NULL PRIMARY KEY,
        user_id TEXT NOT NULL,
        expiry_ts BIGINT NOT NULL,
        used_ts BIGINT,
        auth_provider_id TEXT,
        auth_provider_session_id TEXT
      )`,
      'CREATE INDEX login_tokens_user ON login_tokens (user_id)',
      'CREATE INDEX login_tokens_expiry ON login_tokens (expiry_ts)',
      `CREATE TABLE open_id_tokens (
        token_hash TEXT NOT NULL PRIMARY KEY,
        ts_valid_until_ms BIGINT NOT NULL,
        user_id TEXT NOT NULL
      )`,
      'CREATE INDEX open_id_tokens_validity ON open_id_tokens (ts_valid_until_ms)',
      `CREATE TABLE user_threepids (
        medium TEXT NOT NULL,
        address TEXT NOT NULL,
        user_id TEXT NOT NULL,
        validated_at BIGINT NOT NULL,
        added_at BIGINT NOT NULL,
        PRIMARY KEY (medium, address)
      )`,
      'CREATE INDEX user_threepids_user ON user_threepids (user_id)',
      `CREATE TABLE user_threepid_id_server (
        user_id TEXT NOT NULL,
        medium TEXT NOT NULL,
        address TEXT NOT NULL,
        id_server TEXT NOT NULL,
        PRIMARY KEY (user_id, medium, address, id_server)
      )`,
      `CREATE TABLE user_external_ids (
        auth_provider TEXT NOT NULL,
        external_id TEXT NOT NULL,
        user_id TEXT NOT NULL,
        PRIMARY KEY (auth_provider, external_id)
      )`,
      'CREATE INDEX user_external_ids_user ON user_external_ids (user_id)',
      `CREATE TABLE threepid_validation_session (
        session_id TEXT NOT NULL PRIMARY KEY,
        medium TEXT NOT NULL,
        address TEXT NOT NULL,
        client_secret_hash TEXT NOT NULL,
        purpose TEXT NOT NULL,
        last_send_attempt BIGINT NOT NULL,
        created_ts BIGINT NOT NULL,
        validated_at BIGINT
      )`,
      'CREATE UNIQUE INDEX threepid_validation_session_client ON threepid_validation_session (client_secret_hash, medium, address, purpose)',
      'CREATE INDEX threepid_validation_session_created ON threepid_validation_session (created_ts)',
      `CREATE TABLE threepid_validation_token (
        token_hash TEXT NOT NULL PRIMARY KEY,
        session_id TEXT NOT NULL,
        next_link TEXT,
        expires BIGINT NOT NULL
      )`,
      'CREATE INDEX threepid_validation_token_session ON threepid_validation_token (session_id)',
      'CREATE INDEX threepid_validation_token_expires ON threepid_validation_token (expires)',
      `CREATE TABLE ui_auth_sessions (
        session_hash TEXT NOT NULL PRIMARY KEY,
        creation_time BIGINT NOT NULL,
        method TEXT NOT NULL,
        uri TEXT NOT NULL,
        body_digest TEXT,
        user_id TEXT,
        description TEXT NOT NULL
      )`,
      'CREATE INDEX ui_auth_sessions_creation ON ui_auth_sessions (creation_time)',
      `CREATE TABLE ui_auth_sessions_credentials (
        session_hash TEXT NOT NULL,
        stage_type TEXT NOT NULL,
        result TEXT NOT NULL,
        PRIMARY KEY (session_hash, stage_type)
      )`,
      `CREATE TABLE ui_auth_sessions_ips (
        session_hash TEXT NOT NULL,
        ip TEXT NOT NULL,
        user_agent TEXT NOT NULL,
        PRIMARY KEY (session_hash, ip, user_agent)
      )`,
      `CREATE TABLE user_ips (
        user_id TEXT NOT NULL,
        device_id TEXT NOT NULL,
        ip TEXT NOT NULL,
        user_agent TEXT NOT NULL,
        last_seen BIGINT NOT NULL,
        PRIMARY KEY (user_id, device_id, ip)
      )`,
      'CREATE INDEX user_ips_last_seen ON user_ips (last_seen)',
      `CREATE TABLE ratelimit_override (
        user_id TEXT NOT NULL PRIMARY KEY,
        messages_per_second BIGINT,
        burst_count BIGINT
      )`,
      `CREATE TABLE per_user_experimental_features (
        user_id TEXT NOT NULL,
        feature TEXT NOT NULL,
        enabled BOOLEAN NOT NULL,
        PRIMARY KEY (user_id, feature)
      )`,
    ]) {
      await tx.run(statement);
    }
  },
};

const accountData: Migration = {
  version: 1,
  name: 'users_02_account_data',
  async up(tx) {
    for (const statement of [
      `CREATE TABLE account_data (
        user_id TEXT NOT NULL,
        account_data_type TEXT NOT NULL,
        stream_id BIGINT NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (user_id, account_data_type)
      )`,
      'CREATE INDEX account_data_stream ON account_data (user_id, stream_id)',
      'CREATE INDEX account_data_position ON account_data (stream_id)',
      `CREATE TABLE room_account_data (
        user_id TEXT NOT NULL,
        room_id TEXT NOT NULL,
        account_data_type TEXT NOT NULL,
        stream_id BIGINT NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (user_id, room_id, account_data_type)
      )`,
      'CREATE INDEX room_account_data_stream ON room_account_data (user_id, stream_id)',
      'CREATE INDEX room_account_data_position ON room_account_data (stream_id)',
      `CREATE TABLE ignored_users (
        ignorer_user_id TEXT NOT NULL,
        ignored_user_id TEXT NOT NULL,
        PRIMARY KEY (ignorer_user_id, ignored_user_id)
      )`,
      'CREATE INDEX ignored_users_ignored ON ignored_users (ignored_user_id)',
      `CREATE TABLE user_filters (
        user_id TEXT NOT NULL,
        filter_id BIGINT NOT NULL,
        filter_hash TEXT NOT NULL,
        filter_json TEXT NOT NULL,
        PRIMARY KEY (user_id, filter_id)
      )`,
      'CREATE UNIQUE INDEX user_filters_hash ON user_filters (user_id, filter_hash)',
    ]) {
      await tx.run(statement);
    }
  },
};

/** The tables of this lib, in order. */
export const usersMigrations: Migration[] = [
  accounts,
  accountData,
  monthlyActiveUsers,
  rememberedParameters,
  dailyVisits,
  sessionEndings,
];
