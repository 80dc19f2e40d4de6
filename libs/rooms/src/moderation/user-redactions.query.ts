import type { Db } from '@rookery/database';
import { redactedCondition } from '../store/event-store.query.js';

/** What somebody said in a room, and that they joined it. */
const types = ['m.room.message', 'm.room.encrypted', 'm.room.member'];
/** Events of a room that one statement looks at. */
const windowSize = 2_000;

/** Which events of a user in a room are wanted. */
export interface UserEventsFilter {
  readonly limit: number;
  /** Only events sent before, milliseconds since the epoch. */
  readonly beforeTs?: number | undefined;
  /** Only events sent after, milliseconds since the epoch. */
  readonly afterTs?: number | undefined;
}

/** A part of a room: from one stream ordering to another, both included. */
export interface RoomSpan {
  readonly from: number;
  readonly to: number;
}

/** An event that is to be redacted. */
export interface RedactableEvent {
  readonly eventId: string;
  readonly streamOrdering: number;
}

/**
 * Messages and joins of a user in a room that are not redacted yet, the newest first. The room is read backwards
 * piece by piece, so that no statement takes long however large it is.
 * @param span where to look, if not in the whole room
 */
export async function redactableEvents(
  db: Db,
  roomId: string,
  userId: string,
  filter: UserEventsFilter,
  span?: RoomSpan,
): Promise<RedactableEvent[]> {
  const found: RedactableEvent[] = [];
  const from = span?.from ?? Number.MIN_SAFE_INTEGER;
  for (let before = span ? span.to + 1 : Number.MAX_SAFE_INTEGER; found.length < filter.limit && before > from;) {
    const window = await db.get<{ lowest: number | null }>(
      `SELECT MIN(stream_ordering) AS lowest FROM (SELECT stream_ordering FROM events
       WHERE room_id = ? AND stream_ordering < ? ORDER BY stream_ordering DESC LIMIT ${windowSize}) w`,
      [roomId, before],
    );
    const lowest = window?.lowest ?? undefined;
    if (lowest === undefined) break;
    const rows = await db.query<{ event_id: string; stream_ordering: number }>(
      `SELECT e.event_id, e.stream_ordering FROM events e LEFT JOIN room_memberships m ON m.event_id = e.event_id
       WHERE e.room_id = ? AND e.stream_ordering >= ? AND e.stream_ordering < ? AND e.sender = ?
         AND e.type IN (${types.map((type) => `'${type}'`).join(', ')})
         AND (e.type <> 'm.room.member' OR (m.membership = 'join' AND m.user_id = e.sender))
         AND e.origin_server_ts < ? AND e.origin_server_ts > ? AND e.rejection_reason IS NULL
         AND NOT ${redactedCondition(db)}
       ORDER BY e.stream_ordering DESC LIMIT ?`,
      [
        roomId,
        Math.max(lowest, from),
        before,
        userId,
        filter.beforeTs ?? Number.MAX_SAFE_INTEGER,
        filter.afterTs ?? -1,
        filter.limit - found.length,
      ],
    );
    found.push(...rows.map((row) => ({ eventId: row.event_id, streamOrdering: row.stream_ordering })));
    before = lowest;
  }
  return found;
}

/** Rooms in which a user is, or from which the user is banned. */
export async function roomsToRedactIn(db: Db, userId: string): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM current_state_events
     WHERE type = 'm.room.member' AND state_key = ? AND membership IN ('join', 'ban') ORDER BY room_id`,
    [userId],
  );
  return rows.map((row) => row.room_id);
}
