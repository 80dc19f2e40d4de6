import type { Db, Tx } from '@rookery/database';

/** A sticky event that is stored. */
export interface StickyRow {
  readonly stream_id: number;
  readonly event_id: string;
  readonly room_id: string;
}

/** A sticky event that is about to be stored. */
export interface NewStickyRow extends StickyRow {
  readonly event_stream_ordering: number;
  readonly sender: string;
  /** Milliseconds since the epoch. */
  readonly expires_at: number;
}

const columns = [
  'stream_id',
  'instance_name',
  'event_id',
  'room_id',
  'event_stream_ordering',
  'sender',
  'expires_at',
] as const;

/** Adds events. */
export async function insertSticky(tx: Tx, rows: readonly NewStickyRow[]): Promise<void> {
  await tx.insertMany(
    'sticky_events',
    columns,
    rows.map((row) => columns.map((column) => (column === 'instance_name' ? 'master' : row[column]))),
  );
}

/** Which events are wanted. */
export interface StickyRange {
  readonly after: number;
  readonly upTo: number;
  /** Only what is sticky at this time, milliseconds since the epoch. */
  readonly nowMs: number;
  /** Of each sender in a room only so many, the newest. */
  readonly perSender: number;
  readonly limit: number;
}

/** Sticky events of rooms with `after < position <= upTo`, oldest first. */
export function selectSticky(db: Db, roomIds: readonly string[], range: StickyRange): Promise<StickyRow[]> {
  return db.query<StickyRow>(
    `SELECT stream_id, event_id, room_id FROM (
       SELECT stream_id, event_id, room_id,
         ROW_NUMBER() OVER (PARTITION BY room_id, sender ORDER BY stream_id DESC) AS place
       FROM sticky_events
       WHERE ${db.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ? AND expires_at > ?) AS ranked
     WHERE place <= ? ORDER BY stream_id LIMIT ?`,
    [roomIds, range.after, range.upTo, range.nowMs, range.perSender, range.limit],
  );
}

/** The furthest position that the table holds. */
export async function highestSticky(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(stream_id) AS top FROM sticky_events'))?.top ?? 0;
}

/** Forgets what is not sticky any more. */
export async function deleteExpiredSticky(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('DELETE FROM sticky_events WHERE expires_at <= ?', [nowMs]);
}

/** Forgets events that are purged. */
export async function deleteSticky(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM sticky_events WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
}

/** Forgets a room's. */
export async function deleteStickyOfRoom(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM sticky_events WHERE room_id = ?', [roomId]);
}
