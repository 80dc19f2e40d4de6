import type { Db, Tx } from '@rookery/database';

/** Identity keys of a device as they were uploaded, and the name its user gave it. */
export interface DeviceKeysRow {
  readonly userId: string;
  readonly deviceId: string;
  readonly keyJson: string;
  readonly displayName: string | undefined;
}

/** Identity keys of all devices of users. */
export async function deviceKeysOf(db: Db, userIds: readonly string[]): Promise<DeviceKeysRow[]> {
  const rows = await db.query<{ user_id: string; device_id: string; key_json: string; display_name: string | null }>(
    `SELECT k.user_id, k.device_id, k.key_json, d.display_name FROM e2e_device_keys_json k
     LEFT JOIN devices d ON d.user_id = k.user_id AND d.device_id = k.device_id
     WHERE ${db.dialect.anyOf('k.user_id')} ORDER BY k.user_id, k.device_id`,
    [userIds],
  );
  return rows.map((row) => ({
    userId: row.user_id,
    deviceId: row.device_id,
    keyJson: row.key_json,
    displayName: row.display_name ?? undefined,
  }));
}

/** Stores a device's identity keys. @returns whether they differ from before */
export async function writeDeviceKeys(
  tx: Tx,
  userId: string,
  deviceId: string,
  keyJson: string,
  nowMs: number,
): Promise<boolean> {
  const changed = await tx.run(
    `INSERT INTO e2e_device_keys_json (user_id, device_id, ts_added_ms, key_json) VALUES (?, ?, ?, ?)
     ON CONFLICT (user_id, device_id) DO UPDATE SET ts_added_ms = excluded.ts_added_ms, key_json = excluded.key_json
     WHERE e2e_device_keys_json.key_json <> excluded.key_json`,
    [userId, deviceId, nowMs, keyJson],
  );
  return changed > 0;
}

/** Devices of some users that have one of some ids, whether or not they have keys. */
export function devicesOfUsers(
  db: Db,
  userIds: readonly string[],
  deviceIds: readonly string[],
): Promise<{ readonly userId: string; readonly deviceId: string }[]> {
  return db.query(
    `SELECT user_id AS "userId", device_id AS "deviceId" FROM devices
     WHERE ${db.dialect.anyOf('user_id')} AND ${db.dialect.anyOf('device_id')} AND hidden = FALSE`,
    [userIds, deviceIds],
  );
}

/** Forgets all keys of devices, with the signatures on them. */
export async function deleteKeysOfDevices(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<void> {
  for (const table of ['e2e_device_keys_json', 'e2e_one_time_keys_json', 'e2e_fallback_keys_json'])
    await tx.run(`DELETE FROM ${table} WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}`, [userId, deviceIds]);
  await tx.run(
    `DELETE FROM e2e_cross_signing_signatures WHERE target_user_id = ? AND ${tx.dialect.anyOf('target_device_id')}`,
    [userId, deviceIds],
  );
}

/**
 * Whether a user has a device, for what is stored with it: one that is just being deleted is waited for, and one that is there
 * is not deleted before the transaction ends. Such transactions come one after the other: each finds what the one before has stored.
 */
export async function isDeviceHeld(tx: Tx, userId: string, deviceId: string): Promise<boolean> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR NO KEY UPDATE' : '';
  const row = await tx.get(`SELECT 1 AS found FROM devices WHERE user_id = ? AND device_id = ? AND hidden = ?${lock}`, [
    userId,
    deviceId,
    false,
  ]);
  return row !== undefined;
}

/** Which of some devices a user has, as {@link isDeviceHeld}, but that others may store something with them at the same time. */
export async function heldDevicesOf(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<Set<string>> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR KEY SHARE' : '';
  const rows = await tx.query<{ device_id: string }>(
    `SELECT device_id FROM devices WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')} AND hidden = ?
     ORDER BY device_id${lock}`,
    [userId, deviceIds, false],
  );
  return new Set(rows.map((row) => row.device_id));
}
