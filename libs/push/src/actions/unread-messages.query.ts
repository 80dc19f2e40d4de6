import type { Db } from '@rookery/database';
import { redactedCondition } from '@rookery/rooms';
import { hiddenEntry } from './event-push.js';
import { contains } from './push-actions.query.js';

/** Nobody shows a larger number, and the database looks no further. */
const maxCounted = 1_000;

/**
 * How much a user has not read in rooms, whether or not it notifies: messages but notices, and what the room is called, looks
 * like and whether it goes on. Not what the user sent, edits, what was redacted, and what the user is not shown: events of senders
 * whom the user ignores, and of forks whose servers had not heard of the user. At most a thousand per room; rooms without any are
 * absent (MSC2654).
 */
export async function selectUnreadMessages(
  db: Db,
  userId: string,
  roomIds: readonly string[],
): Promise<Map<string, number>> {
  const rows = await db.query<{ room_id: string; unread: number }>(
    `SELECT m.room_id, (SELECT COUNT(*) FROM (
       SELECT 1 AS found FROM events e JOIN event_json j ON j.stream_ordering = e.stream_ordering
       WHERE e.room_id = m.room_id AND e.stream_ordering > m.read_up_to AND e.sender <> ?
         AND (e.push_except IS NULL OR NOT (${contains(db.dialect, 'e.push_except', '?')}))
         AND NOT EXISTS (SELECT 1 FROM ignored_users i WHERE i.ignorer_user_id = m.user_id AND i.ignored_user_id = e.sender)
         AND e.outlier = FALSE AND e.soft_failed = FALSE AND e.rejection_reason IS NULL
         AND ((e.state_key IS NULL AND e.type IN ('m.room.message', 'm.room.encrypted'))
           OR (e.state_key = '' AND e.type IN ('m.room.topic', 'm.room.name', 'm.room.avatar', 'm.room.tombstone')))
         AND j.json NOT LIKE '%"msgtype":"m.notice"%'
         AND NOT EXISTS (SELECT 1 FROM event_relations r WHERE r.event_id = e.event_id AND r.relation_type = 'm.replace')
         AND NOT ${redactedCondition(db)}
       LIMIT ${maxCounted}) AS counted) AS unread
     FROM push_read_marks m WHERE m.user_id = ? AND m.thread_id = '' AND ${db.dialect.anyOf('m.room_id')}`,
    [userId, JSON.stringify(hiddenEntry(userId)), userId, roomIds],
  );
  return new Map(rows.flatMap((row) => (Number(row.unread) > 0 ? [[row.room_id, Number(row.unread)] as const] : [])));
}
