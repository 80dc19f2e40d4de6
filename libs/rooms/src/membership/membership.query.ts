import type { Db, SqlBool, Tx } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';

/** Whether this server has a joined member in a room. */
export async function hasLocalMember(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND membership = 'join' LIMIT 1`,
    [roomId],
  );
  return row !== undefined;
}

/** What joining a room begins with. */
export interface JoinFacts {
  /** The user's own, as far as this server knows; absent when there never was one. */
  readonly membership: Membership | null;
  /** The same by the room's state. */
  readonly in_state: Membership | null;
  /** By an administrator, or because the room is just being taken off the server. */
  readonly is_blocked: SqlBool;
  /** Whether somebody of this server is in the room. */
  readonly is_ours: SqlBool;
}

const beingShutDown = `EXISTS (SELECT 1 FROM scheduled_tasks
  WHERE resource_id = ? AND action = 'shutdown_and_purge_room' AND status = 'active')`;

/** What a local user's join depends on, in one query. */
export async function selectJoinFacts(db: Db, userId: string, roomId: string): Promise<JoinFacts> {
  const row = await db.get<JoinFacts>(
    `SELECT (SELECT membership FROM local_current_membership WHERE user_id = ? AND room_id = ?) AS membership,
       (SELECT membership FROM current_state_events
         WHERE room_id = ? AND type = 'm.room.member' AND state_key = ?) AS in_state,
       EXISTS (SELECT 1 FROM blocked_rooms WHERE room_id = ?) OR ${beingShutDown} AS is_blocked,
       EXISTS (SELECT 1 FROM local_current_membership WHERE room_id = ? AND membership = 'join') AS is_ours`,
    [userId, roomId, roomId, userId, roomId, roomId, roomId],
  );
  return row!;
}

/** Whether anybody at all is joined to a room, as far as this server knows. */
export async function hasAnyMember(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM current_state_events WHERE room_id = ? AND type = 'm.room.member' AND membership = 'join' LIMIT 1`,
    [roomId],
  );
  return row !== undefined;
}

export async function roomExists(db: Db, roomId: string): Promise<boolean> {
  return (await db.get('SELECT 1 AS found FROM rooms WHERE room_id = ?', [roomId])) !== undefined;
}

/** Whether an administrator has blocked a room, or it is just being taken off the server. */
export async function isBlocked(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get<{ blocked: SqlBool }>(
    `SELECT EXISTS (SELECT 1 FROM blocked_rooms WHERE room_id = ?) OR ${beingShutDown} AS blocked`,
    [roomId, roomId],
  );
  return Boolean(row?.blocked);
}

/** Marks a room that a user has left as forgotten, and when nobody else remembers it, since when; whether there was one. */
export async function forget(tx: Tx, userId: string, roomId: string, nowMs: number): Promise<boolean> {
  const changed = await tx.run(
    `UPDATE local_current_membership SET forgotten = 1
     WHERE user_id = ? AND room_id = ? AND membership IN ('leave', 'ban')`,
    [userId, roomId],
  );
  if (changed === 0) return false;
  await tx.run('UPDATE room_memberships SET forgotten = 1 WHERE user_id = ? AND room_id = ?', [userId, roomId]);
  if (!(await isRemembered(tx, roomId))) {
    await tx.run(
      `INSERT INTO forgotten_rooms (room_id, forgotten_ts) VALUES (?, ?)
       ON CONFLICT (room_id) DO UPDATE SET forgotten_ts = excluded.forgotten_ts`,
      [roomId, nowMs],
    );
  }
  return true;
}

/** Rooms that nobody of this server has remembered since a time, those forgotten first ahead. */
export async function selectForgottenRooms(
  db: Db,
  beforeTs: number,
  except: readonly string[],
  limit: number,
): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM forgotten_rooms WHERE forgotten_ts <= ? AND ${db.dialect.noneOf('room_id')}
     ORDER BY forgotten_ts LIMIT ?`,
    [beforeTs, except, limit],
  );
  return rows.map((row) => row.room_id);
}

/** Takes a room off the list of {@link selectForgottenRooms}. */
export async function unlistForgottenRoom(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM forgotten_rooms WHERE room_id = ?', [roomId]);
}

/** Whether any user of this server is in a room, is invited to it, or has left it without forgetting it. */
export async function isRemembered(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    'SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND forgotten = 0 LIMIT 1',
    [roomId],
  );
  return row !== undefined;
}

/** How many entries a room's current state has. */
export async function countStateEvents(db: Db, roomId: string): Promise<number> {
  const row = await db.get<{ events: number }>(
    'SELECT COUNT(*) AS events FROM current_state_events WHERE room_id = ?',
    [roomId],
  );
  return row?.events ?? 0;
}

/** Those of some rooms that somebody of this server is in. */
export async function selectOurRooms(db: Db, roomIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT DISTINCT room_id FROM local_current_membership WHERE ${db.dialect.anyOf('room_id')} AND membership = 'join'`,
    [roomIds],
  );
  return rows.map((row) => row.room_id);
}

/** Whether a user, of this server or another, is joined to one of the rooms, as far as this server knows. */
export async function isInAnyOf(db: Db, userId: string, roomIds: readonly string[]): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM current_state_events WHERE type = 'm.room.member' AND state_key = ? AND membership = 'join'
     AND ${db.dialect.anyOf('room_id')} LIMIT 1`,
    [userId, roomIds],
  );
  return row !== undefined;
}

/** Whether a user of this server ever had a membership of a room, of whatever kind. */
export async function hasEverBeenNear(db: Db, userId: string, roomId: string): Promise<boolean> {
  const row = await db.get('SELECT 1 AS found FROM local_current_membership WHERE user_id = ? AND room_id = ?', [
    userId,
    roomId,
  ]);
  return row !== undefined;
}
