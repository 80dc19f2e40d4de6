import type { Db, Tx } from '@rookery/database';

/** How a room came to be joined before its state was here. */
export interface PartialJoin {
  /** The server that let the user in. */
  readonly via: string;
  /** The servers that were in the room before the join, as that server says. */
  readonly servers: readonly string[];
}

export interface PartialRoomRow {
  readonly room_id: string;
  readonly join_event_id: string | null;
  readonly joined_via: string | null;
}

export function selectPartialRooms(db: Db): Promise<PartialRoomRow[]> {
  return db.query<PartialRoomRow>('SELECT room_id, join_event_id, joined_via FROM partial_state_rooms');
}

export function selectPartialServers(db: Db): Promise<{ room_id: string; server_name: string }[]> {
  return db.query('SELECT room_id, server_name FROM partial_state_rooms_servers');
}

/** Events of a room that were judged without its whole state, with the group that each has. */
export async function selectPartialEvents(db: Db, roomId: string): Promise<Map<string, number | undefined>> {
  const rows = await db.query<{ event_id: string; state_group: number | null }>(
    `SELECT p.event_id, g.state_group FROM partial_state_events p
     LEFT JOIN event_to_state_groups g ON g.event_id = p.event_id WHERE p.room_id = ?`,
    [roomId],
  );
  return new Map(rows.map((row) => [row.event_id, row.state_group ?? undefined]));
}

/**
 * Earlier joins of a room by users of this server that came without all of the state, and before which it is still not known.
 * @param joinEventId the one that counts
 */
export function selectEarlierJoins(
  db: Db,
  roomId: string,
  joinEventId: string,
): Promise<{ event_id: string; user_id: string }[]> {
  return db.query(
    `SELECT DISTINCT p.event_id, m.user_id FROM partial_state_events p
     JOIN room_memberships m ON m.event_id = p.event_id JOIN event_edges d ON d.event_id = p.event_id
     WHERE p.room_id = ? AND p.event_id <> ? AND m.membership = 'join' AND m.sender = m.user_id`,
    [roomId, joinEventId],
  );
}

/** A room begins to be known in part, be it once more: what was judged by an earlier part is still to be judged by all. */
export async function insertPartialRoom(
  tx: Tx,
  roomId: string,
  joinEventId: string,
  { via, servers }: PartialJoin,
): Promise<void> {
  await deleteFrom(tx, ['partial_state_rooms', 'partial_state_rooms_servers'], roomId);
  await tx.exec('INSERT INTO partial_state_rooms (room_id, join_event_id, joined_via) VALUES (?, ?, ?)', [
    roomId,
    joinEventId,
    via,
  ]);
  await tx.insertMany(
    'partial_state_rooms_servers',
    ['room_id', 'server_name'],
    [...new Set(servers)].map((server) => [roomId, server]),
  );
}

/** Everything is known of a room from now on, or nothing is wanted to be. */
export function deletePartialRoom(tx: Tx, roomId: string): Promise<void> {
  return deleteFrom(tx, ['partial_state_rooms', 'partial_state_rooms_servers', 'partial_state_events'], roomId);
}

async function deleteFrom(tx: Tx, tables: readonly string[], roomId: string): Promise<void> {
  for (const table of tables) await tx.exec(`DELETE FROM ${table} WHERE room_id = ?`, [roomId]);
}

/** Positions after `after` and up to `upTo` at which the state of rooms became whole, by room; the last of each. */
export async function selectCompletions(
  db: Db,
  roomIds: readonly string[],
  after: number,
  upTo: number,
): Promise<Map<string, number>> {
  const rows = await db.query<{ room_id: string; position: number }>(
    `SELECT room_id, MAX(stream_id) AS position FROM un_partial_stated_room_stream
     WHERE ${db.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ? GROUP BY room_id`,
    [roomIds, after, upTo],
  );
  return new Map(rows.map((row) => [row.room_id, row.position]));
}

/** The last position at which the state of a room became whole; 0 for never. */
export async function selectLastCompletion(db: Db): Promise<number> {
  const row = await db.get<{ last: number | null }>('SELECT MAX(stream_id) AS last FROM un_partial_stated_room_stream');
  return row?.last ?? 0;
}
