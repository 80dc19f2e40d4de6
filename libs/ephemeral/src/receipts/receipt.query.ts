import type { Db, Tx } from '@rookery/database';
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

const columns = 'stream_id, room_id, receipt_type, user_id, event_id, data, event_stream_ordering, thread_id';

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

/** Public receipts in rooms with `after < position <= upTo`, the newest of each room and all of one user's own; oldest first. */
export async function publicReceipts(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  { after, upTo, perRoom }: { readonly after: number; readonly upTo: number; readonly perRoom: number },
): Promise<StoredReceipt[]> {
  const rows = await db.query<ReceiptRow>(
    `SELECT ${columns} FROM (
       SELECT ${columns}, ROW_NUMBER() OVER (PARTITION BY room_id ORDER BY stream_id DESC) AS place
       FROM receipts_linearized
       WHERE ${db.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ? AND receipt_type = 'm.read') AS r
     WHERE place <= ? OR user_id = ? ORDER BY stream_id`,
    [roomIds, after, upTo, perRoom, userId],
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
  const rows = await db.query<ReceiptRow>(
    `SELECT ${columns} FROM (
       SELECT ${columns}, ROW_NUMBER() OVER (PARTITION BY room_id ORDER BY stream_id DESC) AS place
       FROM receipts_linearized WHERE ${db.dialect.anyOf('room_id')} AND stream_id <= ? AND receipt_type = 'm.read') AS r
     WHERE place <= ?
     UNION
     SELECT ${columns} FROM receipts_linearized
     WHERE user_id = ? AND ${db.dialect.anyOf('room_id')} AND stream_id <= ?
     ORDER BY stream_id`,
    [roomIds, upTo, perRoom, userId, roomIds, upTo],
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
     SELECT ${columns} FROM receipts_linearized WHERE user_id = ? AND ${db.dialect.anyOf('room_id')} AND stream_id <= ?
     ORDER BY stream_id`,
    [eventIds, upTo, userId, roomIds, upTo],
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
  const rows = await db.query<ReceiptRow>(
    `SELECT ${columns} FROM receipts_linearized WHERE user_id = ? AND ${db.dialect.anyOf('room_id')}`,
    [userId, roomIds],
  );
  return rows.map(fromRow);
}

/** The furthest position in the stream that the table holds. */
export async function highestReceipt(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(stream_id) AS top FROM receipts_linearized'))?.top ?? 0;
}

/** Forgets all receipts of a room. */
export async function deleteReceiptsOfRoom(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM receipts_linearized WHERE room_id = ?', [roomId]);
}
