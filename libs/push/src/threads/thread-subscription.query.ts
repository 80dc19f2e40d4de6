import type { Db, SqlBool, Tx } from '@rookery/database';

interface SubscriptionRow {
  readonly stream_id: number;
  readonly room_id: string;
  readonly event_id: string;
  readonly subscribed: SqlBool;
  readonly automatic: SqlBool;
  readonly unsubscribed_at_stream_ordering: number | null;
}

/** A user's subscription to a thread, or that it has ended. */
export interface ThreadSubscription {
  /** When it changed last; later changes of the same thread have higher ones. */
  readonly position: number;
  readonly roomId: string;
  /** The thread's root. */
  readonly threadId: string;
  readonly subscribed: boolean;
  /** A client made it because of an event, not because the user asked for it. */
  readonly automatic: boolean;
  /** Up to where the room was known when it ended. */
  readonly endedAt: number | undefined;
}

/** What a subscription is about to be. */
export interface SubscriptionChange {
  readonly userId: string;
  readonly roomId: string;
  readonly threadId: string;
  readonly subscribed: boolean;
  readonly automatic: boolean;
  readonly endedAt?: { readonly stream: number; readonly topological: number } | undefined;
}

const columns = 'stream_id, room_id, event_id, subscribed, automatic, unsubscribed_at_stream_ordering';

const fromRow = (row: SubscriptionRow): ThreadSubscription => ({
  position: row.stream_id,
  roomId: row.room_id,
  threadId: row.event_id,
  subscribed: !!row.subscribed,
  automatic: !!row.automatic,
  endedAt: row.unsubscribed_at_stream_ordering ?? undefined,
});

/** What is known of a user and a thread. */
export async function findSubscription(
  db: Db,
  userId: string,
  roomId: string,
  threadId: string,
): Promise<ThreadSubscription | undefined> {
  const row = await db.get<SubscriptionRow>(
    `SELECT ${columns} FROM thread_subscriptions WHERE user_id = ? AND room_id = ? AND event_id = ?`,
    [userId, roomId, threadId],
  );
  return row && fromRow(row);
}

/** Writes what a subscription is from now on. */
export async function writeSubscription(tx: Tx, position: number, change: SubscriptionChange): Promise<void> {
  await tx.run(
    `INSERT INTO thread_subscriptions (stream_id, instance_name, room_id, event_id, user_id, subscribed, automatic,
       unsubscribed_at_stream_ordering, unsubscribed_at_topological_ordering) VALUES (?, 'master', ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (room_id, event_id, user_id) DO UPDATE SET stream_id = excluded.stream_id,
       subscribed = excluded.subscribed, automatic = excluded.automatic,
       unsubscribed_at_stream_ordering = excluded.unsubscribed_at_stream_ordering,
       unsubscribed_at_topological_ordering = excluded.unsubscribed_at_topological_ordering`,
    [
      position,
      change.roomId,
      change.threadId,
      change.userId,
      change.subscribed,
      change.automatic,
      change.endedAt?.stream ?? null,
      change.endedAt?.topological ?? null,
    ],
  );
}

/** How many threads a user has ever subscribed to, counted up to a limit. */
export async function countSubscriptions(db: Db, userId: string, limit: number): Promise<number> {
  const row = await db.get<{ count: number }>(
    'SELECT COUNT(*) AS count FROM (SELECT 1 FROM thread_subscriptions WHERE user_id = ? LIMIT ?) AS counted',
    [userId, limit],
  );
  return row?.count ?? 0;
}

/** A user's subscriptions that changed in `(after, upTo]`, the latest change first. */
export async function latestSubscriptions(
  db: Db,
  userId: string,
  after: number,
  upTo: number,
  limit: number,
): Promise<ThreadSubscription[]> {
  const rows = await db.query<SubscriptionRow>(
    `SELECT ${columns} FROM thread_subscriptions WHERE user_id = ? AND stream_id > ? AND stream_id <= ?
     ORDER BY stream_id DESC LIMIT ?`,
    [userId, after, upTo, limit],
  );
  return rows.map(fromRow);
}

/** Everybody who is subscribed to a thread. */
export async function subscribersOf(db: Db, roomId: string, threadId: string): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    'SELECT user_id FROM thread_subscriptions WHERE room_id = ? AND event_id = ? AND subscribed = TRUE',
    [roomId, threadId],
  );
  return rows.map((row) => row.user_id);
}

/** The furthest position that the table holds. */
export async function highestSubscription(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(stream_id) AS top FROM thread_subscriptions'))?.top ?? 0;
}

/** Forgets threads whose roots are gone. */
export async function deleteThreads(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM thread_subscriptions WHERE room_id = ? AND ${tx.dialect.anyOf('event_id')}`, [
    roomId,
    eventIds,
  ]);
}

/** Forgets a room's threads. */
export async function deleteThreadsOfRoom(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM thread_subscriptions WHERE room_id = ?', [roomId]);
}

/** Forgets a user's subscriptions. */
export async function deleteThreadsOfUser(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM thread_subscriptions WHERE user_id = ?', [userId]);
}
