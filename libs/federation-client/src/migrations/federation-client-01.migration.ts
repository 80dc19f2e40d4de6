import type { Migration } from '@rookery/database';

/** Other servers: whether they can be reached, and their keys. Times are milliseconds. */
const servers: Migration = {
  version: 1,
  name: 'federation_client_01_servers',
  async up(tx) {
    const { bytesType } = tx.dialect;
    for (const statement of [
      `CREATE TABLE destinations (
        destination TEXT NOT NULL PRIMARY KEY,
        failure_ts BIGINT,
        retry_last_ts BIGINT NOT NULL DEFAULT 0,
        retry_interval BIGINT NOT NULL DEFAULT 0,
        last_successful_stream_ordering BIGINT
      )`,
      `CREATE TABLE server_signature_keys (
        server_name TEXT NOT NULL,
        key_id TEXT NOT NULL,
        from_server TEXT NOT NULL,
        ts_added_ms BIGINT NOT NULL,
        ts_valid_until_ms BIGINT NOT NULL,
        verify_key ${bytesType} NOT NULL,
        PRIMARY KEY (server_name, key_id)
      )`,
      // What servers said about their keys, as text, to be passed on.
      `CREATE TABLE server_keys_json (
        server_name TEXT NOT NULL,
        key_id TEXT NOT NULL,
        from_server TEXT NOT NULL,
        ts_added_ms BIGINT NOT NULL,
        ts_valid_until_ms BIGINT NOT NULL,
        key_json ${bytesType} NOT NULL,
        PRIMARY KEY (server_name, key_id, from_server)
      )`,
    ])
      await tx.run(statement);
  },
};

/** The tables of federation-client, in the order in which they are made. */
export const federationClientMigrations: readonly Migration[] = [servers];
