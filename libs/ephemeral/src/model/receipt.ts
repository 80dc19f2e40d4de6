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

type Users = Record<string, { ts: number; thread_id?: string }>;
/** By event, type and user. */
type ReceiptContent = Record<string, Record<string, Users>>;

/**
 * The content of an `m.receipt` event. Of several receipts of one user for one event, that for the whole room is shown:
 * it says the most.
 * @spec client-server-api#mreceipt
 */
export function receiptContent(receipts: readonly Receipt[]): ReceiptContent {
  // Without a prototype: other servers say what ids look like.
  const content = Object.create(null) as ReceiptContent;
  for (const { eventId, type, userId, ts, threadId } of receipts) {
    const users = ((content[eventId] ??= {})[type] ??= {});
    const before = users[userId];
    if (before !== undefined && before.thread_id === undefined) continue;
    users[userId] = threadId === undefined ? { ts } : { ts, thread_id: threadId };
  }
  return content;
}

/**
 * The contents of one `m.receipt` event, or of two: one holds one receipt of a user for an event, and the root of a thread may be read
 * there and in the main timeline. Of more, which no client sends, the last ones count.
 */
export function receiptContents(receipts: readonly Receipt[]): Record<string, unknown>[] {
  const content = receiptContent(receipts);
  const others = receipts.filter(({ eventId, type, userId, threadId }) => {
    const shown = content[eventId]?.[type]?.[userId]?.thread_id;
    return shown !== undefined && shown !== threadId;
  });
  return others.length === 0 ? [content] : [receiptContent(others), content];
}
