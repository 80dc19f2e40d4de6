import { type Db, givenRows } from '@rookery/database';
import { stateKeyOf } from '@rookery/state-res';
import type { StateFilter } from './state-filter.js';
import { pageSql, stateFilterSql, type StateSpan } from './state-filter.query.js';

/** A change of current state, in stream order. `eventId` absent: the entry was removed. */
export interface StateDelta {
  readonly streamId: number;
  readonly roomId: string;
  readonly type: string;
  readonly stateKey: string;
  readonly eventId: string | undefined;
  readonly prevEventId: string | undefined;
}

interface CurrentRow {
  readonly room_id: string;
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string;
}

interface DeltaRow {
  readonly stream_id: number;
  readonly room_id: string;
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string | null;
  readonly prev_event_id: string | null;
}

/**
 * Current state of many rooms, by {@link stateKeyOf}; rooms without any matching entry are absent.
 * @param atMost of more entries nothing is told: `undefined`
 */
export async function selectCurrentState(
  db: Db,
  roomIds: readonly string[],
  filter: StateFilter | undefined,
): Promise<Map<string, Map<string, string>>>;
export async function selectCurrentState(
  db: Db,
  roomIds: readonly string[],
  filter: StateFilter | undefined,
  atMost: number,
): Promise<Map<string, Map<string, string>> | undefined>;
export async function selectCurrentState(
  db: Db,
  roomIds: readonly string[],
  filter: StateFilter | undefined,
  atMost?: number,
): Promise<Map<string, Map<string, string>> | undefined> {
  const alternatives = stateFilterSql(filter, db.dialect);
  const rows = await db.query<CurrentRow>(
    `${alternatives
      .map(
        ({ sql }) => `SELECT room_id, type, state_key, event_id FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND ${sql}`,
      )
      .join(' UNION ALL ')}
     ${atMost === undefined ? '' : `LIMIT ${Math.trunc(atMost) + 1}`}`,
    alternatives.flatMap(({ params }) => [roomIds, ...params]),
  );
  return atMost !== undefined && rows.length > atMost ? undefined : byRoom(rows);
}

/** An entry of a room's state, by which it is looked for. */
export type WantedEntry = readonly [roomId: string, type: string, stateKey: string];

/** Entries of current state, by room and {@link stateKeyOf}; rooms without any of them are absent. Nothing else of the rooms is looked at. */
export async function selectCurrentEntries(
  db: Db,
  wanted: readonly WantedEntry[],
): Promise<Map<string, Map<string, string>>> {
  const given = givenRows(db, ['room_id', 'type', 'state_key'], wanted);
  const rows = await db.query<CurrentRow>(
    `SELECT c.room_id, c.type, c.state_key, c.event_id FROM ${given.sql} CROSS JOIN current_state_events c
     WHERE c.room_id = w.room_id AND c.type = w.type AND c.state_key = w.state_key`,
    [given.value],
  );
  return byRoom(rows);
}

function byRoom(rows: readonly CurrentRow[]): Map<string, Map<string, string>> {
  const rooms = new Map<string, Map<string, string>>();
  for (const row of rows) {
    let state = rooms.get(row.room_id);
    if (!state) rooms.set(row.room_id, (state = new Map()));
    state.set(stateKeyOf(row.type, row.state_key), row.event_id);
  }
  return rooms;
}

/** An entry of a state. */
export interface StateRow {
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string;
}

/** Next entries of the current state of a room, in the order of types and keys. */
export function selectCurrentPage<Row extends StateRow>(
  db: Db,
  roomId: string,
  span: StateSpan,
  after: readonly [type: string, stateKey: string] | undefined,
  limit: number,
): Promise<Row[]> {
  const page = pageSql(span, after, limit);
  return db.query<Row>(
    `SELECT type, state_key, event_id, membership FROM current_state_events WHERE room_id = ? ${page.sql}`,
    [roomId, ...page.params],
  );
}

/** The id of one entry of current state. */
export async function selectCurrentId(
  db: Db,
  roomId: string,
  type: string,
  stateKey: string,
): Promise<string | undefined> {
  const row = await db.get<{ event_id: string }>(
    'SELECT event_id FROM current_state_events WHERE room_id = ? AND type = ? AND state_key = ?',
    [roomId, type, stateKey],
  );
  return row?.event_id;
}

/** Changes of current state of some rooms with `after < stream id <= upTo`, oldest first; no more than `limit` where one is given. */
export async function selectStateDeltas(
  db: Db,
  roomIds: readonly string[],
  after: number,
  upTo: number,
  limit?: number,
): Promise<StateDelta[]> {
  const rows = await db.query<DeltaRow>(
    `SELECT stream_id, room_id, type, state_key, event_id, prev_event_id FROM current_state_delta_stream
     WHERE ${db.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ? ORDER BY stream_id
     ${limit === undefined ? '' : 'LIMIT ?'}`,
    [roomIds, after, upTo, ...(limit === undefined ? [] : [limit])],
  );
  return rows.map(delta);
}

/** The same over all rooms; at most `limit` rows, whole stream ids only. */
export async function selectAllStateDeltas(db: Db, after: number, upTo: number, limit: number): Promise<StateDelta[]> {
  const least = db.dialect.name === 'sqlite' ? 'MIN' : 'LEAST';
  const rows = await db.query<DeltaRow>(
    `SELECT stream_id, room_id, type, state_key, event_id, prev_event_id FROM current_state_delta_stream
     WHERE stream_id > ? AND stream_id <= ${least}(?, (
       SELECT MAX(stream_id) FROM (SELECT stream_id FROM current_state_delta_stream WHERE stream_id > ?
       ORDER BY stream_id LIMIT ${Math.max(1, Math.trunc(limit))}) AS page)) ORDER BY stream_id`,
    [after, upTo, after],
  );
  return rows.map(delta);
}

/** Whether a user of this server has joined a room. */
export async function hasLocalMember(db: Db, roomId: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND membership = 'join' LIMIT 1`,
    [roomId],
  );
  return row !== undefined;
}

/** Versions of the rooms that are known. */
export async function selectRoomVersions(db: Db, roomIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<{ room_id: string; room_version: string }>(
    `SELECT room_id, room_version FROM rooms WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, row.room_version]));
}

function delta(row: DeltaRow): StateDelta {
  return {
    streamId: row.stream_id,
    roomId: row.room_id,
    type: row.type,
    stateKey: row.state_key,
    eventId: row.event_id ?? undefined,
    prevEventId: row.prev_event_id ?? undefined,
  };
}
