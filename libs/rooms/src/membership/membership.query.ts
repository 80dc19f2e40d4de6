import type { Db, Tx } from '@rookery/database';

/** Whether this server has a joined member in a room. */
export async function hasLocalMember(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND membership = 'join' LIMIT 1`,
    [roomId],
  );
  return row !== undefined;
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

export async function isBlocked(db: Db, roomId: string): Promise<boolean> {
  return (await db.get('SELECT 1 AS found FROM blocked_rooms WHERE room_id = ?', [roomId])) !== undefined;
}

/** Marks a room that a user has left as forgotten, and when nobody else remembers it, since when; whether there was one. */
export async function forget(tx: Tx, userId: string, roomId: string, nowMs: number): Promise<boolean> {
  await tx.run('UPDATE room_memberships SET forgotten = 1 WHERE user_id = ? AND room_id = ?', [userId, roomId]);
  const changed = await tx.run(
    `UPDATE local_current_membership SET forgotten = 1
     WHERE user_id = ? AND room_id = ? AND membership IN ('leave', 'ban')`,
    [userId, roomId],
  );
  if (changed > 0 && !(await isRemembered(tx, roomId))) {
    await tx.run(
      `INSERT INTO forgotten_rooms (room_id, forgotten_ts) VALUES (?, ?)
       ON CONFLICT (room_id) DO UPDATE SET forgotten_ts = excluded.forgotten_ts`,
      [roomId, nowMs],
    );
  }
  return changed > 0;
}

/** Whether any user of this server is in a room, is invited to it, or has left it without forgetting it. */
export async function isRemembered(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    'SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND forgotten = 0 LIMIT 1',
    [roomId],
  );
  return row !== undefined;
}
