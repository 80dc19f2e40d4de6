import type { Db } from '@rookery/database';

/** The names that members of a room go by in it; members without one are absent. */
export async function memberNames(db: Db, roomId: string, userIds: readonly string[]): Promise<[string, string][]> {
  const rows = await db.query<{ user_id: string; display_name: string }>(
    `SELECT m.user_id, m.display_name FROM current_state_events c JOIN room_memberships m ON m.event_id = c.event_id
     WHERE c.room_id = ? AND c.type = 'm.room.member' AND c.membership = 'join' AND m.display_name IS NOT NULL
       AND ${db.dialect.anyOf('c.state_key')}`,
    [roomId, userIds],
  );
  return rows.map((row) => [row.user_id, row.display_name]);
}
