import type { Db, SqlValue, Tx } from '@rookery/database';

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
  /** Of these senders none. */
  readonly without: readonly string[];
  readonly limit: number;
}

/** Those that count of a range, as a query of the columns, and its parameters. */
function counted(db: Db, roomIds: readonly string[], range: StickyRange): readonly [sql: string, params: SqlValue[]] {
  const { without } = range;
  return [
    `SELECT stream_id, event_id, room_id FROM (
       SELECT stream_id, event_id, room_id,
         ROW_NUMBER() OVER (PARTITION BY room_id, sender ORDER BY stream_id DESC) AS place
       FROM sticky_events WHERE ${db.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ? AND expires_at > ?
         ${without.length > 0 ? `AND ${db.dialect.noneOf('sender')}` : ''}) AS ranked
     WHERE place <= ?`,
    [roomIds, range.after, range.upTo, range.nowMs, ...(without.length > 0 ? [without] : []), range.perSender],
  ];
}

/** Sticky events of rooms with `after < position <= upTo`, oldest first. */
export function selectSticky(db: Db, roomIds: readonly string[], range: StickyRange): Promise<StickyRow[]> {
  const [sql, params] = counted(db, roomIds, range);
  return db.query<StickyRow>(`${sql} ORDER BY stream_id LIMIT ?`, [...params, range.limit]);
}

/** The newest of them, oldest first; of each room as many as of any other where that has more. */
export function selectNewestSticky(db: Db, roomIds: readonly string[], range: StickyRange): Promise<StickyRow[]> {
  const [sql, params] = counted(db, roomIds, range);
  return db.query<StickyRow>(
    `SELECT stream_id, event_id, room_id FROM (
       SELECT stream_id, event_id, room_id FROM (
         SELECT stream_id, event_id, room_id, ROW_NUMBER() OVER (PARTITION BY room_id ORDER BY stream_id DESC) AS nth
         FROM (${sql}) AS counted) AS placed
       ORDER BY nth, stream_id DESC LIMIT ?) AS newest
     ORDER BY stream_id`,
    [...params, range.limit],
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
