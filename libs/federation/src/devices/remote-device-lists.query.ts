import type { Db, Tx } from '@rookery/database';

/** A device of another server's user, as that server told of it. */
export interface RemoteDevice {
  readonly userId: string;
  readonly deviceId: string;
  /** `{keys, device_display_name}` */
  readonly content: string;
}

/** A cross-signing key of another server's user. */
export interface RemoteKey {
  readonly userId: string;
  readonly keyType: string;
  readonly json: string;
}

const isSharing = `EXISTS (SELECT 1 FROM current_state_events m
  JOIN local_current_membership l ON l.room_id = m.room_id AND l.membership = 'join'
  WHERE m.type = 'm.room.member' AND m.membership = 'join' AND m.state_key = `;

/** Which of some users have lists here that are kept up to date, with the place of the last change. */
export async function trackedUsers(db: Db, userIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<{ user_id: string; stream_id: string }>(
    `SELECT user_id, stream_id FROM device_lists_remote_extremeties WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.user_id, row.stream_id]));
}

/** How much there is of the lists that are kept of some users, bytes of JSON; users without one are absent. */
export async function sizesOfLists(db: Db, userIds: readonly string[]): Promise<Map<string, number>> {
  const rows = await db.query<{ user_id: string; size_bytes: number }>(
    `SELECT x.user_id,
       (SELECT COALESCE(SUM(octet_length(c.content)), 0) FROM device_lists_remote_cache c WHERE c.user_id = x.user_id)
       + (SELECT COALESCE(SUM(octet_length(k.key_json)), 0) FROM device_lists_remote_keys k WHERE k.user_id = x.user_id)
       AS size_bytes
     FROM device_lists_remote_extremeties x WHERE ${db.dialect.anyOf('x.user_id')}`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.user_id, row.size_bytes]));
}

/** Which of some users share a joined room with somebody here. */
export async function sharingUsers(db: Db, userIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{ state_key: string }>(
    `SELECT DISTINCT m.state_key FROM current_state_events m
     JOIN local_current_membership l ON l.room_id = m.room_id AND l.membership = 'join'
     WHERE m.type = 'm.room.member' AND ${db.dialect.anyOf('m.state_key')} AND m.membership = 'join'`,
    [userIds],
  );
  return new Set(rows.map((row) => row.state_key));
}

/**
 * Whether a user shares a joined room with somebody here, to the end of the transaction: a leave that is under way is waited for, and one
 * that comes then finds what was written.
 */
export async function isSharingHeld(tx: Tx, userId: string): Promise<boolean> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR SHARE OF m, l' : '';
  const row = await tx.get(
    `SELECT 1 AS found FROM current_state_events m
     JOIN local_current_membership l ON l.room_id = m.room_id AND l.membership = 'join'
     WHERE m.type = 'm.room.member' AND m.state_key = ? AND m.membership = 'join' LIMIT 1${lock}`,
    [userId],
  );
  return row !== undefined;
}

/** Whether anybody here has joined a room. */
export async function isJoinedHere(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND membership = 'join' LIMIT 1`,
    [roomId],
  );
  return row !== undefined;
}

/** Users of whom lists are kept, behind one in the order of their ids. */
export async function trackedBehind(db: Db, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT user_id FROM device_lists_remote_extremeties WHERE user_id > ? ORDER BY user_id LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.user_id);
}

export async function devicesOfUsers(db: Db, userIds: readonly string[]): Promise<RemoteDevice[]> {
  const rows = await db.query<{ user_id: string; device_id: string; content: string }>(
    `SELECT user_id, device_id, content FROM device_lists_remote_cache WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return rows.map((row) => ({ userId: row.user_id, deviceId: row.device_id, content: row.content }));
}

export async function keysOfUsers(db: Db, userIds: readonly string[]): Promise<RemoteKey[]> {
  const rows = await db.query<{ user_id: string; keytype: string; key_json: string }>(
    `SELECT user_id, keytype, key_json FROM device_lists_remote_keys WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return rows.map((row) => ({ userId: row.user_id, keyType: row.keytype, json: row.key_json }));
}

/** Puts a whole list in place of what was known. */
export async function replaceList(
  tx: Tx,
  userId: string,
  streamId: string,
  devices: readonly RemoteDevice[],
  keys: readonly RemoteKey[],
): Promise<void> {
  await forgetUsers(tx, [userId]);
  await tx.insertMany(
    'device_lists_remote_cache',
    ['user_id', 'device_id', 'content'],
    devices.map((device) => [userId, device.deviceId, device.content]),
  );
  await putKeys(tx, userId, keys);
  await setPlace(tx, userId, streamId);
}

/** How many devices a user has besides one, and bytes of them. */
export async function otherDevicesOf(
  db: Db,
  userId: string,
  deviceId: string,
): Promise<{ readonly count: number; readonly sizeBytes: number }> {
  const row = await db.get<{ others: number; size_bytes: number }>(
    `SELECT COUNT(*) AS others, COALESCE(SUM(octet_length(content)), 0) AS size_bytes FROM device_lists_remote_cache
     WHERE user_id = ? AND device_id <> ?`,
    [userId, deviceId],
  );
  return { count: row?.others ?? 0, sizeBytes: row?.size_bytes ?? 0 };
}

/** Adds, changes or deletes one device. @param content `undefined` deletes */
export async function putDevice(tx: Tx, userId: string, deviceId: string, content: string | undefined): Promise<void> {
  if (content === undefined)
    await tx.run('DELETE FROM device_lists_remote_cache WHERE user_id = ? AND device_id = ?', [userId, deviceId]);
  else
    await tx.run(
      `INSERT INTO device_lists_remote_cache (user_id, device_id, content) VALUES (?, ?, ?)
       ON CONFLICT (user_id, device_id) DO UPDATE SET content = excluded.content`,
      [userId, deviceId, content],
    );
}

export async function putKeys(tx: Tx, userId: string, keys: readonly RemoteKey[]): Promise<void> {
  await tx.insertMany(
    'device_lists_remote_keys',
    ['user_id', 'keytype', 'key_json'],
    keys.map((key) => [userId, key.keyType, key.json]),
    'ON CONFLICT (user_id, keytype) DO UPDATE SET key_json = excluded.key_json',
  );
}

/** Notes up to which change a list is known. */
export async function setPlace(tx: Tx, userId: string, streamId: string): Promise<void> {
  await tx.run(
    `INSERT INTO device_lists_remote_extremeties (user_id, stream_id) VALUES (?, ?)
     ON CONFLICT (user_id) DO UPDATE SET stream_id = excluded.stream_id`,
    [userId, streamId],
  );
}

/** Forgets lists, and that they are to be asked for. */
export async function forgetUsers(tx: Tx, userIds: readonly string[]): Promise<void> {
  for (const table of tables) await tx.run(`DELETE FROM ${table} WHERE ${tx.dialect.anyOf('user_id')}`, [userIds]);
}

const tables = [
  'device_lists_remote_extremeties',
  'device_lists_remote_cache',
  'device_lists_remote_keys',
  'device_lists_remote_resync',
];

/** Which of some users have lists here, or are to be asked about, but share no room with anybody here any more. */
export async function strangersAmong(db: Db, userIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT x.user_id FROM device_lists_remote_extremeties x
     WHERE ${db.dialect.anyOf('x.user_id')} AND NOT ${isSharing} x.user_id)
     UNION SELECT x.user_id FROM device_lists_remote_resync x
     WHERE ${db.dialect.anyOf('x.user_id')} AND NOT ${isSharing} x.user_id)`,
    [userIds, userIds],
  );
  return rows.map((row) => row.user_id);
}

/** Members of a room, whatever became of them, behind one in the order of their ids. */
export async function membersBehind(db: Db, roomId: string, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ state_key: string }>(
    `SELECT state_key FROM current_state_events WHERE room_id = ? AND type = 'm.room.member' AND state_key > ?
     ORDER BY state_key LIMIT ${Math.trunc(limit)}`,
    [roomId, after],
  );
  return rows.map((row) => row.state_key);
}

/** Notes that a list is to be asked for. */
export async function wantResync(tx: Tx, userIds: readonly string[], nowMs: number): Promise<void> {
  await tx.insertMany(
    'device_lists_remote_resync',
    ['user_id', 'added_ts'],
    userIds.map((userId) => [userId, nowMs]),
    'ON CONFLICT (user_id) DO NOTHING',
  );
}

/** Users to be asked about, behind one in the order of their ids. */
export async function resyncsBehind(db: Db, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT user_id FROM device_lists_remote_resync WHERE user_id > ? ORDER BY user_id LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.user_id);
}

/** Notes that a list has changed of somebody who may be in a room of which not all members are known. */
export async function insertPending(tx: Tx, userId: string): Promise<void> {
  await tx.run('INSERT INTO device_lists_remote_pending (user_id) VALUES (?) ON CONFLICT (user_id) DO NOTHING', [
    userId,
  ]);
}

/** Whether a server is in a room of which not all members are known. */
export async function mayBeInPartialRoom(db: Db, server: string): Promise<boolean> {
  const row = await db.get('SELECT 1 AS found FROM partial_state_rooms_servers WHERE server_name = ? LIMIT 1', [
    server,
  ]);
  return row !== undefined;
}

/**
 * Takes those out of whom is known by now that they share a room with somebody here.
 * @param roomId whose members became known: where it was the last such room, everybody goes
 */
export async function takePending(tx: Tx, roomId: string): Promise<string[]> {
  const other = await tx.get('SELECT 1 AS found FROM partial_state_rooms WHERE room_id <> ? LIMIT 1', [roomId]);
  const rows = await tx.query<{ user_id: string }>(
    `SELECT x.user_id FROM device_lists_remote_pending x WHERE ${isSharing} x.user_id)`,
  );
  const userIds = rows.map((row) => row.user_id);
  if (other === undefined) await tx.run('DELETE FROM device_lists_remote_pending');
  else if (userIds.length > 0)
    await tx.run(`DELETE FROM device_lists_remote_pending WHERE ${tx.dialect.anyOf('user_id')}`, [userIds]);
  return userIds;
}

/** Gives up asking. */
export async function deleteResyncs(tx: Tx, userIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM device_lists_remote_resync WHERE ${tx.dialect.anyOf('user_id')}`, [userIds]);
}
