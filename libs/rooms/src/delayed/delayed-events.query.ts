import type { Db, Tx } from '@rookery/database';

/** An event that is to be sent later. */
export interface DelayedEventRow {
  readonly delay_id: string;
  readonly user_localpart: string;
  readonly device_id: string | null;
  /** The application service that asked, for itself or as one of its users. */
  readonly appservice_id: string | null;
  /** Milliseconds, from the last start of its time. */
  readonly delay: number;
  /** When it is due, milliseconds since the epoch. */
  readonly send_ts: number;
  readonly room_id: string;
  readonly event_type: string;
  /** `null` for a message event. */
  readonly state_key: string | null;
  readonly origin_server_ts: number | null;
  readonly content: string;
  /** MSC4354 */
  readonly sticky_duration_ms: number | null;
  /** The client's own, so that a repeated request makes no second one. */
  readonly txn_id: string | null;
}

const columns = [
  'delay_id',
  'user_localpart',
  'device_id',
  'appservice_id',
  'delay',
  'send_ts',
  'room_id',
  'event_type',
  'state_key',
  'origin_server_ts',
  'content',
  'sticky_duration_ms',
  'txn_id',
] as const;
const selected = `SELECT ${columns.join(', ')} FROM delayed_events`;

/**
 * Adds an event unless its owner has `max` already, or has made it before with the same transaction.
 * @returns the id that it has; `undefined` when there are too many
 */
export async function insertDelayed(tx: Tx, row: DelayedEventRow, max: number): Promise<string | undefined> {
  if (row.txn_id !== null) {
    const made = await findDelayedByTransaction(tx, row);
    if (made !== undefined) return made;
  }
  const held = await tx.get<{ count: number }>(
    'SELECT COUNT(*) AS count FROM delayed_events WHERE user_localpart = ?',
    [row.user_localpart],
  );
  if ((held?.count ?? 0) >= max) return undefined;
  await tx.insertMany('delayed_events', columns, [columns.map((column) => row[column])]);
  return row.delay_id;
}

/** The id of what a client's transaction left to be sent, as long as it waits. */
export async function findDelayedByTransaction(
  db: Db,
  row: Pick<DelayedEventRow, 'user_localpart' | 'device_id' | 'room_id' | 'txn_id'>,
): Promise<string | undefined> {
  const made = await db.get<{ delay_id: string }>(
    `SELECT delay_id FROM delayed_events WHERE user_localpart = ? AND device_id = ? AND room_id = ? AND txn_id = ?`,
    [row.user_localpart, row.device_id, row.room_id, row.txn_id],
  );
  return made?.delay_id;
}

export function findDelayed(db: Db, delayId: string): Promise<DelayedEventRow | undefined> {
  return db.get<DelayedEventRow>(`${selected} WHERE delay_id = ?`, [delayId]);
}

/** A user's, the next first. */
export function delayedOf(db: Db, localpart: string): Promise<DelayedEventRow[]> {
  return db.query<DelayedEventRow>(`${selected} WHERE user_localpart = ? ORDER BY send_ts, delay_id`, [localpart]);
}

/** What is due, the longest first. @param except ids of those that are none of it */
export function dueAt(
  db: Db,
  nowMs: number,
  except: readonly string[],
  limit: number,
): Promise<Pick<DelayedEventRow, 'delay_id'>[]> {
  return db.query<Pick<DelayedEventRow, 'delay_id'>>(
    `SELECT delay_id FROM delayed_events WHERE send_ts <= ? AND ${db.dialect.noneOf('delay_id')}
     ORDER BY send_ts, delay_id LIMIT ${Math.trunc(limit)}`,
    [nowMs, except],
  );
}

/** When the next one is due, milliseconds since the epoch. @param except ids of those that do not count */
export async function nextDue(db: Db, except: readonly string[]): Promise<number | undefined> {
  const row = await db.get<{ send_ts: number }>(
    `SELECT send_ts FROM delayed_events WHERE ${db.dialect.noneOf('delay_id')} ORDER BY send_ts LIMIT 1`,
    [except],
  );
  return row?.send_ts;
}

/** Rooms with state that is to be sent later. */
export async function roomsWithDelayedState(db: Db): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    'SELECT DISTINCT room_id FROM delayed_events WHERE state_key IS NOT NULL',
  );
  return rows.map((row) => row.room_id);
}

/** @returns when it is due from now on; `undefined` when it is not there */
export async function restartDelayed(tx: Tx, delayId: string, nowMs: number): Promise<number | undefined> {
  const row = await tx.get<{ send_ts: number }>(
    'UPDATE delayed_events SET send_ts = ? + delay WHERE delay_id = ? RETURNING send_ts',
    [nowMs, delayId],
  );
  return row?.send_ts;
}

/** @returns how many there were: 0 or 1 */
export function deleteDelayed(tx: Tx, delayId: string): Promise<number> {
  return tx.run('DELETE FROM delayed_events WHERE delay_id = ?', [delayId]);
}

export async function deleteDelayedOfRoom(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM delayed_events WHERE room_id = ?', [roomId]);
}

export async function deleteDelayedOfUser(tx: Tx, localpart: string): Promise<void> {
  await tx.run('DELETE FROM delayed_events WHERE user_localpart = ?', [localpart]);
}

/** Deletes those that would set a piece of state, except a user's own. */
export async function deleteDelayedState(
  tx: Tx,
  roomId: string,
  type: string,
  stateKey: string,
  exceptLocalpart: string,
): Promise<void> {
  await tx.run(
    'DELETE FROM delayed_events WHERE room_id = ? AND event_type = ? AND state_key = ? AND user_localpart <> ?',
    [roomId, type, stateKey, exceptLocalpart],
  );
}
