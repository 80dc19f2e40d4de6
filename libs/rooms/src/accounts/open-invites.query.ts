import type { Db } from '@rookery/database';

/** An invite of a user of this server that counts, and where it was stored. */
export interface OpenInvite {
  readonly eventId: string;
  readonly streamOrdering: number;
}

/**
 * Invites that were stored behind `after`, up to `upTo`, and not answered since; the oldest first, at most `limit`.
 * @param sinceTs older ones are left out, milliseconds since the epoch
 */
export async function openInvites(
  db: Db,
  after: number,
  upTo: number,
  sinceTs: number,
  limit: number,
): Promise<OpenInvite[]> {
  const rows = await db.query<{ event_id: string; stream_ordering: number }>(
    `SELECT e.event_id, e.stream_ordering FROM events e
     JOIN local_current_membership l ON l.user_id = e.state_key AND l.room_id = e.room_id AND l.event_id = e.event_id
     WHERE e.stream_ordering > ? AND e.stream_ordering <= ? AND e.type = 'm.room.member' AND l.membership = 'invite'
       AND e.received_ts >= ? ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
    [after, upTo, sinceTs],
  );
  return rows.map((row) => ({ eventId: row.event_id, streamOrdering: row.stream_ordering }));
}
