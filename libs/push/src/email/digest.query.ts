import type { Db, Tx } from '@rookery/database';

/** When a room was last part of a mail, and how long it may not cause another one. */
export interface RoomThrottle {
  readonly lastSentMs: number;
  readonly throttleMs: number;
}

/** Ids of pushers that may have a mail to send, in order, behind one of them. */
export async function dueEmailPushers(db: Db, after: number, limit: number): Promise<number[]> {
  const rows = await db.query<{ id: number }>(
    `SELECT id FROM pushers WHERE due_up_to IS NOT NULL AND kind = 'email' AND enabled = TRUE AND id > ? ORDER BY id LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.id);
}

/** Of one pusher, by room. */
export async function selectThrottles(db: Db, pusherId: number): Promise<Map<string, RoomThrottle>> {
  const rows = await db.query<{ room_id: string; last_sent_ts: number; throttle_ms: number }>(
    'SELECT room_id, last_sent_ts, throttle_ms FROM pusher_throttle WHERE pusher = ?',
    [pusherId],
  );
  return new Map(rows.map((row) => [row.room_id, { lastSentMs: row.last_sent_ts, throttleMs: row.throttle_ms }]));
}

/** Stores how long rooms may not cause another mail. */
export async function writeThrottles(
  tx: Tx,
  pusherId: number,
  throttles: ReadonlyMap<string, RoomThrottle>,
): Promise<void> {
  await tx.insertMany(
    'pusher_throttle',
    ['pusher', 'room_id', 'last_sent_ts', 'throttle_ms'],
    [...throttles].map(([roomId, { lastSentMs, throttleMs }]) => [pusherId, roomId, lastSentMs, throttleMs]),
    `ON CONFLICT (pusher, room_id) DO UPDATE SET last_sent_ts = excluded.last_sent_ts, throttle_ms = excluded.throttle_ms`,
  );
}

/** Forgets throttles of pushers that are gone. */
export async function deleteStaleThrottles(tx: Tx): Promise<void> {
  await tx.run(
    'DELETE FROM pusher_throttle WHERE NOT EXISTS (SELECT 1 FROM pushers p WHERE p.id = pusher_throttle.pusher)',
  );
}
