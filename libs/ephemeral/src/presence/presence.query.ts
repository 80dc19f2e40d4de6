import type { Db, SqlBool, Tx } from '@rookery/database';
import type { PresenceName, PresenceState } from '../model/presence-state.js';

/** A presence with its place in the stream `presence`. */
export interface StoredPresence extends PresenceState {
  readonly position: number;
}

interface PresenceRow {
  readonly stream_id: number;
  readonly user_id: string;
  readonly state: PresenceName;
  readonly last_active_ts: number;
  readonly last_federation_update_ts: number;
  readonly last_user_sync_ts: number;
  readonly status_msg: string | null;
  readonly currently_active: SqlBool;
}

const columnNames = [
  'stream_id',
  'user_id',
  'state',
  'last_active_ts',
  'last_federation_update_ts',
  'last_user_sync_ts',
  'status_msg',
  'currently_active',
];
const columns = columnNames.join(', ');
const replace = columnNames
  .filter((name) => name !== 'user_id')
  .map((name) => `${name} = excluded.${name}`)
  .join(', ');

function fromRow(row: PresenceRow): StoredPresence {
  return {
    position: row.stream_id,
    userId: row.user_id,
    state: row.state,
    lastActiveMs: row.last_active_ts,
    lastFederationMs: row.last_federation_update_ts,
    lastSyncMs: row.last_user_sync_ts,
    statusMsg: row.status_msg ?? undefined,
    currentlyActive: Boolean(row.currently_active),
  };
}

/** Stores presences; no user twice. */
export async function writePresence(tx: Tx, states: readonly StoredPresence[]): Promise<void> {
  await tx.insertMany(
    'presence_stream',
    columnNames,
    states.map((one) => [
      one.position,
      one.userId,
      one.state,
      one.lastActiveMs,
      one.lastFederationMs,
      one.lastSyncMs,
      one.statusMsg ?? null,
      one.currentlyActive,
    ]),
    `ON CONFLICT (user_id) DO UPDATE SET ${replace}`,
  );
}

/** Stored presences of users; those never seen are absent. */
export async function presenceOf(db: Db, userIds: readonly string[]): Promise<StoredPresence[]> {
  const rows = await db.query<PresenceRow>(
    `SELECT ${columns} FROM presence_stream WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return rows.map(fromRow);
}

/** Who was not offline, latest change first. */
export async function presentUsers(db: Db, limit: number): Promise<StoredPresence[]> {
  const rows = await db.query<PresenceRow>(
    `SELECT ${columns} FROM presence_stream WHERE state <> 'offline' ORDER BY stream_id DESC LIMIT ?`,
    [limit],
  );
  return rows.map(fromRow);
}

/** Presences with `after < position <= upTo`, ascending, at most `limit`. */
export async function presenceInStream(db: Db, after: number, upTo: number, limit: number): Promise<StoredPresence[]> {
  const rows = await db.query<PresenceRow>(
    `SELECT ${columns} FROM presence_stream WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id LIMIT ?`,
    [after, upTo, limit],
  );
  return rows.map(fromRow);
}

/** The latest presences with `after < position <= upTo`, descending, at most `limit`. */
export async function latestPresence(db: Db, after: number, upTo: number, limit: number): Promise<StoredPresence[]> {
  const rows = await db.query<PresenceRow>(
    `SELECT ${columns} FROM presence_stream WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id DESC LIMIT ?`,
    [after, upTo, limit],
  );
  return rows.map(fromRow);
}

/** The rooms that users have joined, local and remote ones. */
export async function roomsOfUsers(db: Db, userIds: readonly string[]): Promise<Map<string, Set<string>>> {
  const rows = await db.query<{ state_key: string; room_id: string }>(
    `SELECT state_key, room_id FROM current_state_events
     WHERE type = 'm.room.member' AND membership = 'join' AND ${db.dialect.anyOf('state_key')}`,
    [userIds],
  );
  const rooms = new Map<string, Set<string>>(userIds.map((userId) => [userId, new Set()]));
  for (const row of rows) rooms.get(row.state_key)?.add(row.room_id);
  return rooms;
}

/** The furthest position in the stream that the table holds. */
export async function highestPresence(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(stream_id) AS top FROM presence_stream'))?.top ?? 0;
}
