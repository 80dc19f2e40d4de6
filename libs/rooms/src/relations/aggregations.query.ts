import type { Db } from '@rookery/database';
import { servableSql } from '../reading/timeline-reader.js';

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
}

/** The newest edits of each event by its own sender, of its own type; the newest first, at most `limit` per event. */
export function selectEdits(db: Db, eventIds: readonly string[], limit: number): Promise<ChildRow[]> {
  return db.query<ChildRow>(
    `SELECT target, event_id FROM (
       SELECT r.relates_to_id AS target, e.event_id,
         ROW_NUMBER() OVER (PARTITION BY r.relates_to_id ORDER BY e.origin_server_ts DESC, e.event_id DESC) AS place
       FROM event_relations r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.relates_to_id
       WHERE ${db.dialect.anyOf('r.relates_to_id')} AND r.relation_type = 'm.replace' AND e.sender = t.sender
         AND e.type = t.type AND e.room_id = t.room_id AND e.state_key IS NULL AND t.state_key IS NULL
         AND ${servableSql('e.')}) AS ranked
     WHERE place <= ? ORDER BY target, place`,
    [eventIds, limit],
  );
}

/** The newest replies in each thread, the newest first, at most `limit` per thread. */
export function selectReplies(db: Db, rootIds: readonly string[], limit: number): Promise<ChildRow[]> {
  return db.query<ChildRow>(
    `SELECT target, event_id FROM (
       SELECT r.relates_to_id AS target, e.event_id,
         ROW_NUMBER() OVER (PARTITION BY r.relates_to_id
           ORDER BY e.topological_ordering DESC, e.stream_ordering DESC) AS place
       FROM event_relations r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.relates_to_id
       WHERE ${db.dialect.anyOf('r.relates_to_id')} AND r.relation_type = 'm.thread' AND e.room_id = t.room_id
         AND ${servableSql('e.')}) AS ranked
     WHERE place <= ? ORDER BY target, place`,
    [rootIds, limit],
  );
}

/** Events that refer to each event, oldest first; at most `limit` per event. */
export function selectReferences(db: Db, eventIds: readonly string[], limit: number): Promise<ChildRow[]> {
  return db.query<ChildRow>(
    `SELECT target, event_id FROM (
       SELECT r.relates_to_id AS target, e.event_id, e.stream_ordering,
         ROW_NUMBER() OVER (PARTITION BY r.relates_to_id ORDER BY e.topological_ordering, e.stream_ordering) AS place
       FROM event_relations r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.relates_to_id
       WHERE ${db.dialect.anyOf('r.relates_to_id')} AND r.relation_type = 'm.reference' AND e.room_id = t.room_id
         AND ${servableSql('e.')}) AS ranked
     WHERE place <= ? ORDER BY target, place`,
    [eventIds, limit],
  );
}

/** Thread summaries of the events that are thread roots, without what ignored users said. */
export async function selectThreads(
  db: Db,
  eventIds: readonly string[],
  userId: string,
  ignored: readonly string[],
): Promise<ThreadRow[]> {
  const notIgnored = ignored.length > 0 ? `AND ${db.dialect.noneOf('e.sender')}` : '';
  return db.query<ThreadRow>(
    `SELECT target, COUNT(*) AS count, MAX(CASE WHEN place = 1 THEN event_id END) AS latest,
       MAX(CASE WHEN sender = ? OR root_sender = ? THEN 1 ELSE 0 END) AS participated
     FROM (
       SELECT r.relates_to_id AS target, e.event_id, e.sender, t.sender AS root_sender,
         ROW_NUMBER() OVER (PARTITION BY r.relates_to_id
           ORDER BY e.topological_ordering DESC, e.stream_ordering DESC) AS place
       FROM event_relations r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.relates_to_id
       WHERE ${db.dialect.anyOf('r.relates_to_id')} AND r.relation_type = 'm.thread' AND e.room_id = t.room_id
         AND ${servableSql('e.')} ${notIgnored}) AS ranked
     GROUP BY target`,
    [userId, userId, eventIds, ...(ignored.length > 0 ? [ignored] : [])],
  );
}
