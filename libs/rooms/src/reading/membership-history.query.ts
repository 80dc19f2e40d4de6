import type { Db } from '@rookery/database';
import { membershipsOfUserSql } from './membership-reader.js';

/** A user's last stay in a room, with the event that ended it and its position; null where it goes on. */
export interface StayRow {
  readonly room_id: string;
  readonly event_id: string | null;
  readonly ended: number | null;
}

/**
 * The last stay in each room, as it was at a position. By what counted, and not by the member events that there are: state
 * resolution may end a stay with an event of long ago, or with none. The event of the end is then the one that brought it about.
 */
export async function selectLastStays(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  upTo: number,
): Promise<StayRow[]> {
  if (roomIds.length === 0) return [];
  const counted = membershipsOfUserSql(
    ` AND ${db.dialect.anyOf('d.room_id')} AND d.stream_id <= ?`,
    ` AND ${db.dialect.anyOf('m.room_id')} AND m.event_stream_ordering <= ?`,
  );
  return db.query<StayRow>(
    `WITH counted AS (${counted}), joined AS (
       SELECT room_id, MAX(event_stream_ordering) AS last FROM counted WHERE membership = 'join' GROUP BY room_id
     ), ended AS (
       SELECT c.room_id, c.event_id, c.event_stream_ordering,
         ROW_NUMBER() OVER (PARTITION BY c.room_id ORDER BY c.event_stream_ordering) AS place
       FROM counted c JOIN joined j ON j.room_id = c.room_id AND c.event_stream_ordering > j.last
     )
     SELECT j.room_id, COALESCE(x.event_id, e.event_id) AS event_id, e.event_stream_ordering AS ended
     FROM joined j LEFT JOIN ended e ON e.room_id = j.room_id AND e.place = 1
     LEFT JOIN events x ON x.stream_ordering = e.event_stream_ordering AND x.room_id = e.room_id`,
    [userId, roomIds, upTo, userId, roomIds, upTo],
  );
}
