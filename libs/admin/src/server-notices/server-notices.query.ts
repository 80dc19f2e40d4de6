import type { Db } from '@rookery/database';

/** The room in which a user is, or is invited to, together with the sender of notices; the one entered last. */
export async function findNoticeRoom(db: Db, userId: string, senderId: string): Promise<string | undefined> {
  const row = await db.get<{ room_id: string }>(
    `SELECT mine.room_id FROM local_current_membership mine
     JOIN local_current_membership sender ON sender.room_id = mine.room_id AND sender.user_id = ? AND sender.membership = 'join'
     WHERE mine.user_id = ? AND mine.membership IN ('join', 'invite')
     ORDER BY CASE WHEN mine.membership = 'join' THEN 0 ELSE 1 END, mine.event_stream_ordering DESC LIMIT 1`,
    [senderId, userId],
  );
  return row?.room_id;
}
