import type { Tx } from '@rookery/database';
import { relationOf, type RoomEvent } from '@rookery/events';
import { sameServer } from '../store/event-store.js';
import { type RedactionRow, selectRedactions } from '../store/event-store.query.js';
import { servableSql } from '../store/servable.query.js';
import { isRedactable, type StoredEvent } from '../model/stored-event.js';
import type { WorkingRoom } from '../room/working-room.js';

/** An accepted event, as far as it is about others. */
export interface Reference {
  readonly event: RoomEvent;
  readonly streamOrdering: number;
  readonly receivedTs: number;
  readonly redactionRecheck: boolean | undefined;
}

/** The events of a batch that are accepted. */
export const referencesOf = (room: WorkingRoom, stored: readonly StoredEvent[]): Reference[] =>
  room.staged.flatMap(({ event, outlier, softFailed, rejectedReason, redactionRecheck }, index) =>
    outlier || softFailed || rejectedReason !== undefined
      ? []
      : [{ ...placeOf(stored[index]!), event, redactionRecheck }],
  );

const placeOf = ({ streamOrdering, receivedTs }: StoredEvent): Pick<Reference, 'streamOrdering' | 'receivedTs'> => ({
  streamOrdering,
  receivedTs,
});

/**
 * Writes what events relate to and redact, and the threads that go on with them.
 * @param redacted those that came after their redaction ({@link selectRedactedBefore}): they relate to nothing
 * @returns ids of the state events that are redacted from now on
 */
export async function writeReferences(
  tx: Tx,
  roomId: string,
  accepted: readonly Reference[],
  redacted: ReadonlySet<string>,
): Promise<readonly string[]> {
  const standing = redacted.size === 0 ? accepted : accepted.filter(({ event }) => !redacted.has(event.eventId));
  const redactedState = accepted.flatMap(({ event: { eventId, stateKey } }) =>
    stateKey !== undefined && redacted.has(eventId) ? [eventId] : [],
  );
  const relations = standing.flatMap(({ event, streamOrdering }) => {
    const relation = event.stateKey === undefined ? relationOf(event.content) : undefined;
    if (!relation) return [];
    const place = [event.sender, event.originServerTs, event.depth, streamOrdering];
    return [[event.eventId, relation.eventId, relation.type, relation.key ?? null, ...place]];
  });
  if (relations.length > 0) {
    await tx.insertMany(
      'event_relations',
      [
        ...['event_id', 'relates_to_id', 'relation_type', 'aggregation_key'],
        ...['sender', 'origin_server_ts', 'topological_ordering', 'stream_ordering'],
      ],
      relations,
    );
    await writeThreads(tx, standing, roomId);
  }
  const redactions = accepted.filter(({ event, redactionRecheck }) => redactionRecheck !== undefined && event.redacts);
  if (redactions.length === 0) return redactedState;
  await tx.insertMany(
    'redactions',
    ['event_id', 'redacts', 'received_ts', 'recheck'],
    redactions.map(({ event, receivedTs, redactionRecheck }) => [
      event.eventId,
      event.redacts!,
      receivedTs,
      redactionRecheck!,
    ]),
    // Where a purge has set it aside, it counts as before, whatever becomes of it when it comes back.
    'ON CONFLICT (event_id) DO NOTHING',
  );
  const targets = await selectRedacted(tx, roomId, redactions);
  await dropRelations(
    tx,
    roomId,
    targets.map((target) => target.event_id),
  );
  for (const target of targets) if (target.state_key !== null) redactedState.push(target.event_id);
  return redactedState;
}

/**
 * Of events that came from elsewhere, which their redactions may have come before. Where such a one was made final already, there is
 * something to make final now.
 * @param events whose rows are written
 * @returns ids of those that are redacted
 */
export async function selectRedactedBefore(tx: Tx, events: readonly RoomEvent[]): Promise<ReadonlySet<string>> {
  if (events.length === 0) return new Set();
  const byId = new Map(events.map((event) => [event.eventId, event]));
  // All of them, so that it waits for whoever is about to make one final.
  const named = await tx.query<{ redacts: string }>(
    `UPDATE redactions SET have_censored = FALSE WHERE ${tx.dialect.anyOf('redacts')} RETURNING redacts`,
    [[...byId.keys()]],
  );
  if (named.length === 0) return new Set();
  const redactions = await selectRedactions(tx, [...new Set(named.map(({ redacts }) => redacts))]);
  const counts = ({ redacts, recheck, sender }: RedactionRow): boolean => {
    const target = byId.get(redacts)!;
    return isRedactable(target.type) && (!recheck || sameServer(sender, target.sender));
  };
  return new Set(redactions.filter(counts).map(({ redacts }) => redacts));
}

interface RedactedRow {
  readonly event_id: string;
  readonly sender: string;
  readonly type: string;
  readonly state_key: string | null;
}

/** What redactions redact, of what is stored. What one names in another room is none of its business. */
async function selectRedacted(tx: Tx, roomId: string, redactions: readonly Reference[]): Promise<RedactedRow[]> {
  const targets = await tx.query<RedactedRow>(
    `SELECT event_id, sender, type, state_key FROM events WHERE ${tx.dialect.anyOf('event_id')} AND room_id = ?`,
    [redactions.map(({ event }) => event.redacts!), roomId],
  );
  return targets.filter(
    ({ event_id: eventId, sender, type }) =>
      isRedactable(type) &&
      redactions.some(
        ({ event, redactionRecheck }) =>
          event.redacts === eventId && (!redactionRecheck || sameServer(event.sender, sender)),
      ),
  );
}

/** A redacted event relates to nothing any more. */
async function dropRelations(tx: Tx, roomId: string, redacted: readonly string[]): Promise<void> {
  if (redacted.length === 0) return;
  const threadIds = await leaveThreads(tx, roomId, redacted);
  await tx.exec(`DELETE FROM event_relations WHERE ${tx.dialect.anyOf('event_id')}`, [redacted]);
  await shortenThreads(tx, roomId, threadIds);
}

/**
 * Has replies count in their threads no more. They are about to go, or to leave the timeline; {@link shortenThreads} comes afterwards.
 * @returns ids of those threads
 */
export async function leaveThreads(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<string[]> {
  const { anyOf } = tx.dialect;
  const rows = await tx.query<{ relates_to_id: string }>(
    `SELECT DISTINCT relates_to_id FROM event_relations WHERE ${anyOf('event_id')} AND relation_type = 'm.thread'`,
    [eventIds],
  );
  if (rows.length === 0) return [];
  const threadIds = rows.map((row) => row.relates_to_id);
  // Who is replying, or takes the same replies away, is waited for, and waits: a purge is in no room's turn.
  await tx.exec(`UPDATE threads SET thread_id = thread_id WHERE room_id = ? AND ${anyOf('thread_id')}`, [
    roomId,
    threadIds,
  ]);
  await tx.exec(
    `INSERT INTO thread_repliers (${repliersColumns.join(', ')})
     SELECT e.room_id, r.relates_to_id, e.sender, -COUNT(*), '', 0, 0
     FROM event_relations r JOIN events e ON e.event_id = r.event_id
     WHERE ${anyOf('r.event_id')} AND r.relation_type = 'm.thread' AND ${servableSql('e.')}
     GROUP BY e.room_id, r.relates_to_id, e.sender
     ON CONFLICT (room_id, thread_id, user_id) DO UPDATE SET replies = thread_repliers.replies + excluded.replies`,
    [eventIds],
  );
  return threadIds;
}

/** Lets threads end with the newest reply that is left; those of which none is left are no threads. */
export async function shortenThreads(tx: Tx, roomId: string, threadIds: readonly string[]): Promise<void> {
  if (threadIds.length === 0) return;
  const which = `room_id = ? AND ${tx.dialect.anyOf('thread_id')}`;
  await tx.run(`DELETE FROM thread_repliers WHERE ${which} AND replies <= 0`, [roomId, threadIds]);
  await recountEnded(tx, roomId, threadIds);
  const repliers = 'FROM thread_repliers p WHERE p.room_id = threads.room_id AND p.thread_id = threads.thread_id';
  await tx.run(`DELETE FROM threads WHERE ${which} AND NOT EXISTS (SELECT 1 ${repliers})`, [roomId, threadIds]);
  await tx.run(
    `UPDATE threads SET (latest_event_id, topological_ordering, stream_ordering) = (
       SELECT p.latest_event_id, p.topological_ordering, p.stream_ordering ${repliers}
       ORDER BY p.topological_ordering DESC, p.stream_ordering DESC LIMIT 1) WHERE ${which}`,
    [roomId, threadIds],
  );
}

/** Goes through those of some threads in which the last reply of somebody who has others is gone. */
async function recountEnded(tx: Tx, roomId: string, threadIds: readonly string[]): Promise<void> {
  const { anyOf } = tx.dialect;
  const ended = await tx.query<{ thread_id: string }>(
    `SELECT DISTINCT thread_id FROM thread_repliers p WHERE room_id = ? AND ${anyOf('thread_id')} AND NOT EXISTS (
       SELECT 1 FROM event_relations r JOIN events e ON e.event_id = r.event_id
       WHERE r.event_id = p.latest_event_id AND ${servableSql('e.')})`,
    [roomId, threadIds],
  );
  if (ended.length === 0) return;
  const endedIds = ended.map((row) => row.thread_id);
  await tx.run(`DELETE FROM thread_repliers WHERE room_id = ? AND ${anyOf('thread_id')}`, [roomId, endedIds]);
  const one = 'PARTITION BY r.relates_to_id, e.sender';
  await tx.run(
    `INSERT INTO thread_repliers (${repliersColumns.join(', ')})
     SELECT room_id, thread_id, sender, replies, event_id, topological_ordering, stream_ordering FROM (
       SELECT e.room_id, r.relates_to_id AS thread_id, e.sender, COUNT(*) OVER (${one}) AS replies,
         e.event_id, e.topological_ordering, e.stream_ordering,
         ROW_NUMBER() OVER (${one} ORDER BY e.topological_ordering DESC, e.stream_ordering DESC) AS place
       FROM event_relations r JOIN events e ON e.event_id = r.event_id
       WHERE ${anyOf('r.relates_to_id')} AND r.relation_type = 'm.thread' AND e.room_id = ? AND ${servableSql('e.')}) AS ranked
     WHERE place = 1`,
    [endedIds, roomId],
  );
}

/** What says which reply is the last one, by the room's own order. */
const columnsOfLast = ['latest_event_id', 'topological_ordering', 'stream_ordering'];
const repliersColumns = ['room_id', 'thread_id', 'user_id', 'replies', ...columnsOfLast];

interface Reply extends Reference {
  readonly threadId: string;
}

function lastOf(replies: readonly Reply[]): readonly [string, number, number] {
  const { event, streamOrdering } = replies.reduce((one, other) =>
    (other.event.depth - one.event.depth || other.streamOrdering - one.streamOrdering) > 0 ? other : one,
  );
  return [event.eventId, event.depth, streamOrdering];
}

/** Counts replies, by thread and sender. */
async function writeRepliers(tx: Tx, roomId: string, replies: readonly Reply[]): Promise<void> {
  const byReplier = Map.groupBy(replies, ({ threadId, event }) => `${event.sender} ${threadId}`);
  const rows = [...byReplier.values()].map((some) => {
    const { threadId, event } = some[0]!;
    return [roomId, threadId, event.sender, some.length, ...lastOf(some)];
  });
  const newest = (column: string): string =>
    `${column} = CASE WHEN ${isLater('thread_repliers')} THEN excluded.${column} ELSE thread_repliers.${column} END`;
  await tx.insertMany(
    'thread_repliers',
    repliersColumns,
    rows,
    `ON CONFLICT (room_id, thread_id, user_id) DO UPDATE SET replies = thread_repliers.replies + excluded.replies,
     ${columnsOfLast.map(newest).join(', ')}`,
  );
}

const isLater = (table: string): string =>
  `(excluded.topological_ordering, excluded.stream_ordering) > (${table}.topological_ordering, ${table}.stream_ordering)`;

async function writeThreads(tx: Tx, accepted: readonly Reference[], roomId: string): Promise<void> {
  const replies = accepted.flatMap((reply) => {
    const { stateKey, content } = reply.event;
    const relation = stateKey === undefined ? relationOf(content) : undefined;
    return relation?.type === 'm.thread' ? [{ ...reply, threadId: relation.eventId }] : [];
  });
  if (replies.length === 0) return;
  const byThread = Map.groupBy(replies, ({ threadId }) => threadId);
  await tx.insertMany(
    'threads',
    ['room_id', 'thread_id', ...columnsOfLast],
    [...byThread].map(([threadId, some]) => [roomId, threadId, ...lastOf(some)]),
    `ON CONFLICT (room_id, thread_id) DO UPDATE SET ${columnsOfLast.map((column) => `${column} = excluded.${column}`).join(', ')}
     WHERE ${isLater('threads')}`,
  );
  // The threads are held from here on.
  await writeRepliers(tx, roomId, replies);
}

/** Takes back what events relate to and redact. */
export async function forgetReferences(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  if (eventIds.length === 0) return;
  const threadIds = await leaveThreads(tx, roomId, eventIds);
  for (const table of ['event_relations', 'redactions'])
    await tx.exec(`DELETE FROM ${table} WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
  await shortenThreads(tx, roomId, threadIds);
}
