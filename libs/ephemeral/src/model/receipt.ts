/** How far a user has read; private ones are shown to the user alone. */
export type ReceiptType = 'm.read' | 'm.read.private';

/** How far a user has read in a room, or in one of its threads. */
export interface Receipt {
  readonly roomId: string;
  readonly type: ReceiptType;
  readonly userId: string;
  readonly eventId: string;
  /** `main`, or the id of a thread's root; absent for the whole room. */
  readonly threadId: string | undefined;
  /** When it was sent, milliseconds since the epoch. */
  readonly ts: number;
  /** Stream ordering of the event, where this server has it. */
  readonly eventStreamOrdering: number | undefined;
}

/** A receipt with its place in the stream `receipts`. */
export interface StoredReceipt extends Receipt {
  readonly position: number;
}

/**
 * The content of an `m.receipt` event. Of several receipts of one user for one event, that for the whole room is shown:
 * it says the most.
 * @spec client-server-api#mreceipt
 */
export function receiptContent(receipts: readonly Receipt[]): Record<string, unknown> {
  type Users = Record<string, { ts: number; thread_id?: string }>;
  // Without a prototype: other servers say what ids look like.
  const content = Object.create(null) as Record<string, Record<string, Users>>;
  for (const { eventId, type, userId, ts, threadId } of receipts) {
    const users = ((content[eventId] ??= {})[type] ??= {});
    const before = users[userId];
    if (before !== undefined && before.thread_id === undefined) continue;
    users[userId] = threadId === undefined ? { ts } : { ts, thread_id: threadId };
  }
  return content;
}
