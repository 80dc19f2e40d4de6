import type { Db } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';

/**
 * Every membership that a user ever had, with the position from which it counted: `room_id, user_id, sender, membership,
 * event_id, event_stream_ordering`. Where state resolution left the user without one that is a leave, with the event that
 * counted before. The user is the first parameter of both parts.
 * @param ofState conditions on `d.room_id` and `d.stream_id`
 * @param outOfBand the same on `m.room_id` and `m.event_stream_ordering`
 */
export const membershipsOfUserSql = (ofState: string, outOfBand: string): string =>
  `SELECT d.room_id, d.state_key AS user_id, n.sender,
     CASE WHEN d.event_id IS NULL THEN 'leave' ELSE n.membership END AS membership,
     n.event_id, d.stream_id AS event_stream_ordering
   FROM current_state_delta_stream d JOIN room_memberships n ON n.event_id = COALESCE(d.event_id, d.prev_event_id)
   WHERE d.type = 'm.room.member' AND d.state_key = ?${ofState}
   UNION SELECT m.room_id, m.user_id, m.sender, m.membership, m.event_id, m.event_stream_ordering
   FROM room_memberships m JOIN events e ON e.event_id = m.event_id
   WHERE m.user_id = ? AND e.outlier = TRUE AND e.rejection_reason IS NULL AND e.soft_failed = FALSE${outOfBand}`;

/** A user's membership of a room as it was at some position. */
export interface PastMembership {
  readonly roomId: string;
  readonly membership: Membership;
  readonly eventId: string;
  readonly sender: string;
  readonly streamOrdering: number;
}

interface PastRow {
  readonly room_id: string;
  readonly membership: Membership;
  readonly event_id: string;
  readonly sender: string;
  readonly event_stream_ordering: number;
}

/**
 * The membership of the user in each room at a position, in one query; rooms without one are absent.
 * @param except not this one, but what was before
 */
export async function selectMembershipsAt(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  position: number,
  except?: Membership,
): Promise<Map<string, PastMembership>> {
  if (roomIds.length === 0) return new Map();
  const counted = membershipsOfUserSql(
    ` AND ${db.dialect.anyOf('d.room_id')} AND d.stream_id <= ?`,
    ` AND ${db.dialect.anyOf('m.room_id')} AND m.event_stream_ordering <= ?`,
  );
  const rows = await db.query<PastRow>(
    `SELECT * FROM (
       SELECT a.*, ROW_NUMBER() OVER (PARTITION BY a.room_id ORDER BY a.event_stream_ordering DESC) AS place
       FROM (${counted}) AS a${except === undefined ? '' : ' WHERE a.membership <> ?'}) AS ranked
     WHERE place = 1`,
    [userId, roomIds, position, userId, roomIds, position, ...(except === undefined ? [] : [except])],
  );
  return new Map(
    rows.map((row) => [
      row.room_id,
      {
        roomId: row.room_id,
        membership: row.membership,
        eventId: row.event_id,
        sender: row.sender,
        streamOrdering: row.event_stream_ordering,
      },
    ]),
  );
}

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
