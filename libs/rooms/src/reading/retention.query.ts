import type { Db } from '@rookery/database';

/** The event that says how long messages of a room live. */
interface PolicyRow {
  readonly room_id: string;
  readonly event_id: string;
}

/** Ids of the retention policies of some rooms, by room; those without one are absent. */
export async function selectPoliciesOf(db: Db, roomIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<PolicyRow>(
    `SELECT room_id, event_id FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.retention' AND state_key = ''`,
    [roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, row.event_id]));
}

/** The next rooms behind one, by id. */
export async function selectRoomsBehind(db: Db, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM rooms WHERE room_id > ? ORDER BY room_id LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.room_id);
}
