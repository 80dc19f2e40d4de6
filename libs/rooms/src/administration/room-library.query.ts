import { type Db, holdsText, type SqlBool, type SqlValue } from '@rookery/database';

/** A room as an administrator's list shows it. */
export interface RoomRow {
  readonly room_id: string;
  readonly name: string | null;
  readonly canonical_alias: string | null;
  readonly joined_members: number;
  readonly joined_local_members: number;
  readonly version: string;
  readonly creator: string | null;
  readonly encryption: string | null;
  readonly federatable: SqlBool;
  readonly public: SqlBool;
  readonly join_rules: string | null;
  readonly guest_access: string | null;
  readonly history_visibility: string | null;
  readonly state_events: number;
  readonly room_type: string | null;
  readonly topic: string | null;
  readonly avatar: string | null;
}

/** By what a list of rooms can be ordered, with the column; figures begin with the largest. */
const orders = {
  name: ['s.name', false],
  canonical_alias: ['s.canonical_alias', false],
  joined_members: ['COALESCE(c.joined_members, 0)', true],
  joined_local_members: ['COALESCE(c.local_users_in_room, 0)', true],
  version: ['r.room_version', true],
  creator: ['r.creator', false],
  encryption: ['s.encryption', false],
  federatable: ['COALESCE(s.is_federatable, TRUE)', false],
  public: ['r.is_public', false],
  join_rules: ['s.join_rules', false],
  guest_access: ['s.guest_access', false],
  history_visibility: ['s.history_visibility', false],
  state_events: ['COALESCE(c.current_state_events, 0)', true],
} as const;

/** See {@link roomOrders}. */
export type RoomOrder = keyof typeof orders;

/** By what a list of rooms can be ordered. */
export const roomOrders = Object.keys(orders) as readonly RoomOrder[];

/** Which rooms an administrator wants to see. */
export interface RoomListSearch {
  readonly orderBy: RoomOrder;
  /** Turns the order around. */
  readonly backwards: boolean;
  readonly offset: number;
  readonly limit: number;
  /** Part of a name or of an alias' localpart in any case, or a whole room id. */
  readonly term: string | undefined;
  /** Only those in the directory, or only the others. */
  readonly isPublic: boolean | undefined;
  /** Only those without members, or only the others. */
  readonly isEmpty: boolean | undefined;
}

const columns = `r.room_id, s.name, s.canonical_alias, COALESCE(c.joined_members, 0) AS joined_members,
  COALESCE(c.local_users_in_room, 0) AS joined_local_members, r.room_version AS version, r.creator, s.encryption,
  COALESCE(s.is_federatable, TRUE) AS federatable, r.is_public AS public, s.join_rules, s.guest_access,
  s.history_visibility, COALESCE(c.current_state_events, 0) AS state_events, s.room_type, s.topic, s.avatar`;
const tables = `rooms r LEFT JOIN room_stats_current c ON c.room_id = r.room_id
  LEFT JOIN room_stats_state s ON s.room_id = r.room_id`;

/** A page of the rooms; what has no value goes last. */
export function selectRooms(db: Db, search: RoomListSearch): Promise<RoomRow[]> {
  const { where, params } = conditions(search);
  const [column, largestFirst] = orders[search.orderBy];
  const descends = largestFirst !== search.backwards;
  const [direction, nulls] = descends ? ['DESC', search.backwards ? 'DESC' : 'ASC'] : ['ASC', 'ASC'];
  return db.query<RoomRow>(
    `SELECT ${columns} FROM ${tables} ${where}
     ORDER BY CASE WHEN ${column} IS NULL THEN 1 ELSE 0 END ${nulls}, ${column} ${direction}, r.room_id ${direction}
     LIMIT ? OFFSET ?`,
    [...params, search.limit, search.offset],
  );
}

/** How many rooms there are that fit. */
export async function countRooms(db: Db, search: RoomListSearch): Promise<number> {
  const { where, params } = conditions(search);
  const row = await db.get<{ total: number }>(`SELECT COUNT(*) AS total FROM ${tables} ${where}`, params);
  return Number(row?.total ?? 0);
}

/** The rooms behind an id, in the order of ids, at most so many. */
export function selectRoomsAfter(db: Db, roomId: string, limit: number): Promise<RoomRow[]> {
  return db.query<RoomRow>(`SELECT ${columns} FROM ${tables} WHERE r.room_id > ? ORDER BY r.room_id LIMIT ?`, [
    roomId,
    limit,
  ]);
}

export function selectRoom(db: Db, roomId: string): Promise<RoomRow | undefined> {
  return db.get<RoomRow>(`SELECT ${columns} FROM ${tables} WHERE r.room_id = ?`, [roomId]);
}

function conditions(search: RoomListSearch): { where: string; params: SqlValue[] } {
  const all: string[] = [];
  const params: SqlValue[] = [];
  if (search.term !== undefined) {
    const held = holdsText(['s.name', ['s.canonical_alias', '#%', '%:%']], search.term);
    all.push(`(${held.sql} OR r.room_id = ?)`);
    params.push(...held.params, search.term);
  }
  if (search.isPublic !== undefined) all.push(`r.is_public = ${search.isPublic ? 'TRUE' : 'FALSE'}`);
  if (search.isEmpty !== undefined) all.push(`COALESCE(c.joined_members, 0) ${search.isEmpty ? '=' : '<>'} 0`);
  return { where: all.length === 0 ? '' : `WHERE ${all.join(' AND ')}`, params };
}

/** Devices of the users of this server who are in a room. */
export async function countLocalDevices(db: Db, roomId: string): Promise<number> {
  const row = await db.get<{ total: number }>(
    `SELECT COUNT(*) AS total FROM local_current_membership m JOIN devices d ON d.user_id = m.user_id
     WHERE m.room_id = ? AND m.membership = 'join' AND d.hidden = FALSE`,
    [roomId],
  );
  return Number(row?.total ?? 0);
}

/**
 * What of the next `limit` events of a room behind `after`, in stream order, may show files, as JSON, with the place of the
 * last of them; `undefined` behind the last event. Not what was redacted for good. No statement takes long, however few show
 * any.
 */
export async function selectMediaEvents(
  db: Db,
  roomId: string,
  after: number,
  limit: number,
): Promise<{ readonly last: number; readonly events: readonly string[] } | undefined> {
  const window = await db.get<{ last: number | null }>(
    `SELECT MAX(stream_ordering) AS last FROM (SELECT stream_ordering FROM events
     WHERE room_id = ? AND stream_ordering > ? ORDER BY stream_ordering LIMIT ${Math.trunc(limit)}) w`,
    [roomId, after],
  );
  const last = window?.last ?? undefined;
  if (last === undefined) return undefined;
  const rows = await db.query<{ json: string }>(
    `SELECT j.json FROM events e JOIN event_json j ON j.stream_ordering = e.stream_ordering
     WHERE e.room_id = ? AND e.contains_url = TRUE AND e.stream_ordering > ? AND e.stream_ordering <= ?
     ORDER BY e.stream_ordering`,
    [roomId, after, last],
  );
  return { last, events: rows.map((row) => row.json) };
}
