import type { Db, SqlBool } from '@rookery/database';
import type { StoredEvent } from '../model/stored-event.js';

/** One event as it lies in the database. */
export interface EventRow {
  readonly event_id: string;
  readonly room_id: string;
  readonly stream_ordering: number;
  readonly received_ts: number;
  readonly outlier: SqlBool;
  readonly soft_failed: SqlBool;
  readonly rejection_reason: string | null;
  readonly json: string;
  readonly internal_metadata: string;
  readonly prev_state: string | null;
  readonly room_version: string;
}

export interface RedactionRow {
  readonly event_id: string;
  readonly redacts: string;
  readonly recheck: SqlBool;
  readonly sender: string;
}

const columns = `e.event_id, e.room_id, e.stream_ordering, e.received_ts, e.outlier, e.soft_failed, e.rejection_reason,
  j.json, j.internal_metadata, s.prev_state, r.room_version`;
const tables = `events e JOIN event_json j ON j.stream_ordering = e.stream_ordering JOIN rooms r ON r.room_id = e.room_id
  LEFT JOIN state_events s ON s.event_id = e.event_id`;

export function selectEvents(db: Db, eventIds: readonly string[]): Promise<EventRow[]> {
  return db.query<EventRow>(`SELECT ${columns} FROM ${tables} WHERE ${db.dialect.anyOf('e.event_id')}`, [eventIds]);
}

/** Redactions of these events that were accepted, each in its target's room, oldest first. */
export function selectRedactions(db: Db, eventIds: readonly string[]): Promise<RedactionRow[]> {
  return db.query<RedactionRow>(
    `SELECT r.event_id, r.redacts, r.recheck, e.sender FROM redactions r JOIN events e ON e.event_id = r.event_id
     JOIN events t ON t.event_id = r.redacts AND t.room_id = e.room_id WHERE ${db.dialect.anyOf('r.redacts')} AND e.rejection_reason IS NULL ORDER BY e.stream_ordering`,
    [eventIds],
  );
}

/** Whether an event lies in its place: the same event in another place is from another attempt to store it. */
export async function isStored(
  db: Db,
  { event, streamOrdering }: Pick<StoredEvent, 'event' | 'streamOrdering'>,
): Promise<boolean> {
  const row = await db.get<{ event_id: string }>('SELECT event_id FROM events WHERE stream_ordering = ?', [
    streamOrdering,
  ]);
  return row?.event_id === event.eventId;
}
