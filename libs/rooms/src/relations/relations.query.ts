import type { Db, SqlValue } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';

export interface RelatedRow {
  readonly event_id: string;
  readonly topological_ordering: number;
  readonly stream_ordering: number;
}

/** Which relations of an event are wanted. */
export interface RelationQuery {
  readonly roomId: string;
  readonly eventId: string;
  readonly relType: string | undefined;
  readonly eventType: string | undefined;
  /** How many relations may lie between; 1 for direct ones only. */
  readonly depth: number;
  readonly backwards: boolean;
  readonly from: { readonly topological: number; readonly stream: number } | undefined;
  readonly to: { readonly topological: number; readonly stream: number } | undefined;
  /** Only what arrived behind, or up to, a place in the order of arrival. */
  readonly arrivedAfter: number | undefined;
  readonly arrivedUpTo: number | undefined;
  readonly limit: number;
}

/** Events that relate to an event, in the room's own order. */
export function selectRelations(db: Db, query: RelationQuery): Promise<RelatedRow[]> {
  const params: SqlValue[] = [query.eventId, query.depth, query.roomId];
  const where = ['e.room_id = ?', servableSql('e.')];
  if (query.relType !== undefined) {
    where.push('r.relation_type = ?');
    params.push(query.relType);
  }
  if (query.eventType !== undefined) {
    where.push('e.type = ?');
    params.push(query.eventType);
  }
  const place = '(e.topological_ordering, e.stream_ordering)';
  if (query.from) {
    where.push(`${place} ${query.backwards ? '<=' : '>'} (?, ?)`);
    params.push(query.from.topological, query.from.stream);
  }
  if (query.to) {
    where.push(`${place} ${query.backwards ? '>' : '<='} (?, ?)`);
    params.push(query.to.topological, query.to.stream);
  }
  if (query.arrivedAfter !== undefined) {
    where.push('e.stream_ordering > ?');
    params.push(query.arrivedAfter);
  }
  if (query.arrivedUpTo !== undefined) {
    where.push('e.stream_ordering <= ?');
    params.push(query.arrivedUpTo);
  }
  const order = query.backwards ? 'DESC' : 'ASC';
  return db.query<RelatedRow>(
    `WITH RECURSIVE related(event_id, hop) AS (
       SELECT event_id, 1 FROM event_relations WHERE relates_to_id = ?
       UNION
       SELECT r.event_id, d.hop + 1 FROM related d JOIN event_relations r ON r.relates_to_id = d.event_id
       WHERE d.hop < ?)
     SELECT e.event_id, e.topological_ordering, e.stream_ordering FROM events e
     JOIN event_relations r ON r.event_id = e.event_id
     WHERE e.event_id IN (SELECT event_id FROM related) AND ${where.join(' AND ')}
     ORDER BY e.topological_ordering ${order}, e.stream_ordering ${order} LIMIT ${Math.trunc(query.limit)}`,
    params,
  );
}

export interface ThreadPlaceRow {
  readonly thread_id: string;
  readonly topological_ordering: number;
  readonly stream_ordering: number;
}

/** Thread roots of a room, the thread with the newest reply first. */
export function selectThreadRoots(
  db: Db,
  roomId: string,
  participant: string | undefined,
  before: { readonly topological: number; readonly stream: number } | undefined,
  limit: number,
): Promise<ThreadPlaceRow[]> {
  const params: SqlValue[] = [roomId];
  let where = 't.room_id = ?';
  if (participant !== undefined) {
    where += ` AND (EXISTS (SELECT 1 FROM events x WHERE x.event_id = t.thread_id AND x.sender = ?)
      OR EXISTS (SELECT 1 FROM thread_repliers p
        WHERE p.room_id = t.room_id AND p.thread_id = t.thread_id AND p.user_id = ?))`;
    params.push(participant, participant);
  }
  if (before) {
    where += ' AND (t.topological_ordering, t.stream_ordering) < (?, ?)';
    params.push(before.topological, before.stream);
  }
  return db.query<ThreadPlaceRow>(
    `SELECT t.thread_id, t.topological_ordering, t.stream_ordering FROM threads t WHERE ${where}
     ORDER BY t.topological_ordering DESC, t.stream_ordering DESC LIMIT ${Math.trunc(limit)}`,
    params,
  );
}
