import type { Db, SqlValue, Tx } from '@rookery/database';
import type { ReceiptType, StoredReceipt } from '../model/receipt.js';

interface ReceiptRow {
  readonly stream_id: number;
  readonly room_id: string;
  readonly receipt_type: ReceiptType;
  readonly user_id: string;
  readonly event_id: string;
  readonly data: string;
  readonly event_stream_ordering: number | null;
  readonly thread_id: string | null;
}

const columnNames = [
  'stream_id',
  'room_id',
  'receipt_type',
  'user_id',
  'event_id',
  'data',
  'event_stream_ordering',
  'thread_id',
];
const columns = columnNames.join(', ');
const columnsOf = (alias: string): string => columnNames.map((name) => `${alias}.${name}`).join(', ');

/** Some rooms that are given, as a table `w (room_id)`. */
const givenRooms = (db: Db): string =>
  db.dialect.name === 'sqlite'
    ? '(SELECT value AS room_id FROM json_each(?)) AS w'
    : 'unnest(CAST(? AS TEXT[])) AS w(room_id)';

/**
 * A user's own in some rooms: the parameters are these and the user. Each is looked for by itself: the user may be in many others. What else
 * is asked of the position must not look like something to search by: a room may have been read by very many.
 */
const ownSql = (db: Db): string =>
  `SELECT ${columnsOf('o')} FROM ${givenRooms(db)} CROSS JOIN receipts_linearized o
   WHERE o.room_id = w.room_id AND o.receipt_type IN ('m.read', 'm.read.private') AND o.user_id = ?`;

function fromRow(row: ReceiptRow): StoredReceipt {
  const { ts } = JSON.parse(row.data) as { ts?: number };
  return {
    position: row.stream_id,
    roomId: row.room_id,
    type: row.receipt_type,
    userId: row.user_id,
    eventId: row.event_id,
    threadId: row.thread_id ?? undefined,
    ts: ts ?? 0,
    eventStreamOrdering: row.event_stream_ordering ?? undefined,
  };
}

/**
 * Stores a receipt unless the user has read further already.
 * @returns whether it was stored
 */
export async function upsertReceipt(tx: Tx, receipt: StoredReceipt): Promise<boolean> {
  const { threadId, ts } = receipt;
  const conflict =
    threadId === undefined
      ? '(room_id, receipt_type, user_id) WHERE thread_id IS NULL'
      : '(room_id, receipt_type, user_id, thread_id)';
  const changed = await tx.run(
    `INSERT INTO receipts_linearized (${columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT ${conflict} DO UPDATE SET stream_id = excluded.stream_id, event_id = excluded.event_id,
       data = excluded.data, event_stream_ordering = excluded.event_stream_ordering
     WHERE receipts_linearized.event_stream_ordering IS NULL
       OR excluded.event_stream_ordering > receipts_linearized.event_stream_ordering`,
    [
      receipt.position,
      receipt.roomId,
      receipt.type,
      receipt.userId,
      receipt.eventId,
      JSON.stringify(threadId === undefined ? { ts } : { ts, thread_id: threadId }),
      receipt.eventStreamOrdering ?? null,
      threadId ?? null,
    ],
  );
  return changed > 0;
}

/** Which receipts of rooms are wanted: those with `after < position <= upTo`, at most so many of each room. */
interface NewestRange {
  readonly after: number;
  readonly upTo: number;
  readonly perRoom: number;
}

/**
 * The newest public receipts of each of some rooms. No more of them are read, however many have read a room: PostgreSQL is told by a
 * lateral join, SQLite by where the last of them lies.
 */
function newestSql(
  db: Db,
  roomIds: readonly string[],
  { after, upTo, perRoom }: NewestRange,
): { readonly sql: string; readonly params: SqlValue[] } {
  const limit = Math.trunc(perRoom);
  const inRoom = (alias: string): string =>
    `${alias}.room_id = w.room_id AND ${alias}.stream_id <= ? AND ${alias}.receipt_type = 'm.read'`;
  const newest = `FROM receipts_linearized x WHERE ${inRoom('x')} AND x.stream_id > ? ORDER BY x.stream_id DESC LIMIT`;
  if (db.dialect.name === 'postgres')
    return {
      sql: `SELECT ${columnsOf('r')} FROM ${givenRooms(db)}
        CROSS JOIN LATERAL (SELECT ${columnsOf('x')} ${newest} ${limit}) AS r`,
      params: [roomIds, upTo, after],
    };
  return {
    sql: `SELECT ${columnsOf('r')} FROM ${givenRooms(db)} CROSS JOIN receipts_linearized r
      WHERE ${inRoom('r')} AND r.stream_id >= COALESCE((SELECT x.stream_id ${newest} 1 OFFSET ${limit - 1}), ? + 1)`,
    params: [roomIds, upTo, upTo, after, after],
  };
}

/** Public receipts in rooms with `after < position <= upTo`, the newest of each room and all of one user's own; oldest first. */
export async function publicReceipts(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  range: NewestRange,
): Promise<StoredReceipt[]> {
  const newest = newestSql(db, roomIds, range);
  const rows = await db.query<ReceiptRow>(
    `${newest.sql}
     UNION
     SELECT ${columns} FROM receipts_linearized
     WHERE user_id = ? AND receipt_type = 'm.read' AND stream_id > ? AND stream_id <= ? AND ${db.dialect.anyOf('room_id')}
     ORDER BY stream_id`,
    [...newest.params, userId, range.after, range.upTo, roomIds],
  );
  return rows.map(fromRow);
}

/** A user's own private receipts in `(after, upTo]`, oldest first; in some rooms or all. */
export async function privateReceipts(
  db: Db,
  userId: string,
  roomIds: readonly string[] | undefined,
  after: number,
  upTo: number,
): Promise<StoredReceipt[]> {
  const rows = await db.query<ReceiptRow>(
    `SELECT ${columns} FROM receipts_linearized
     WHERE user_id = ? AND receipt_type = 'm.read.private' AND stream_id > ? AND stream_id <= ?
       ${roomIds ? `AND ${db.dialect.anyOf('room_id')}` : ''} ORDER BY stream_id`,
    roomIds ? [userId, after, upTo, roomIds] : [userId, after, upTo],
  );
  return rows.map(fromRow);
}

/** The newest public receipts of each room, at most `perRoom`, and all of one user's own; oldest first. */
export async function newestReceipts(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  upTo: number,
  perRoom: number,
): Promise<StoredReceipt[]> {
  const newest = newestSql(db, roomIds, { after: 0, upTo, perRoom });
  const rows = await db.query<ReceiptRow>(
    `${newest.sql}
     UNION
     ${ownSql(db)} AND o.stream_id + 0 <= ?
     ORDER BY stream_id`,
    [...newest.params, roomIds, userId, upTo],
  );
  return rows.map(fromRow);
}

/** Public receipts for some events, and all of one user's own in some rooms; oldest first. */
export async function receiptsOfEvents(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  eventIds: readonly string[],
  upTo: number,
): Promise<StoredReceipt[]> {
  const rows = await db.query<ReceiptRow>(
    `SELECT ${columns} FROM receipts_linearized
     WHERE ${db.dialect.anyOf('event_id')} AND stream_id <= ? AND receipt_type = 'm.read'
     UNION
     ${ownSql(db)} AND o.stream_id + 0 <= ?
     ORDER BY stream_id`,
    [eventIds, upTo, roomIds, userId, upTo],
  );
  return rows.map(fromRow);
}

/** All receipts with `after < position <= upTo`, ascending, at most `limit`. */
export async function receiptsInStream(db: Db, after: number, upTo: number, limit: number): Promise<StoredReceipt[]> {
  const rows = await db.query<ReceiptRow>(
    `SELECT ${columns} FROM receipts_linearized WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id LIMIT ?`,
    [after, upTo, limit],
  );
  return rows.map(fromRow);
}

/** A user's own receipts in some rooms, of both types. */
export async function receiptsOf(db: Db, userId: string, roomIds: readonly string[]): Promise<StoredReceipt[]> {
  return (await db.query<ReceiptRow>(ownSql(db), [roomIds, userId])).map(fromRow);
}

/** The furthest position in the stream that the table holds. */
export async function highestReceipt(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(stream_id) AS top FROM receipts_linearized'))?.top ?? 0;
}

/** Forgets some receipts of a room, about `limit` of them; whether there may be more. */
export async function deleteSomeReceipts(tx: Tx, roomId: string, limit: number): Promise<boolean> {
  const deleted = await tx.run(
    `DELETE FROM receipts_linearized WHERE room_id = ? AND stream_id IN (
       SELECT x.stream_id FROM receipts_linearized x WHERE x.room_id = ? ORDER BY x.stream_id LIMIT ${Math.trunc(limit)})`,
    [roomId, roomId],
  );
  return deleted >= limit;
}

/** Forgets all receipts of a room. */
export async function deleteReceiptsOfRoom(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM receipts_linearized WHERE room_id = ?', [roomId]);
}
