import type { Db } from '@rookery/database';

/** A user's room of notices. */
export interface NoticeRoomRow {
  readonly room_id: string;
  readonly membership: 'join' | 'invite' | 'leave';
}

/** The room in which a user is, is invited to, or was together with the sender of notices; of several the one entered last. */
export function findNoticeRoom(db: Db, userId: string, senderId: string): Promise<NoticeRoomRow | undefined> {
  return db.get<NoticeRoomRow>(
    `SELECT mine.room_id, mine.membership FROM local_current_membership mine
     JOIN local_current_membership sender ON sender.room_id = mine.room_id AND sender.user_id = ? AND sender.membership = 'join'
     WHERE mine.user_id = ? AND mine.membership IN ('join', 'invite', 'leave')
     ORDER BY CASE mine.membership WHEN 'join' THEN 0 WHEN 'invite' THEN 1 ELSE 2 END, mine.event_stream_ordering DESC LIMIT 1`,
    [senderId, userId],
  );
}
