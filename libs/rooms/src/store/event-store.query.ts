import type { Db, SqlBool } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { isRedactable, type StoredEvent } from '../model/stored-event.js';

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

/** A redaction that was accepted. */
export interface RedactionRow {
  readonly event_id: string;
  readonly redacts: string;
  readonly recheck: SqlBool;
  readonly sender: string;
}

// The room is looked up for each event that was found: where few rooms are known, PostgreSQL would go through all that happened
// in them to find events that it is given the ids of.
/** The columns of an {@link EventRow}, of the tables `e` and those of {@link eventTables}. */
export const eventColumns = `e.event_id, e.room_id, e.stream_ordering, e.received_ts, e.outlier, e.soft_failed, e.rejection_reason,
  j.json, j.internal_metadata, s.prev_state, (SELECT r.room_version FROM rooms r WHERE r.room_id = e.room_id) AS room_version`;
/** What goes with a row of `events e`. */
export const eventTables = `JOIN event_json j ON j.stream_ordering = e.stream_ordering
  LEFT JOIN state_events s ON s.event_id = e.event_id`;

export async function selectEvents(db: Db, eventIds: readonly string[]): Promise<EventRow[]> {
  const rows = await db.query<EventRow & { readonly room_version: string | null }>(
    `SELECT ${eventColumns} FROM events e ${eventTables} WHERE ${db.dialect.anyOf('e.event_id')}`,
    [eventIds],
  );
  // What is left of a room that is gone is nothing.
  return rows.filter(({ room_version: version }) => version !== null);
}

/** Redactions of these events that were accepted, each in its target's room, oldest first. */
export async function selectRedactions(db: Db, eventIds: readonly string[]): Promise<RedactionRow[]> {
  const rows = await db.query<RedactionRow & { readonly room_id: string; readonly target_room_id: string }>(
    `SELECT r.event_id, r.redacts, r.recheck, e.sender, e.room_id, t.room_id AS target_room_id
     FROM redactions r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.redacts
     WHERE ${db.dialect.anyOf('r.redacts')} AND e.rejection_reason IS NULL ORDER BY e.stream_ordering`,
    [eventIds],
  );
  return rows.filter((row) => row.room_id === row.target_room_id);
}

/**
 * Whether a row of `events e` is redacted, as a condition. Anybody may send a redaction of anything, also in another room: what counts for
 * nothing is stored, too, and must not pass for one ({@link selectRedactions}).
 */
export const redactedCondition = (db: Db): string => {
  const find = db.dialect.name === 'sqlite' ? 'instr' : 'strpos';
  const serverOf = (column: string): string => `substr(${column}, ${find}(${column}, ':'))`;
  return `EXISTS (SELECT 1 FROM redactions d JOIN events x ON x.event_id = d.event_id
    WHERE d.redacts = e.event_id AND x.room_id = e.room_id AND x.rejection_reason IS NULL
      AND (d.recheck = FALSE OR ${serverOf('x.sender')} = ${serverOf('e.sender')}))`;
};

/** Which of some redactions name an event that is not theirs to redact: one of another room, of another server's user, or the create event. */
export async function selectVoidRedactions(db: Db, eventIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{
    event_id: string;
    recheck: SqlBool;
    sender: string;
    room_id: string;
    target_sender: string;
    target_room_id: string;
    target_type: string;
  }>(
    `SELECT r.event_id, r.recheck, e.sender, e.room_id, t.sender AS target_sender, t.room_id AS target_room_id,
       t.type AS target_type
     FROM redactions r JOIN events e ON e.event_id = r.event_id JOIN events t ON t.event_id = r.redacts
     WHERE ${db.dialect.anyOf('r.event_id')}`,
    [eventIds],
  );
  const isVoid = (row: (typeof rows)[number]): boolean =>
    row.room_id !== row.target_room_id ||
    !isRedactable(row.target_type) ||
    (!!row.recheck && domainOf(row.sender) !== domainOf(row.target_sender));
  return new Set(rows.filter(isVoid).map((row) => row.event_id));
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

/** An accepted piece of state, without its event. */
export interface StateEntryRow {
  readonly event_id: string;
  readonly type: string;
  readonly state_key: string | null;
  /** Of a member event. */
  readonly membership: string | null;
}

/** Those of some events that lie in a room and were not rejected, in no order. */
export async function selectStateEntries(
  db: Db,
  roomId: string,
  eventIds: readonly string[],
): Promise<StateEntryRow[]> {
  const rows = await db.query<StateEntryRow & { readonly room_id: string }>(
    `SELECT e.event_id, e.room_id, e.type, e.state_key, m.membership
     FROM events e LEFT JOIN room_memberships m ON m.event_id = e.event_id
     WHERE ${db.dialect.anyOf('e.event_id')} AND e.rejection_reason IS NULL`,
    [eventIds],
  );
  return rows.filter((row) => row.room_id === roomId);
}

/** Which of some events are stored, in whatever room and however they were judged. */
export async function selectStoredIds(db: Db, eventIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT event_id FROM events WHERE ${db.dialect.anyOf('event_id')}`,
    [eventIds],
  );
  return rows.map((row) => row.event_id);
}
