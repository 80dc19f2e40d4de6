import type { Db } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';

/** Users of this server with one of these memberships of a room, in no order. */
export async function selectLocalUsers(
  db: Db,
  roomId: string,
  memberships: readonly Membership[],
  limit = Number.MAX_SAFE_INTEGER,
): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT user_id FROM local_current_membership WHERE room_id = ? AND ${db.dialect.anyOf('membership')} LIMIT ?`,
    [roomId, memberships, limit],
  );
  return rows.map((row) => row.user_id);
}

/** Users of this server who are in any of some rooms. */
export async function selectLocalUsersIn(db: Db, roomIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT DISTINCT user_id FROM local_current_membership WHERE ${db.dialect.anyOf('room_id')} AND membership = 'join'`,
    [roomIds],
  );
  return rows.map((row) => row.user_id);
}

/** Whether a user of this server is in a room. */
export async function isLocalMember(db: Db, userId: string, roomId: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM local_current_membership WHERE user_id = ? AND room_id = ? AND membership = 'join'`,
    [userId, roomId],
  );
  return row !== undefined;
}

/** Those of some rooms that a user of this server is in. */
export async function selectJoinedAmong(db: Db, userId: string, roomIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM local_current_membership WHERE user_id = ? AND ${db.dialect.anyOf('room_id')} AND membership = 'join'`,
    [userId, roomIds],
  );
  return rows.map((row) => row.room_id);
}
