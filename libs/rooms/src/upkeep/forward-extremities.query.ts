import type { Db, Tx } from '@rookery/database';

/** A forward extremity of a room, as an administrator sees it. */
export interface ForwardExtremity {
  readonly eventId: string;
  readonly stateGroup: number;
  readonly depth: number;
  readonly receivedTs: number;
}

/** The forward extremities of a room, the newest first. */
export async function selectForwardExtremities(db: Db, roomId: string): Promise<ForwardExtremity[]> {
  const rows = await db.query<{ event_id: string; state_group: number; depth: number; received_ts: number }>(
    `SELECT f.event_id, g.state_group, e.depth, e.received_ts FROM event_forward_extremities f
     JOIN events e ON e.event_id = f.event_id LEFT JOIN event_to_state_groups g ON g.event_id = f.event_id
     WHERE f.room_id = ? ORDER BY e.stream_ordering DESC`,
    [roomId],
  );
  return rows.map((row) => ({
    eventId: row.event_id,
    stateGroup: row.state_group,
    depth: row.depth,
    receivedTs: row.received_ts,
  }));
}

export async function countForwardExtremities(db: Db, roomId: string): Promise<number> {
  const row = await db.get<{ extremities: number }>(
    'SELECT COUNT(*) AS extremities FROM event_forward_extremities WHERE room_id = ?',
    [roomId],
  );
  return row?.extremities ?? 0;
}

/** How many rooms have how many forward extremities. Reads those of all rooms. */
export function selectRoomsByExtremities(db: Db): Promise<{ extremities: number; rooms: number }[]> {
  return db.query(
    `SELECT extremities, COUNT(*) AS rooms
     FROM (SELECT COUNT(*) AS extremities FROM event_forward_extremities GROUP BY room_id) AS counted
     GROUP BY extremities`,
  );
}

/** The rooms with the most forward extremities, of those with more than `threshold`. */
export async function selectSpreadRooms(
  db: Db,
  except: readonly string[],
  threshold: number,
  limit: number,
): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM event_forward_extremities WHERE ${db.dialect.noneOf('room_id')}
     GROUP BY room_id HAVING COUNT(*) > ? ORDER BY COUNT(*) DESC LIMIT ?`,
    [except, threshold, limit],
  );
  return rows.map((row) => row.room_id);
}

export async function deleteForwardExtremities(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM event_forward_extremities WHERE room_id = ? AND ${tx.dialect.anyOf('event_id')}`, [
    roomId,
    eventIds,
  ]);
}
