import type { Db, Tx } from '@rookery/database';

/** A connection as it is stored. */
export interface ConnectionRow {
  readonly connection_key: number;
  readonly base_position: number;
  readonly position: number;
  readonly last_used_ts: number;
}

/** What a connection was told of a room at some position. */
export interface ConnectionRoomRow {
  readonly room_id: string;
  readonly position: number;
  readonly section: string;
  readonly sent_up_to: number | null;
  readonly timeline_limit: number;
  readonly required_state_id: string;
  readonly told: number;
}

/** Whose connection, and which. */
export interface ConnectionIdentity {
  readonly userId: string;
  /** Empty for a user without a device. */
  readonly deviceId: string;
  readonly connId: string;
}

export function findConnection(
  db: Db,
  { userId, deviceId, connId }: ConnectionIdentity,
): Promise<ConnectionRow | undefined> {
  return db.get<ConnectionRow>(
    `SELECT connection_key, base_position, position, last_used_ts FROM sliding_sync_connections
     WHERE user_id = ? AND device_id = ? AND conn_id = ?`,
    [userId, deviceId, connId],
  );
}

/** Every row of a connection, oldest position first. */
export function selectRooms(db: Db, connectionKey: number): Promise<ConnectionRoomRow[]> {
  return db.query<ConnectionRoomRow>(
    `SELECT room_id, position, section, sent_up_to, timeline_limit, required_state_id, told
     FROM sliding_sync_connection_rooms WHERE connection_key = ? ORDER BY position`,
    [connectionKey],
  );
}

export async function selectRequiredStates(db: Db, connectionKey: number): Promise<Map<string, string>> {
  const rows = await db.query<{ required_state_id: string; required_state: string }>(
    `SELECT required_state_id, required_state FROM sliding_sync_connection_required_state WHERE connection_key = ?`,
    [connectionKey],
  );
  return new Map(rows.map((row) => [row.required_state_id, row.required_state]));
}

/**
 * Makes a connection, in place of the one of the same name and of the device's oldest where it has too many.
 * @param maxPerDevice how many a device may have
 * @returns where it begins: at a position that none of its name has had
 */
export async function insertConnection(
  tx: Tx,
  identity: ConnectionIdentity,
  connection: { readonly key: number; readonly nowMs: number },
  maxPerDevice: number,
): Promise<number> {
  // Another one of the name may be made just now, in another process: it is waited for, and this one comes in its place.
  for (;;) {
    const position = await insertInPlace(tx, identity, connection, maxPerDevice);
    if (position !== undefined) return position;
  }
}

/** @returns `undefined` where there is another one of its name since this one looked */
async function insertInPlace(
  tx: Tx,
  { userId, deviceId, connId }: ConnectionIdentity,
  { key, nowMs }: { readonly key: number; readonly nowMs: number },
  maxPerDevice: number,
): Promise<number | undefined> {
  const others = await tx.query<{ connection_key: number; conn_id: string; position: number }>(
    `SELECT connection_key, conn_id, position FROM sliding_sync_connections WHERE user_id = ? AND device_id = ?
     ORDER BY last_used_ts DESC, connection_key DESC`,
    [userId, deviceId],
  );
  const kept = others.filter((other) => other.conn_id !== connId).slice(0, maxPerDevice - 1);
  const keys = new Set(kept.map((other) => other.connection_key));
  await deleteConnections(
    tx,
    others.map((other) => other.connection_key).filter((other) => !keys.has(other)),
  );
  // Positions of a connection are counted one by one: none of one that is long gone is as high as the time.
  const former = others.find((other) => other.conn_id === connId)?.position ?? 0;
  const position = Math.max(nowMs, former + 1);
  const made = await tx.run(
    `INSERT INTO sliding_sync_connections
       (connection_key, user_id, device_id, conn_id, base_position, position, created_ts, last_used_ts)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_id, device_id, conn_id) DO NOTHING`,
    [key, userId, deviceId, connId, position, position, nowMs, nowMs],
  );
  return made > 0 ? position : undefined;
}

/**
 * Moves a connection on from one of its two positions to a new one, which it has not had; `undefined` when it has neither, or is gone.
 * @param base from which the client goes on
 */
export async function moveConnection(tx: Tx, key: number, base: number, nowMs: number): Promise<number | undefined> {
  const [moved] = await tx.query<{ position: number }>(
    `UPDATE sliding_sync_connections SET base_position = ?, position = position + 1, last_used_ts = ?
     WHERE connection_key = ? AND (base_position = ? OR position = ?) RETURNING position`,
    [base, nowMs, key, base, base],
  );
  return moved?.position;
}

/** Deletes what answers said that never arrived, and of rooms that change now what nobody can go back to. */
export async function deleteObsolete(tx: Tx, key: number, base: number, roomIds: readonly string[]): Promise<void> {
  await tx.run('DELETE FROM sliding_sync_connection_rooms WHERE connection_key = ? AND position > ?', [key, base]);
  await tx.run(
    `DELETE FROM sliding_sync_connection_rooms AS old WHERE connection_key = ? AND ${tx.dialect.anyOf('room_id')}
       AND EXISTS (SELECT 1 FROM sliding_sync_connection_rooms AS newer WHERE newer.connection_key = old.connection_key
         AND newer.room_id = old.room_id AND newer.position > old.position)`,
    [key, roomIds],
  );
}

/**
 * Writes down what a connection is told of rooms. Where it asks for state that it did not ask for before, what none of its rooms is
 * told any more is forgotten: it may ask for something else each time.
 * @param requiredStates ids by text
 */
export async function insertRooms(
  tx: Tx,
  key: number,
  rows: readonly ConnectionRoomRow[],
  requiredStates: ReadonlyMap<string, string>,
): Promise<void> {
  if (rows.length === 0) return;
  await tx.insertMany(
    'sliding_sync_connection_rooms',
    ['connection_key', 'room_id', 'position', 'section', 'sent_up_to', 'timeline_limit', 'required_state_id', 'told'],
    rows.map((row) => [
      key,
      row.room_id,
      row.position,
      row.section,
      row.sent_up_to,
      row.timeline_limit,
      row.required_state_id,
      row.told,
    ]),
  );
  const known = await tx.query<{ required_state_id: string }>(
    `SELECT required_state_id FROM sliding_sync_connection_required_state
     WHERE connection_key = ? AND ${tx.dialect.anyOf('required_state_id')}`,
    [key, [...requiredStates.values()]],
  );
  const knownIds = new Set(known.map((row) => row.required_state_id));
  const fresh = [...requiredStates].filter(([, id]) => !knownIds.has(id));
  if (fresh.length === 0) return;
  await tx.insertMany(
    'sliding_sync_connection_required_state',
    ['connection_key', 'required_state_id', 'required_state'],
    fresh.map(([text, id]) => [key, id, text]),
    // Another process may do the same.
    'ON CONFLICT (connection_key, required_state_id) DO NOTHING',
  );
  await tx.run(
    `DELETE FROM sliding_sync_connection_required_state WHERE connection_key = ? AND required_state_id NOT IN
       (SELECT required_state_id FROM sliding_sync_connection_rooms WHERE connection_key = ?)`,
    [key, key],
  );
}

export async function touchConnection(tx: Tx, key: number, nowMs: number): Promise<void> {
  await tx.run('UPDATE sliding_sync_connections SET last_used_ts = ? WHERE connection_key = ?', [nowMs, key]);
}

/** Keys of connections that nobody has used since then; at most `limit`. */
export async function selectUnused(db: Db, beforeMs: number, limit: number): Promise<number[]> {
  const rows = await db.query<{ connection_key: number }>(
    `SELECT connection_key FROM sliding_sync_connections WHERE last_used_ts < ? LIMIT ${Math.trunc(limit)}`,
    [beforeMs],
  );
  return rows.map((row) => row.connection_key);
}

export async function selectOfDevices(db: Db, userId: string, deviceIds: readonly string[]): Promise<number[]> {
  const rows = await db.query<{ connection_key: number }>(
    `SELECT connection_key FROM sliding_sync_connections WHERE user_id = ? AND ${db.dialect.anyOf('device_id')}`,
    [userId, deviceIds],
  );
  return rows.map((row) => row.connection_key);
}

export async function deleteConnections(tx: Tx, keys: readonly number[]): Promise<void> {
  if (keys.length === 0) return;
  for (const table of [
    'sliding_sync_connection_rooms',
    'sliding_sync_connection_required_state',
    'sliding_sync_connections',
  ]) {
    await tx.run(`DELETE FROM ${table} WHERE ${tx.dialect.anyOf('connection_key')}`, [keys]);
  }
}
