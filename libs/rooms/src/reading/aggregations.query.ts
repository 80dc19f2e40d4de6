import type { Db } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';

/** An event that belongs to another one: an edit, a reference, a reply. */
export interface ChildRow {
  readonly target: string;
  readonly event_id: string;
}

/** A summary of a thread. */
export interface ThreadRow {
  readonly target: string;
  readonly count: number;
  readonly latest: string;
  readonly participated: number;
  readonly room_id: string;
  /** Place of the root. */
  readonly root_depth: number;
  readonly root_stream: number;
}

/** Replies of a thread that see the same state, and are on the same side of the end of the reader's last stay. */
export interface AlikeRow {
  readonly target: string;
  readonly count: number;
  /** One of them: who may see it may see all. */
  readonly event_id: string;
}

/** Where a stay began: in the room's own order, and in that of arrival. */
export interface StayStart {
  readonly depth: number;
  readonly stream: number;
  /** When, by the clock of whose event it is; milliseconds since the epoch. */
  readonly ts: number;
}

/** Whether a relation is shown with the event that it leads to. Reactions are not: clients count them. */
export const isShownSql = (relation: string): string =>
  `${relation}.relation_type IN ('m.replace', 'm.reference', 'm.thread')`;

/** Those of some stored events to which others relate in a way that is shown with them: however many do, one is looked at. */
export async function selectRelated(db: Db, eventIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT t.event_id FROM events t WHERE ${db.dialect.anyOf('t.event_id')} AND EXISTS (
       SELECT 1 FROM event_relations r WHERE r.relates_to_id = t.event_id AND ${isShownSql('r')})`,
    [eventIds],
  );
  return rows.map((row) => row.event_id);
}

/**
 * The first children of each of some events, in an order that an index has: however many there are behind them, these are read alone.
 * @param where conditions on the target `t`, the relation `r` and the child `e`, which may be seen by clients and lies in the target's room
 * @param limit children of one event at most
 */
async function selectFirst(
  db: Db,
  eventIds: readonly string[],
  { target = '', where, order }: { readonly target?: string; readonly where: string; readonly order: string },
  limit: number,
): Promise<ChildRow[]> {
  const children = `SELECT r.event_id FROM event_relations r JOIN events e ON e.event_id = r.event_id
    WHERE r.relates_to_id = t.event_id AND e.room_id = t.room_id AND ${servableSql('e.')} AND ${where}
    ORDER BY ${order} LIMIT ${Math.trunc(limit)}`;
  const rows = await db.query<ChildRow & { place: number }>(
    db.dialect.name === 'sqlite'
      ? `SELECT t.event_id AS target, c.value AS event_id, c.key AS place
         FROM events t JOIN json_each((SELECT json_group_array(event_id) FROM (${children}))) c
         WHERE ${db.dialect.anyOf('t.event_id')} ${target}`
      : `SELECT t.event_id AS target, c.event_id, c.place
         FROM events t CROSS JOIN LATERAL (
           SELECT event_id, ROW_NUMBER() OVER () AS place FROM (${children}) AS first) AS c
         WHERE ${db.dialect.anyOf('t.event_id')} ${target}`,
    [eventIds],
  );
  return rows.sort((one, other) => one.place - other.place);
}

/**
 * The newest edits of each event by its own sender, of its own type; the newest first, at most `limit` per event. Edits
 * themselves have none.
 * @spec client-server-api#validity-of-replacement-events
 */
export function selectEdits(db: Db, eventIds: readonly string[], limit: number): Promise<ChildRow[]> {
  const isEdit = `SELECT 1 FROM event_relations x WHERE x.event_id = t.event_id AND x.relation_type = 'm.replace'`;
  const edits = {
    target: `AND t.state_key IS NULL AND NOT EXISTS (${isEdit})`,
    where: `r.relation_type = 'm.replace' AND r.sender = t.sender AND e.type = t.type AND e.state_key IS NULL`,
    order: 'r.origin_server_ts DESC, r.event_id DESC',
  };
  return selectFirst(db, eventIds, edits, limit);
}

/** The newest replies in each thread, the newest first, at most `limit` per thread. */
export function selectReplies(db: Db, rootIds: readonly string[], limit: number): Promise<ChildRow[]> {
  const order = 'r.topological_ordering DESC, r.stream_ordering DESC';
  return selectFirst(db, rootIds, { where: `r.relation_type = 'm.thread'`, order }, limit);
}

/** Events that refer to each event, oldest first; at most `limit` per event. */
export function selectReferences(db: Db, eventIds: readonly string[], limit: number): Promise<ChildRow[]> {
  const order = 'r.topological_ordering, r.stream_ordering';
  return selectFirst(db, eventIds, { where: `r.relation_type = 'm.reference'`, order }, limit);
}

/** Where a user's present stay in each room began; rooms that the user is not in are absent. */
export async function selectStays(db: Db, userId: string, roomIds: readonly string[]): Promise<Map<string, StayStart>> {
  const ended = `SELECT o.room_id, MAX(o.event_stream_ordering) AS last FROM room_memberships o
    JOIN events x ON x.event_id = o.event_id
    WHERE o.user_id = ? AND ${db.dialect.anyOf('o.room_id')} AND o.membership <> 'join' AND ${servableSql('x.')}
    GROUP BY o.room_id`;
  const rows = await db.query<StayStart & { room_id: string }>(
    `SELECT m.room_id, MIN(e.topological_ordering) AS depth, MIN(m.event_stream_ordering) AS stream,
       MIN(e.origin_server_ts) AS ts
     FROM room_memberships m
     JOIN events e ON e.event_id = m.event_id LEFT JOIN (${ended}) AS ended ON ended.room_id = m.room_id
     WHERE m.user_id = ? AND ${db.dialect.anyOf('m.room_id')} AND m.membership = 'join' AND ${servableSql('e.')}
       AND (ended.last IS NULL OR m.event_stream_ordering > ended.last)
     GROUP BY m.room_id`,
    [userId, roomIds, userId, roomIds],
  );
  return new Map(rows.map(({ room_id: roomId, ...start }) => [roomId, start]));
}

/**
 * Replies in threads, without what ignored users said, counted by what decides who may see them: the state that they see, and
 * whether they came before the end of the reader's last stay. At most `limit` counts for each thread, the newest first.
 * @param ends where the reader's last stay ended, by room; rooms where it goes on are absent
 */
export function selectAlikeReplies(
  db: Db,
  rootIds: readonly string[],
  ends: ReadonlyMap<string, number>,
  ignored: readonly string[],
  limit: number,
): Promise<AlikeRow[]> {
  const later = [...ends].map(() => 'WHEN e.room_id = ? AND e.stream_ordering >= ? THEN 1').join(' ');
  const side = later === '' ? '0' : `CASE ${later} ELSE 0 END`;
  return db.query<AlikeRow>(
    `SELECT target, count, event_id FROM (
       SELECT target, COUNT(*) AS count, MIN(event_id) AS event_id,
         ROW_NUMBER() OVER (PARTITION BY target ORDER BY MAX(topological_ordering) DESC, MIN(event_id)) AS place
       FROM (
         SELECT r.relates_to_id AS target, e.event_id, e.topological_ordering, g.state_group, ${side} AS side
         FROM event_relations r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.relates_to_id
         LEFT JOIN event_to_state_groups g ON g.event_id = e.event_id
         WHERE ${db.dialect.anyOf('r.relates_to_id')} AND r.relation_type = 'm.thread' AND e.room_id = t.room_id
           AND ${servableSql('e.')} ${ignored.length > 0 ? `AND ${db.dialect.noneOf('e.sender')}` : ''}) AS replies
       GROUP BY target, state_group, side) AS alike
     WHERE place <= ?`,
    [...[...ends].flat(), rootIds, ...(ignored.length > 0 ? [ignored] : []), limit],
  );
}

/** Thread summaries of the events that are thread roots, without what ignored users said. One row is read for each who replied. */
export async function selectThreads(
  db: Db,
  eventIds: readonly string[],
  userId: string,
  ignored: readonly string[],
): Promise<ThreadRow[]> {
  const notIgnored = ignored.length > 0 ? `AND ${db.dialect.noneOf('p.user_id')}` : '';
  return db.query<ThreadRow>(
    `SELECT target, CAST(SUM(replies) AS BIGINT) AS count, MAX(CASE WHEN place = 1 THEN latest_event_id END) AS latest,
       MAX(CASE WHEN user_id = ? OR root_sender = ? THEN 1 ELSE 0 END) AS participated,
       MIN(room_id) AS room_id, MIN(root_depth) AS root_depth, MIN(root_stream) AS root_stream
     FROM (
       SELECT p.thread_id AS target, p.replies, p.latest_event_id, p.user_id, t.sender AS root_sender, p.room_id,
         t.topological_ordering AS root_depth, t.stream_ordering AS root_stream,
         ROW_NUMBER() OVER (PARTITION BY p.thread_id
           ORDER BY p.topological_ordering DESC, p.stream_ordering DESC) AS place
       FROM events t JOIN thread_repliers p ON p.room_id = t.room_id AND p.thread_id = t.event_id
       WHERE ${db.dialect.anyOf('t.event_id')} ${notIgnored}) AS ranked
     GROUP BY target`,
    [userId, userId, eventIds, ...(ignored.length > 0 ? [ignored] : [])],
  );
}
