import type { Db, Tx } from '@rookery/database';

/** That a user's events in a room are redacted. */
export interface RemovalRedaction {
  readonly roomId: string;
  readonly userId: string;
  /** The member event that removed the user. */
  readonly eventId: string;
  /** Events before this position; `undefined` for all. */
  readonly endOrdering: number | undefined;
}

/** What is redacted of some users in some rooms. */
export async function selectRemovalRedactions(
  db: Db,
  roomIds: readonly string[],
  userIds: readonly string[],
): Promise<RemovalRedaction[]> {
  const rows = await db.query<{ room_id: string; user_id: string; event_id: string; end_ordering: number | null }>(
    `SELECT room_id, user_id, event_id, end_ordering FROM room_removal_redactions
     WHERE ${db.dialect.anyOf('room_id')} AND ${db.dialect.anyOf('user_id')}`,
    [roomIds, userIds],
  );
  return rows.map((row) => ({
    roomId: row.room_id,
    userId: row.user_id,
    eventId: row.event_id,
    endOrdering: row.end_ordering ?? undefined,
  }));
}

export async function upsertRemovalRedactions(tx: Tx, redactions: readonly RemovalRedaction[]): Promise<void> {
  await tx.insertMany(
    'room_removal_redactions',
    ['room_id', 'user_id', 'event_id', 'end_ordering'],
    redactions.map((each) => [each.roomId, each.userId, each.eventId, each.endOrdering ?? null]),
    `ON CONFLICT (room_id, user_id) DO UPDATE SET event_id = excluded.event_id, end_ordering = excluded.end_ordering`,
  );
}

/** Lets what a user says from a position on stand. */
export async function endRemovalRedaction(tx: Tx, roomId: string, userId: string, ordering: number): Promise<void> {
  await tx.exec(
    `UPDATE room_removal_redactions SET end_ordering = ? WHERE room_id = ? AND user_id = ? AND end_ordering IS NULL`,
    [ordering, roomId, userId],
  );
}
