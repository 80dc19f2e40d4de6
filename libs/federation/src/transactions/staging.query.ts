import { type Database, type Db, givenRows, type Tx } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';

/** An event that waits to be put into its room. */
export interface StagedRow {
  readonly origin: string;
  readonly event_id: string;
  readonly event_json: string;
  readonly attempts: number;
  /** Its place in the order of arrival. */
  readonly ordering: number;
}

/** Keeps events, each with its text, until they are in their rooms; what the same server has sent already is passed over. */
export async function stageEvents(
  tx: Tx,
  origin: string,
  events: readonly { readonly event: RoomEvent; readonly text: string; readonly ordering: number }[],
  nowTs: number,
): Promise<void> {
  if (events.length === 0) return;
  await tx.insertMany(
    'federation_inbound_events_staging',
    ['origin', 'room_id', 'event_id', 'received_ts', 'event_json', 'internal_metadata', 'ordering'],
    events.map(({ event, text, ordering }) => [origin, event.roomId, event.eventId, nowTs, text, '{}', ordering]),
    'ON CONFLICT (room_id, event_id, origin) DO NOTHING',
  );
}

/** The events of a room behind a place in the order of arrival, the first ones. */
export function selectStaged(db: Db, roomId: string, after: number, limit: number): Promise<StagedRow[]> {
  return db.query<StagedRow>(
    `SELECT origin, event_id, event_json, attempts, ordering FROM federation_inbound_events_staging
     WHERE room_id = ? AND ordering > ? ORDER BY ordering LIMIT ${Math.trunc(limit)}`,
    [roomId, after],
  );
}

/** Those of some events of a room that wait still, in their order of arrival. */
export async function selectStagedAgain(db: Db, roomId: string, eventIds: readonly string[]): Promise<StagedRow[]> {
  const rows = await db.query<StagedRow>(
    `SELECT origin, event_id, event_json, attempts, ordering FROM federation_inbound_events_staging
     WHERE room_id = ? AND ${db.dialect.anyOf('event_id')}`,
    [roomId, eventIds],
  );
  // Told to put them in order, SQLite goes through all that waits in the room.
  return rows.sort((a, b) => a.ordering - b.ordering);
}

/** How many events wait in each room that any wait in, and the highest ordering. */
export async function selectBacklog(db: Db): Promise<{ rooms: Map<string, number>; highest: number }> {
  const rows = await db.query<{ room_id: string; waiting: number; highest: number }>(
    `SELECT room_id, COUNT(*) AS waiting, MAX(ordering) AS highest FROM federation_inbound_events_staging GROUP BY room_id`,
  );
  return {
    rooms: new Map(rows.map((row) => [row.room_id, row.waiting])),
    highest: rows.reduce((highest, row) => Math.max(highest, row.highest), 0),
  };
}

/** When the event came that waits the longest; `undefined` when none does. */
export async function selectOldestTs(db: Db): Promise<number | undefined> {
  const row = await db.get<{ oldest: number | null }>(
    'SELECT MIN(received_ts) AS oldest FROM federation_inbound_events_staging',
  );
  return row?.oldest ?? undefined;
}

/** An event that waits in a room. */
export interface StagedPlace {
  readonly roomId: string;
  readonly eventId: string;
}

/**
 * Forgets events of rooms, from whatever server they came. In rooms of which ids say nothing of the room (versions 1 and 2) a
 * server can give two events one id; it is its own events alone that it loses by that.
 */
export async function deleteStaged(tx: Tx, places: readonly StagedPlace[]): Promise<void> {
  const pairs = places.map(({ roomId, eventId }) => [roomId, eventId]);
  const done = givenRows(tx, ['room_id', 'event_id'], pairs);
  await tx.run(
    `DELETE FROM federation_inbound_events_staging WHERE (room_id, event_id) IN (
       SELECT w.room_id, w.event_id FROM ${done.sql})`,
    [done.value],
  );
}

/** Forgets an event as it came from one server. */
export async function deleteStagedOf(
  database: Database,
  origin: string,
  roomId: string,
  eventId: string,
): Promise<void> {
  await database.write(
    (tx) =>
      tx.run('DELETE FROM federation_inbound_events_staging WHERE room_id = ? AND event_id = ? AND origin = ?', [
        roomId,
        eventId,
        origin,
      ]),
    { name: 'unstage_event' },
  );
}

/** Notes that an event is about to be looked at that an earlier run of the server has left. */
export async function countAttempt(database: Database, roomId: string, eventId: string): Promise<void> {
  await database.write(
    (tx) =>
      tx.run(
        'UPDATE federation_inbound_events_staging SET attempts = attempts + 1 WHERE room_id = ? AND event_id = ?',
        [roomId, eventId],
      ),
    { name: 'count_staged_attempt' },
  );
}

/** An event did not end the server after all. */
export async function forgetAttempts(database: Database, roomId: string, eventId: string): Promise<void> {
  await database.write(
    (tx) =>
      tx.run('UPDATE federation_inbound_events_staging SET attempts = 0 WHERE room_id = ? AND event_id = ?', [
        roomId,
        eventId,
      ]),
    { name: 'forget_staged_attempts' },
  );
}

/** How many servers have sent an event that waits. */
export async function originsOf(db: Db, roomId: string, eventId: string): Promise<number> {
  const row = await db.get<{ count: number }>(
    'SELECT COUNT(*) AS count FROM federation_inbound_events_staging WHERE room_id = ? AND event_id = ?',
    [roomId, eventId],
  );
  return row?.count ?? 0;
}

/** The answer that a transaction got; `undefined` for a new one. */
export async function selectAnswer(db: Db, origin: string, txnId: string): Promise<string | undefined> {
  const row = await db.get<{ response_json: string }>(
    'SELECT response_json FROM received_transactions WHERE origin = ? AND transaction_id = ?',
    [origin, txnId],
  );
  return row?.response_json;
}

/** Keeps the answer of a transaction. */
export async function insertAnswer(
  tx: Tx,
  origin: string,
  txnId: string,
  answer: string,
  nowTs: number,
): Promise<void> {
  await tx.run(
    `INSERT INTO received_transactions (origin, transaction_id, ts, response_code, response_json) VALUES (?, ?, ?, 200, ?)
     ON CONFLICT (origin, transaction_id) DO NOTHING`,
    [origin, txnId, nowTs, answer],
  );
}

/** Forgets the answers to transactions that came before a time. */
export async function deleteAnswersBefore(database: Database, ts: number): Promise<void> {
  await database.write((tx) => tx.run('DELETE FROM received_transactions WHERE ts < ?', [ts]), {
    ...{ name: 'forget_transactions', anyProcess: true },
  });
}
