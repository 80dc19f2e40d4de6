import type { Db } from '@rookery/database';

const counted = (membership: string): string =>
  `SUM(CASE WHEN type = 'm.room.member' AND membership = '${membership}' THEN 1 ELSE 0 END)`;

/** How many rooms have other figures than their state has, or none; `populate_stats_process_rooms` counts them anew. */
export async function countWrongRoomFigures(db: Db): Promise<number> {
  const row = await db.get<{ wrong: number }>(
    `SELECT COUNT(*) AS wrong FROM (
       SELECT room_id, COUNT(*) AS total, ${counted('join')} AS joined, ${counted('invite')} AS invited,
         ${counted('leave')} AS gone, ${counted('ban')} AS banned, ${counted('knock')} AS knocked
       FROM current_state_events GROUP BY room_id) c
     LEFT JOIN (SELECT room_id, COUNT(*) AS total FROM local_current_membership WHERE membership = 'join' GROUP BY room_id) l
       ON l.room_id = c.room_id
     LEFT JOIN room_stats_current s ON s.room_id = c.room_id
     WHERE EXISTS (SELECT 1 FROM rooms r WHERE r.room_id = c.room_id) AND (s.room_id IS NULL
       OR s.current_state_events <> c.total OR s.joined_members <> c.joined OR s.invited_members <> c.invited
       OR s.left_members <> c.gone OR s.banned_members <> c.banned OR s.knocked_members <> c.knocked
       OR s.local_users_in_room <> COALESCE(l.total, 0))`,
  );
  return Number(row?.wrong ?? 0);
}

/**
 * How many users are counted in other numbers of rooms than they are in, or not at all; `populate_stats_process_users` counts
 * them anew. Whose memberships changed since they were counted are about to be, and are left out.
 */
export async function countWrongUserStatistics(db: Db): Promise<number> {
  const row = await db.get<{ wrong: number }>(
    `SELECT COUNT(*) AS wrong FROM users u
     LEFT JOIN user_stats_current s ON s.user_id = u.name
     LEFT JOIN (SELECT user_id, COUNT(*) AS total FROM local_current_membership WHERE membership = 'join' GROUP BY user_id) m
       ON m.user_id = u.name
     WHERE COALESCE(s.joined_rooms, 0) <> COALESCE(m.total, 0)
       AND NOT EXISTS (SELECT 1 FROM current_state_delta_stream d
         WHERE d.stream_id > s.completed_delta_stream_id AND d.type = 'm.room.member' AND d.state_key = u.name)`,
  );
  return Number(row?.wrong ?? 0);
}
