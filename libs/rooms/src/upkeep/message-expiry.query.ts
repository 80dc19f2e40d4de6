import type { Db, Tx } from '@rookery/database';

/** A message that is due, and what is stored of it; without these where it is not there any more. */
export interface ExpiredRow {
  readonly event_id: string;
  readonly expiry_ts: number;
  readonly room_id: string | null;
  readonly stream_ordering: number | null;
  readonly json: string | null;
  readonly room_version: string | null;
}

/** What is due at a time, the oldest first. @param after the last one of those that are known */
export function expiredAt(
  db: Db,
  ts: number,
  after: Pick<ExpiredRow, 'expiry_ts' | 'event_id'> | undefined,
  limit: number,
): Promise<ExpiredRow[]> {
  return db.query<ExpiredRow>(
    `SELECT x.event_id, x.expiry_ts, e.room_id, j.stream_ordering, j.json, r.room_version FROM event_expiry x
     LEFT JOIN events e ON e.event_id = x.event_id LEFT JOIN rooms r ON r.room_id = e.room_id
     LEFT JOIN event_json j ON j.stream_ordering = e.stream_ordering
     WHERE x.expiry_ts <= ?${after ? ' AND (x.expiry_ts, x.event_id) > (?, ?)' : ''}
     ORDER BY x.expiry_ts, x.event_id LIMIT ${Math.trunc(limit)}`,
    [ts, ...(after ? [after.expiry_ts, after.event_id] : [])],
  );
}

/** When the next message is due, after a time. */
export async function nextExpiry(db: Db, afterTs: number): Promise<number | undefined> {
  const sql = 'SELECT MIN(expiry_ts) AS ts FROM event_expiry WHERE expiry_ts > ?';
  const row = await db.get<{ ts: number | null }>(sql, [afterTs]);
  return row?.ts ?? undefined;
}

export async function insertExpiries(tx: Tx, rows: readonly (readonly [eventId: string, ts: number])[]): Promise<void> {
  await tx.insertMany('event_expiry', ['event_id', 'expiry_ts'], rows, 'ON CONFLICT DO NOTHING');
}

export async function deleteExpiries(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM event_expiry WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
}

/** Puts what is left of an event in place of it. */
export async function replaceEventJson(tx: Tx, streamOrdering: number, json: string): Promise<void> {
  await tx.run('UPDATE event_json SET json = ? WHERE stream_ordering = ?', [json, streamOrdering]);
}
