import type { Db } from '@rookery/database';

/** Ids of the events of a room that come next at and below a depth, the deepest first. */
export async function selectBelow(db: Db, roomId: string, depth: number, limit: number): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT event_id FROM events WHERE room_id = ? AND topological_ordering <= ? AND outlier = FALSE
     ORDER BY topological_ordering DESC, stream_ordering DESC LIMIT ?`,
    [roomId, depth, limit],
  );
  return rows.map((row) => row.event_id);
}

/** Users of a server who ever had a membership of a room, in the order of their first. */
export async function selectUsersOfServer(
  db: Db,
  serverName: string,
  roomId: string,
  limit: number,
): Promise<string[]> {
  const find = db.dialect.name === 'sqlite' ? 'instr' : 'strpos';
  const rows = await db.query<{ user_id: string }>(
    `SELECT user_id FROM room_memberships WHERE room_id = ? AND substr(user_id, ${find}(user_id, ':') + 1) = ?
     GROUP BY user_id ORDER BY MIN(event_stream_ordering) LIMIT ?`,
    [roomId, serverName, limit],
  );
  return rows.map((row) => row.user_id);
}
