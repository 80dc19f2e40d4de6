import type { Db } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';

/** The current memberships of any user by room id, in the order of the ids; see `UserMemberships.of`. */
export async function selectMembershipsOfAnyUser(db: Db, userId: string): Promise<Map<string, Membership>> {
  const rows = await db.query<{ room_id: string; membership: Membership }>(
    `SELECT room_id, membership FROM local_current_membership WHERE user_id = ?
     UNION SELECT c.room_id, c.membership FROM current_state_events c
     WHERE c.type = 'm.room.member' AND c.state_key = ? AND NOT EXISTS
       (SELECT 1 FROM local_current_membership l WHERE l.user_id = c.state_key AND l.room_id = c.room_id)
     ORDER BY 1`,
    [userId, userId],
  );
  return new Map(rows.map((row) => [row.room_id, row.membership]));
}

/** How many invites of a user came since a time, milliseconds since the epoch. */
export async function countInvitesSince(db: Db, userId: string, sinceTs: number): Promise<number> {
  const row = await db.get<{ count: number }>(
    `SELECT COUNT(*) AS count FROM room_memberships m JOIN events e ON e.event_id = m.event_id
     WHERE m.sender = ? AND m.membership = 'invite' AND e.received_ts >= ?`,
    [userId, sinceTs],
  );
  return Number(row?.count ?? 0);
}

/** How many rooms a user has joined since a time. */
export async function countRoomsJoinedSince(db: Db, userId: string, sinceTs: number): Promise<number> {
  const row = await db.get<{ count: number }>(
    `SELECT COUNT(DISTINCT m.room_id) AS count FROM room_memberships m JOIN events e ON e.event_id = m.event_id
     WHERE m.user_id = ? AND m.membership = 'join' AND e.received_ts >= ?`,
    [userId, sinceTs],
  );
  return Number(row?.count ?? 0);
}
