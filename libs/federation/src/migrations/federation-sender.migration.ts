import type { Migration } from '@rookery/database';

/**
 * What other servers are still to get. `destination_rooms` holds the place of the latest event of each room that a server was
 * to get; `device_lists_outbound_pokes` the changes of devices, and `device_lists_outbound_last_success` the place of the last
 * one that a server got of a user.
 */
export const senderTables: Migration = {
  version: 1,
  name: 'federation_01_sender',
  async up(tx) {
    const end = tx.dialect.name === 'sqlite' ? 'WITHOUT ROWID' : '';
    for (const statement of [
      `CREATE TABLE destination_rooms (
        destination TEXT NOT NULL, room_id TEXT NOT NULL, stream_ordering BIGINT NOT NULL,
        PRIMARY KEY (destination, room_id)) ${end}`,
      `CREATE INDEX destination_rooms_room_id ON destination_rooms (room_id)`,
      `CREATE TABLE device_lists_outbound_pokes (
        destination TEXT NOT NULL, stream_id BIGINT NOT NULL, user_id TEXT NOT NULL, device_id TEXT NOT NULL,
        ts BIGINT NOT NULL, PRIMARY KEY (destination, user_id, device_id)) ${end}`,
      `CREATE INDEX device_lists_outbound_pokes_order ON device_lists_outbound_pokes (destination, stream_id)`,
      `CREATE TABLE device_lists_outbound_last_success (
        destination TEXT NOT NULL, user_id TEXT NOT NULL, stream_id BIGINT NOT NULL,
        PRIMARY KEY (destination, user_id)) ${end}`,
    ])
      await tx.run(statement);
  },
};

/**
 * Devices of other servers' users, as far as those servers tell of every change. `device_lists_remote_keys` are the users'
 * cross-signing keys; who is in `device_lists_remote_resync` is to be asked about again.
 */
export const remoteDeviceTables: Migration = {
  version: 1,
  name: 'federation_02_remote_devices',
  async up(tx) {
    const end = tx.dialect.name === 'sqlite' ? 'WITHOUT ROWID' : '';
    for (const statement of [
      `CREATE TABLE device_lists_remote_cache (
        user_id TEXT NOT NULL, device_id TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (user_id, device_id)) ${end}`,
      `CREATE TABLE device_lists_remote_extremeties (
        user_id TEXT NOT NULL PRIMARY KEY, stream_id TEXT NOT NULL) ${end}`,
      `CREATE TABLE device_lists_remote_keys (
        user_id TEXT NOT NULL, keytype TEXT NOT NULL, key_json TEXT NOT NULL, PRIMARY KEY (user_id, keytype)) ${end}`,
      `CREATE TABLE device_lists_remote_resync (user_id TEXT NOT NULL PRIMARY KEY, added_ts BIGINT NOT NULL) ${end}`,
    ])
      await tx.run(statement);
  },
};

/** Users whose lists changed while it was not known whether they are in a room here (MSC3902). */
export const pendingDeviceTables: Migration = {
  version: 1,
  name: 'federation_04_pending_devices',
  async up(tx) {
    const end = tx.dialect.name === 'sqlite' ? 'WITHOUT ROWID' : '';
    await tx.run(`CREATE TABLE device_lists_remote_pending (user_id TEXT NOT NULL PRIMARY KEY) ${end}`);
  },
};
