import type { Db } from '@rookery/database';

/** The event that says how long messages of a room live. */
interface PolicyRow {
  readonly room_id: string;
  readonly event_id: string;
}

const policies = `SELECT room_id, event_id FROM current_state_events WHERE type = 'm.room.retention' AND state_key = ''`;

/** Ids of the retention policies of some rooms, by room; those without one are absent. */
export async function selectPoliciesOf(db: Db, roomIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<PolicyRow>(`${policies} AND ${db.dialect.anyOf('room_id')}`, [roomIds]);
  return new Map(rows.map((row) => [row.room_id, row.event_id]));
}

/** Ids of all retention policies, by room. */
export async function selectPolicies(db: Db): Promise<Map<string, string>> {
  const rows = await db.query<PolicyRow>(policies);
  return new Map(rows.map((row) => [row.room_id, row.event_id]));
}

/** Ids of all rooms. */
export async function selectRoomIds(db: Db): Promise<string[]> {
  return (await db.query<{ room_id: string }>('SELECT room_id FROM rooms')).map((row) => row.room_id);
}
