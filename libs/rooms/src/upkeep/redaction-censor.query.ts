import type { Db, SqlBool, Tx } from '@rookery/database';

/** A redaction that is to be made final, and what it redacts, if that is known. */
export interface DueRow {
  readonly event_id: string;
  readonly room_id: string;
  readonly received_ts: number;
  readonly redacts: string;
  readonly recheck: SqlBool;
  readonly redactor: string;
  readonly sender: string | null;
  readonly stream_ordering: number | null;
  readonly json: string | null;
  readonly room_version: string;
}

/** Redactions that came before a time and are not final, the oldest first. @param after the last one of those that are known */
export function selectDueRedactions(
  db: Db,
  beforeTs: number,
  after: Pick<DueRow, 'received_ts' | 'event_id'> | undefined,
  limit: number,
): Promise<DueRow[]> {
  return db.query<DueRow>(
    `SELECT r.event_id, e.room_id, r.received_ts, r.redacts, r.recheck, e.sender AS redactor, t.sender, j.stream_ordering, j.json,
       o.room_version FROM redactions r
     JOIN events e ON e.event_id = r.event_id JOIN rooms o ON o.room_id = e.room_id
     LEFT JOIN events t ON t.event_id = r.redacts AND t.room_id = e.room_id
     LEFT JOIN event_json j ON j.stream_ordering = t.stream_ordering
     WHERE r.have_censored = FALSE AND r.received_ts <= ?${after ? ' AND (r.received_ts, r.event_id) > (?, ?)' : ''}
     ORDER BY r.received_ts, r.event_id LIMIT ?`,
    [beforeTs, ...(after ? [after.received_ts, after.event_id] : []), limit],
  );
}

/** Writes another text in place of an event's. */
export async function updateEventJson(tx: Tx, streamOrdering: number, json: string): Promise<void> {
  await tx.run('UPDATE event_json SET json = ? WHERE stream_ordering = ?', [json, streamOrdering]);
}

/** Redactions of before had the time of their sender: none came later than now. */
export async function boundRedactionTimes(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('UPDATE redactions SET received_ts = ? WHERE have_censored = FALSE AND received_ts > ?', [nowMs, nowMs]);
}

/**
 * Takes the mark from those redactions whose events have come meanwhile. Behind {@link markCensored}, which waits for whoever stores
 * such an event.
 */
export async function unmarkArrived(tx: Tx, eventIds: readonly string[]): Promise<void> {
  if (eventIds.length === 0) return;
  await tx.run(
    `UPDATE redactions SET have_censored = FALSE WHERE ${tx.dialect.anyOf('event_id')} AND EXISTS (
       SELECT 1 FROM events e JOIN events t ON t.event_id = redactions.redacts AND t.room_id = e.room_id
       JOIN event_json j ON j.stream_ordering = t.stream_ordering WHERE e.event_id = redactions.event_id)`,
    [eventIds],
  );
}

export async function markCensored(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await tx.run(`UPDATE redactions SET have_censored = TRUE WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
}
