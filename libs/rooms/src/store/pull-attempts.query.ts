import type { Db, Tx } from '@rookery/database';

/** An event that is missing before others, and what came of asking for it. */
export interface BackwardGap {
  readonly event_id: string;
  /** Depth of the deepest event that names it. */
  readonly depth: number;
  readonly num_attempts: number | null;
  readonly last_attempt_ts: number | null;
}

/** Where a room's history goes on elsewhere, the latest first; at most `limit`. */
export function backwardGaps(db: Db, roomId: string, limit: number): Promise<BackwardGap[]> {
  return db.query<BackwardGap>(
    `SELECT b.event_id, MAX(e.topological_ordering) AS depth, MAX(f.num_attempts) AS num_attempts,
       MAX(f.last_attempt_ts) AS last_attempt_ts
     FROM event_backward_extremities b JOIN event_edges g ON g.prev_event_id = b.event_id
     JOIN events e ON e.event_id = g.event_id
     LEFT JOIN event_failed_pull_attempts f ON f.room_id = b.room_id AND f.event_id = b.event_id
     WHERE b.room_id = ? GROUP BY b.event_id ORDER BY depth DESC LIMIT ${Math.trunc(limit)}`,
    [roomId],
  );
}

/** Stored events that name some which are missing as what they follow upon; of whatever room. */
export async function selectNamedBy(db: Db, eventIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT DISTINCT event_id FROM event_edges WHERE ${db.dialect.anyOf('prev_event_id')}`,
    [eventIds],
  );
  return rows.map((row) => row.event_id);
}

/** Notes that nobody gave some events. */
export async function noteFailedPulls(
  tx: Tx,
  roomId: string,
  eventIds: readonly string[],
  nowTs: number,
  cause: string,
): Promise<void> {
  await tx.insertMany(
    'event_failed_pull_attempts',
    ['room_id', 'event_id', 'num_attempts', 'last_attempt_ts', 'last_cause'],
    eventIds.map((id) => [roomId, id, 1, nowTs, cause]),
    `ON CONFLICT (room_id, event_id) DO UPDATE SET num_attempts = event_failed_pull_attempts.num_attempts + 1,
       last_attempt_ts = excluded.last_attempt_ts, last_cause = excluded.last_cause`,
  );
}

/** Forgets the failures of events that are here now. */
export async function forgetFailedPulls(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM event_failed_pull_attempts WHERE room_id = ? AND ${tx.dialect.anyOf('event_id')}`, [
    roomId,
    eventIds,
  ]);
}
