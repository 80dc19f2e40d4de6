import type { Db } from '@rookery/database';

/** A local user who was in a room until a position of the stream `events`. */
export interface MemberGone {
  readonly roomId: string;
  readonly userId: string;
  readonly streamOrdering: number;
}

/** Most of them looked up at a start. */
const maxGone = 10_000;

/** The local aliases of rooms. */
export async function aliasesOfRooms(db: Db, roomIds: readonly string[]): Promise<Map<string, string[]>> {
  const rows = await db.query<{ room_id: string; room_alias: string }>(
    `SELECT room_id, room_alias FROM room_aliases WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds],
  );
  const aliases = new Map<string, string[]>();
  for (const row of rows) {
    const list = aliases.get(row.room_id);
    if (list) list.push(row.room_alias);
    else aliases.set(row.room_id, [row.room_alias]);
  }
  return aliases;
}

/** The rooms that users have joined. */
export async function roomsOfUsers(db: Db, userIds: readonly string[]): Promise<Map<string, string[]>> {
  const rows = await db.query<{ state_key: string; room_id: string }>(
    `SELECT state_key, room_id FROM current_state_events
     WHERE type = 'm.room.member' AND membership = 'join' AND ${db.dialect.anyOf('state_key')}`,
    [userIds],
  );
  const rooms = new Map<string, string[]>();
  for (const row of rows) {
    const list = rooms.get(row.state_key);
    if (list) list.push(row.room_id);
    else rooms.set(row.state_key, [row.room_id]);
  }
  return rooms;
}

/** Local users who left, or were made to, behind a position of the stream. */
export async function membersGoneSince(db: Db, after: number, serverName: string): Promise<MemberGone[]> {
  const rows = await db.query<{ room_id: string; user_id: string; event_stream_ordering: number }>(
    `SELECT m.room_id, m.user_id, m.event_stream_ordering FROM events e JOIN room_memberships m ON m.event_id = e.event_id
     WHERE e.stream_ordering > ? AND e.type = 'm.room.member' AND m.membership IN ('leave', 'ban') AND m.user_id LIKE ?
     ORDER BY e.stream_ordering DESC LIMIT ${maxGone}`,
    [after, `%:${serverName}`],
  );
  return rows.map((row) => ({ roomId: row.room_id, userId: row.user_id, streamOrdering: row.event_stream_ordering }));
}
