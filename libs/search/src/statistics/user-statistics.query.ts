import type { Db, Tx } from '@rookery/database';

/** Users of this server whose memberships have changed in `after < position <= upTo`. */
export async function selectMovedUsers(db: Db, after: number, upTo: number): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT DISTINCT m.user_id FROM current_state_delta_stream d
     JOIN local_current_membership m ON m.user_id = d.state_key AND m.room_id = d.room_id
     WHERE d.stream_id > ? AND d.stream_id <= ? AND d.type = 'm.room.member'`,
    [after, upTo],
  );
  return rows.map((row) => row.user_id);
}

/** A page of the users of this server, in order. */
export async function selectUsers(db: Db, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT name FROM users WHERE name > ? ORDER BY name LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.name);
}

/** Who of this server is or was in a room. */
export async function selectUsersOfRoom(db: Db, roomId: string): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>('SELECT user_id FROM local_current_membership WHERE room_id = ?', [
    roomId,
  ]);
  return rows.map((row) => row.user_id);
}

/**
 * Counts anew the rooms that users are in.
 * @param exceptRoom does not count any more: it is being deleted
 */
export async function countJoinedRooms(tx: Tx, userIds: readonly string[], exceptRoom = ''): Promise<void> {
  if (userIds.length === 0) return;
  const row = await tx.get<{ newest: number | null }>(
    'SELECT MAX(stream_id) AS newest FROM current_state_delta_stream',
  );
  // Whoever counts the same users at the same time waits here, and counts what this transaction leaves.
  await tx.insertMany(
    'user_stats_current',
    ['user_id', 'joined_rooms', 'completed_delta_stream_id'],
    userIds.toSorted().map((userId) => [userId, 0, row?.newest ?? 0]),
    'ON CONFLICT (user_id) DO UPDATE SET completed_delta_stream_id = excluded.completed_delta_stream_id',
  );
  await tx.run(
    `UPDATE user_stats_current SET joined_rooms = (SELECT COUNT(*) FROM local_current_membership m
       WHERE m.user_id = user_stats_current.user_id AND m.membership = 'join' AND m.room_id <> ?)
     WHERE ${tx.dialect.anyOf('user_id')}`,
    [exceptRoom, userIds],
  );
}

/** Forgets all counts. */
export async function deleteUserStatistics(tx: Tx): Promise<void> {
  await tx.run('DELETE FROM user_stats_current');
}
