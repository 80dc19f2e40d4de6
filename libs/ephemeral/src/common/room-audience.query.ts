import type { Db } from '@rookery/database';

/** Users of this server who have joined rooms, by room; rooms without any are absent. */
export async function localMembersOf(db: Db, roomIds: readonly string[]): Promise<Map<string, Set<string>>> {
  const rows = await db.query<{ room_id: string; user_id: string }>(
    `SELECT room_id, user_id FROM local_current_membership WHERE ${db.dialect.anyOf('room_id')} AND membership = 'join'`,
    [roomIds],
  );
  const rooms = new Map<string, Set<string>>();
  for (const row of rows) {
    const users = rooms.get(row.room_id);
    if (users) users.add(row.user_id);
    else rooms.set(row.room_id, new Set([row.user_id]));
  }
  return rooms;
}
