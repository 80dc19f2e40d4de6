import type { Db, Tx } from '@rookery/database';
import type { ClientTransaction, SentEvent } from '../model/stored-event.js';

/** The event that a client's transaction made in a room, if it made one. */
export async function findSentEvent(
  db: Db,
  roomId: string,
  transaction: ClientTransaction,
): Promise<SentEvent | undefined> {
  const row = await db.get<{ event_id: string; stream_ordering: number }>(
    `SELECT t.event_id, e.stream_ordering FROM event_txn_id_device_id t JOIN events e ON e.event_id = t.event_id
     WHERE t.user_id = ? AND t.device_id = ? AND t.room_id = ? AND t.txn_id = ?`,
    [transaction.userId, transaction.deviceId, roomId, transaction.txnId],
  );
  return row && { eventId: row.event_id, roomId, streamOrdering: row.stream_ordering };
}

/** Forgets transaction ids of events that were sent before a time. */
export async function expireTransactions(tx: Tx, beforeTs: number): Promise<void> {
  await tx.run('DELETE FROM event_txn_id_device_id WHERE inserted_ts < ?', [beforeTs]);
}
