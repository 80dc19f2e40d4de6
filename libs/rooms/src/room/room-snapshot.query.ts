import type { Db } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';

export interface RoomRow {
  readonly room_version: string;
}

export interface ExtremityRow {
  readonly event_id: string;
  readonly depth: number;
  readonly state_group: number;
}

export interface CurrentStateRow {
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string;
  readonly membership: Membership | null;
}

export function selectRoom(db: Db, roomId: string): Promise<RoomRow | undefined> {
  return db.get<RoomRow>('SELECT room_version FROM rooms WHERE room_id = ?', [roomId]);
}

export function selectExtremities(db: Db, roomId: string): Promise<ExtremityRow[]> {
  return db.query<ExtremityRow>(
    `SELECT f.event_id, e.depth, g.state_group FROM event_forward_extremities f JOIN events e ON e.event_id = f.event_id
     JOIN event_to_state_groups g ON g.event_id = f.event_id WHERE f.room_id = ? ORDER BY e.stream_ordering`,
    [roomId],
  );
}

/** Which of these events are named as previous by an event that has a place in the timeline of their room. */
export async function selectReferenced(db: Db, roomId: string, eventIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{ prev_event_id: string; room_id: string }>(
    `SELECT DISTINCT d.prev_event_id, e.room_id FROM event_edges d JOIN events e ON e.event_id = d.event_id
     WHERE ${db.dialect.anyOf('d.prev_event_id')} AND e.outlier = FALSE AND e.soft_failed = FALSE
       AND e.rejection_reason IS NULL`,
    [eventIds],
  );
  // Told apart here: a condition on the room would let PostgreSQL go through the whole of it.
  return new Set(rows.flatMap((row) => (row.room_id === roomId ? [row.prev_event_id] : [])));
}
