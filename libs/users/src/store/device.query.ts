import type { Db, SqlBool, Tx } from '@rookery/database';

/** A device: a session of a user, with its own keys. */
export interface Device {
  readonly deviceId: string;
  readonly displayName?: string | undefined;
  readonly lastSeenMs?: number | undefined;
  readonly lastSeenIp?: string | undefined;
  readonly lastSeenUserAgent?: string | undefined;
}

interface DeviceRow {
  device_id: string;
  display_name: string | null;
  last_seen: number | null;
  ip: string | null;
  user_agent: string | null;
}

const columns = 'device_id, display_name, last_seen, ip, user_agent';

function fromRow(row: DeviceRow): Device {
  return {
    deviceId: row.device_id,
    displayName: row.display_name ?? undefined,
    lastSeenMs: row.last_seen ?? undefined,
    lastSeenIp: row.ip ?? undefined,
    lastSeenUserAgent: row.user_agent ?? undefined,
  };
}

/** A user's devices, by id. Cross-signing keys, which share their ids' space, are left out. */
export async function listDevices(db: Db, userId: string): Promise<Device[]> {
  const rows = await db.query<DeviceRow>(
    `SELECT ${columns} FROM devices WHERE user_id = ? AND hidden = ? ORDER BY device_id`,
    [userId, false],
  );
  return rows.map(fromRow);
}

export async function findDevice(db: Db, userId: string, deviceId: string): Promise<Device | undefined> {
  const row = await db.get<DeviceRow>(
    `SELECT ${columns} FROM devices WHERE user_id = ? AND device_id = ? AND hidden = ?`,
    [userId, deviceId, false],
  );
  return row && fromRow(row);
}

/**
 * Makes sure that a device exists, and is there to the end of the transaction, in which its sessions may change; an existing one keeps its
 * name.
 * @returns `created`, `existed`, or `reserved` when the id is that of a cross-signing key
 */
export async function ensureDevice(
  tx: Tx,
  userId: string,
  deviceId: string,
  displayName: string | undefined,
): Promise<'created' | 'existed' | 'reserved'> {
  for (;;) {
    const inserted = await tx.run(
      'INSERT INTO devices (user_id, device_id, display_name, hidden) VALUES (?, ?, ?, ?) ON CONFLICT (user_id, device_id) DO NOTHING',
      [userId, deviceId, displayName ?? null, false],
    );
    if (inserted > 0) return 'created';
    const row = await lockDevice(tx, userId, deviceId);
    if (row) return row.hidden ? 'reserved' : 'existed';
    // It was deleted in between, for good: now there is place for it.
  }
}

/**
 * Whether a user has a device, for a change of its sessions. Such changes come one after the other: one that is under way is waited for,
 * and so is this one, by whoever deletes the device.
 */
export async function holdDevice(tx: Tx, userId: string, deviceId: string): Promise<boolean> {
  const row = await lockDevice(tx, userId, deviceId);
  return row !== undefined && !row.hidden;
}

function lockDevice(tx: Tx, userId: string, deviceId: string): Promise<{ hidden: SqlBool } | undefined> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR NO KEY UPDATE' : '';
  return tx.get(`SELECT hidden FROM devices WHERE user_id = ? AND device_id = ?${lock}`, [userId, deviceId]);
}

/** @returns whether there is such a device */
export async function renameDevice(tx: Tx, userId: string, deviceId: string, displayName: string): Promise<boolean> {
  return (
    (await tx.run('UPDATE devices SET display_name = ? WHERE user_id = ? AND device_id = ? AND hidden = ?', [
      displayName,
      userId,
      deviceId,
      false,
    ])) > 0
  );
}

/** @returns the ids of those that existed */
export async function deleteDevices(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<string[]> {
  // First: what is just being stored with them is waited for, in the order in which others hold several.
  if (tx.dialect.name === 'postgres' && deviceIds.length > 1)
    await tx.query(
      `SELECT 1 AS held FROM devices WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')} ORDER BY device_id FOR UPDATE`,
      [userId, deviceIds],
    );
  const rows = await tx.query<{ device_id: string }>(
    `DELETE FROM devices WHERE user_id = ? AND hidden = ? AND ${tx.dialect.anyOf('device_id')} RETURNING device_id`,
    [userId, false, deviceIds],
  );
  await tx.run(`DELETE FROM device_auth_providers WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}`, [
    userId,
    deviceIds,
  ]);
  return rows.map((row) => row.device_id);
}

/** The ids of a user's devices. */
export async function deviceIdsOf(db: Db, userId: string): Promise<string[]> {
  const rows = await db.query<{ device_id: string }>('SELECT device_id FROM devices WHERE user_id = ? AND hidden = ?', [
    userId,
    false,
  ]);
  return rows.map((row) => row.device_id);
}

/** Reserves a cross-signing key's id among the user's device ids. @returns whether no device has it */
export async function reserveDeviceId(tx: Tx, userId: string, keyId: string): Promise<boolean> {
  await tx.run(
    'INSERT INTO devices (user_id, device_id, hidden) VALUES (?, ?, ?) ON CONFLICT (user_id, device_id) DO NOTHING',
    [userId, keyId, true],
  );
  const row = await tx.get<{ hidden: SqlBool }>('SELECT hidden FROM devices WHERE user_id = ? AND device_id = ?', [
    userId,
    keyId,
  ]);
  return Boolean(row?.hidden);
}

/** Remembers by which login of a single sign-on provider a device came to be. */
export async function setDeviceAuthProvider(
  tx: Tx,
  userId: string,
  deviceId: string,
  providerId: string,
  providerSessionId: string,
): Promise<void> {
  await tx.run(
    'INSERT INTO device_auth_providers (user_id, device_id, auth_provider_id, auth_provider_session_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
    [userId, deviceId, providerId, providerSessionId],
  );
}

/** By which logins of single sign-on providers a device came to be. */
export async function providerLoginsOfDevice(
  db: Db,
  userId: string,
  deviceId: string,
): Promise<readonly { readonly providerId: string; readonly sessionId: string }[]> {
  const rows = await db.query<{ auth_provider_id: string; auth_provider_session_id: string }>(
    'SELECT auth_provider_id, auth_provider_session_id FROM device_auth_providers WHERE user_id = ? AND device_id = ?',
    [userId, deviceId],
  );
  return rows.map((row) => ({ providerId: row.auth_provider_id, sessionId: row.auth_provider_session_id }));
}

/** A device that somebody logs in to anew no longer belongs to the login before. */
export async function forgetDeviceAuthProviders(tx: Tx, userId: string, deviceId: string): Promise<void> {
  await tx.run('DELETE FROM device_auth_providers WHERE user_id = ? AND device_id = ?', [userId, deviceId]);
}

/** A login at a single sign-on provider, or all that one user made there. */
export type ProviderLogins =
  | { readonly providerId: string; readonly sessionId: string; readonly userId?: string | undefined }
  | { readonly providerId: string; readonly sessionId?: undefined; readonly userId: string };

/** The devices that came from logins at a single sign-on provider. */
export async function devicesOfProviderLogins(
  db: Db,
  { providerId, sessionId, userId }: ProviderLogins,
): Promise<{ user_id: string; device_id: string }[]> {
  const conditions = ['auth_provider_id = ?'];
  const values = [providerId];
  if (sessionId !== undefined) {
    conditions.push('auth_provider_session_id = ?');
    values.push(sessionId);
  }
  if (userId !== undefined) {
    conditions.push('user_id = ?');
    values.push(userId);
  }
  return db.query(`SELECT user_id, device_id FROM device_auth_providers WHERE ${conditions.join(' AND ')}`, values);
}

/**
 * Counts devices that nobody has been seen with since their login as seen at a moment, so that they get stale as well. Those without a login
 * are none of it: nobody uses a dehydrated device, or one of an application service's user, with a token of its own.
 */
export async function countUnseenFrom(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(
    `UPDATE devices SET last_seen = ? WHERE last_seen IS NULL AND hidden = ? AND EXISTS (
       SELECT 1 FROM access_tokens t WHERE t.user_id = devices.user_id AND t.device_id = devices.device_id)`,
    [nowMs, false],
  );
}

/** Devices that were last seen before a moment, longest ago first. */
export async function findStaleDevices(
  db: Db,
  beforeMs: number,
  limit: number,
): Promise<{ user_id: string; device_id: string }[]> {
  return db.query(
    'SELECT user_id, device_id FROM devices WHERE last_seen < ? AND hidden = ? ORDER BY last_seen LIMIT ?',
    [beforeMs, false, limit],
  );
}

/** Whose device it is, and which one. */
export interface DeviceOfUser {
  readonly userId: string;
  readonly deviceId: string;
}

/**
 * Devices of users, by user and id; cross-signing keys, which share their ids' space, are left out.
 * @param held in a transaction that stores something with them: none is deleted before its end, and those that just are, are waited for
 */
export async function devicesOfUsers(
  db: Db,
  userIds: readonly string[],
  { limit = Number.MAX_SAFE_INTEGER, held = false }: { readonly limit?: number; readonly held?: boolean } = {},
): Promise<DeviceOfUser[]> {
  const lock = held && db.dialect.name === 'postgres' ? ' FOR KEY SHARE' : '';
  const rows = await db.query<{ user_id: string; device_id: string }>(
    `SELECT user_id, device_id FROM devices WHERE ${db.dialect.anyOf('user_id')} AND hidden = ?
     ORDER BY user_id, device_id LIMIT ${Math.trunc(limit)}${lock}`,
    [userIds, false],
  );
  return rows.map((row) => ({ userId: row.user_id, deviceId: row.device_id }));
}
