import type { Db, SqlBool, Tx } from '@rookery/database';

/** Joins heads of a room's graph; others find it when they need it. */
export const hiddenType = 'org.matrix.dummy_event';

/** An event that a server is to get. */
export interface OutgoingEvent {
  readonly eventId: string;
  readonly roomId: string;
  /** Its place in the stream `events`. */
  readonly streamOrdering: number;
  /** The server said that it cannot do with it what it was to do: it goes there once more, and never again. */
  readonly isRepeated?: boolean;
}

/** An event that goes to others, as it is found after a restart. */
export interface FoundEvent extends OutgoingEvent {
  readonly type: string;
  readonly sender: string;
  readonly stateKey: string | undefined;
  readonly membership: string | undefined;
}

/** A change of what decides who gets the events of a room: a member, or the access control list. */
export interface AudienceChange {
  readonly roomId: string;
  readonly type: 'm.room.member' | 'm.room.server_acl';
  readonly stateKey: string;
  readonly streamOrdering: number;
  /** Events, and memberships where they are of members. */
  readonly before: { readonly eventId: string | undefined; readonly membership: string | undefined };
  readonly after: { readonly eventId: string | undefined; readonly membership: string | undefined };
}

/** The place of the latest event of a room that a server is to get. */
export interface RoomMark {
  readonly destination: string;
  readonly roomId: string;
  readonly streamOrdering: number;
}

/** Notes what servers are to get; no server and room twice. */
export async function writeRoomMarks(tx: Tx, marks: readonly RoomMark[]): Promise<void> {
  await tx.insertMany(
    'destination_rooms',
    ['destination', 'room_id', 'stream_ordering'],
    marks.map((mark) => [mark.destination, mark.roomId, mark.streamOrdering]),
    `ON CONFLICT (destination, room_id) DO UPDATE SET stream_ordering = excluded.stream_ordering
       WHERE destination_rooms.stream_ordering < excluded.stream_ordering`,
  );
}

/** Forgets a room that is deleted. */
export async function deleteRoomMarks(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM destination_rooms WHERE room_id = ?', [roomId]);
}

/** Whether this server has ever had to do with another one. */
export async function knowsServers(db: Db): Promise<boolean> {
  const row = await db.get<{ found: number }>(
    `SELECT 1 AS found WHERE EXISTS (SELECT 1 FROM destinations) OR EXISTS (SELECT 1 FROM destination_rooms)`,
  );
  return row !== undefined;
}

/** Events that are sent to a server that was away, one by one; with more it gets the latest of each room. */
const maxMissed = 300;
/** Events of its rooms that are looked at for that. */
const maxLookedAt = 1_000;
/** Rooms of which the latest event is read at once. */
const maxRooms = 50;

/** Whether `e` is a membership of its sender's own that was stored with a mark. */
const isMarked = (mark: 'send_on_behalf_of' | 'handed_over'): string =>
  `(e.type = 'm.room.member' AND e.sender = e.state_key AND EXISTS (
    SELECT 1 FROM event_json j WHERE j.stream_ordering = e.stream_ordering AND j.internal_metadata LIKE '%"${mark}"%'))`;

/** Whether `e` is of a user of the server that is given and nobody else sends it on, or is sent on for another one that asked for it. */
const isToSend = (db: Db): string =>
  `(CASE WHEN ${serverOf(db, 'e.sender')} = ? THEN NOT ${isMarked('handed_over')} ELSE ${isMarked('send_on_behalf_of')} END)`;

/** An event between what a server has got and the latest event of its room. */
export interface Missed extends OutgoingEvent {
  readonly isLatest: boolean;
}

/**
 * What local users did in the rooms of a server, what is sent on for others there, and the latest event of each room that it was to get, in
 * stream order; `undefined` when that is much.
 * @param after everything up to this place was sent
 */
export async function missedBy(
  db: Db,
  serverName: string,
  destination: string,
  after: number,
): Promise<Missed[] | undefined> {
  const rows = await db.query<{
    event_id: string;
    room_id: string;
    stream_ordering: number;
    latest: number;
    is_ours: SqlBool;
    is_shown: SqlBool;
  }>(
    `SELECT e.event_id, e.room_id, e.stream_ordering, d.stream_ordering AS latest,
       (${isToSend(db)} AND e.type <> '${hiddenType}' AND ${serverOf(db, 'e.sender')} <> ?) AS is_ours,
       (e.outlier = FALSE AND e.soft_failed = FALSE AND e.rejection_reason IS NULL) AS is_shown
     FROM destination_rooms d
     JOIN events e ON e.room_id = d.room_id AND e.stream_ordering > ? AND e.stream_ordering <= d.stream_ordering
     WHERE d.destination = ? AND d.stream_ordering > ? LIMIT ${maxLookedAt + 1}`,
    [serverName, destination, after, destination, after],
  );
  if (rows.length > maxLookedAt) return undefined;
  const missed = rows
    .map((row) => ({ ...row, isLatest: row.stream_ordering === row.latest }))
    .filter((row) => row.isLatest || (row.is_ours && row.is_shown));
  if (missed.length > maxMissed) return undefined;
  return missed
    .map((row) => ({
      ...{ eventId: row.event_id, roomId: row.room_id, streamOrdering: row.stream_ordering },
      isLatest: row.isLatest,
    }))
    .sort((a, b) => a.streamOrdering - b.streamOrdering);
}

/** The latest event of each room that a server has not got, in stream order; maybe the first of them. */
export async function latestOfRooms(db: Db, destination: string, after: number): Promise<OutgoingEvent[]> {
  const rows = await db.query<{ event_id: string; room_id: string; stream_ordering: number }>(
    `SELECT e.event_id, d.room_id, d.stream_ordering FROM destination_rooms d
     JOIN events e ON e.stream_ordering = d.stream_ordering
     WHERE d.destination = ? AND d.stream_ordering > ? ORDER BY d.stream_ordering LIMIT ${maxRooms}`,
    [destination, after],
  );
  return rows.map((row) => ({ eventId: row.event_id, roomId: row.room_id, streamOrdering: row.stream_ordering }));
}

/** An entry of a room's current state that tells whether a server is in it: a member who has joined, or the access control list. */
export interface PresenceEntry {
  readonly room_id: string;
  readonly type: 'm.room.member' | 'm.room.server_acl';
  readonly state_key: string;
  readonly event_id: string;
  /** Where it became current. */
  readonly place: number;
}

/** Users of a server that are looked at in a room; those who have been there for longest, most likely. */
const maxUsers = 5;

/** What tells whether a server is in rooms, and not shut out. */
export function presenceIn(db: Db, destination: string, roomIds: readonly string[]): Promise<PresenceEntry[]> {
  return db.query<PresenceEntry>(
    `SELECT room_id, type, state_key, event_id, place FROM (
       SELECT room_id, type, state_key, event_id, event_stream_ordering AS place,
         ROW_NUMBER() OVER (PARTITION BY room_id, type ORDER BY event_stream_ordering, state_key) AS number
       FROM current_state_events
       WHERE ${db.dialect.anyOf('room_id')} AND ((type = 'm.room.server_acl' AND state_key = '')
         OR (type = 'm.room.member' AND membership = 'join' AND ${serverOf(db, 'state_key')} = ?))
     ) AS entries WHERE number <= ${maxUsers}`,
    [roomIds, destination],
  );
}

/** How users came to be in rooms, the last time: what made them members who had not been, and where. Those of whom that is gone are missing. */
export function arrivalsOf(db: Db, roomIds: readonly string[], userIds: readonly string[]): Promise<PresenceEntry[]> {
  return db.query<PresenceEntry>(
    `SELECT room_id, type, state_key, event_id, place FROM (
       SELECT d.room_id, d.type, d.state_key, d.event_id, d.stream_id AS place,
         ROW_NUMBER() OVER (PARTITION BY d.room_id, d.state_key ORDER BY d.stream_id DESC) AS number
       FROM current_state_delta_stream d
       JOIN room_memberships n ON n.event_id = d.event_id
       LEFT JOIN room_memberships p ON p.event_id = d.prev_event_id
       WHERE ${db.dialect.anyOf('d.room_id')} AND d.type = 'm.room.member' AND ${db.dialect.anyOf('d.state_key')}
         AND n.membership = 'join' AND COALESCE(p.membership, 'leave') <> 'join'
     ) AS arrivals WHERE number = 1`,
    [roomIds, userIds],
  );
}

/**
 * By room of which not all members are known, the place of the join with which this server came in: where a server was named as one
 * of the room's, and none of its users is known to have gone since.
 */
export async function namedSince(
  db: Db,
  destination: string,
  roomIds: readonly string[],
): Promise<Map<string, number>> {
  const rows = await db.query<{ room_id: string; place: number }>(
    `SELECT p.room_id, j.stream_ordering AS place FROM partial_state_rooms p
     JOIN partial_state_rooms_servers s ON s.room_id = p.room_id AND s.server_name = ?
     JOIN events j ON j.event_id = p.join_event_id
     WHERE ${db.dialect.anyOf('p.room_id')} AND NOT EXISTS (
       SELECT 1 FROM current_state_delta_stream d LEFT JOIN room_memberships n ON n.event_id = d.event_id
       WHERE d.room_id = p.room_id AND d.stream_id > j.stream_ordering AND d.type = 'm.room.member'
         AND ${serverOf(db, 'd.state_key')} = ? AND COALESCE(n.membership, 'leave') <> 'join')`,
    [destination, roomIds, destination],
  );
  return new Map(rows.map((row) => [row.room_id, row.place]));
}

/** Servers behind `after` in the alphabet that were last tried before a time, never got an event, and are to get none. */
export async function strangersBehind(db: Db, after: string, beforeTs: number, limit: number): Promise<string[]> {
  const rows = await db.query<{ destination: string }>(
    `SELECT d.destination FROM destinations d WHERE d.destination > ? AND d.last_successful_stream_ordering IS NULL
       AND d.retry_last_ts < ? AND NOT EXISTS (SELECT 1 FROM destination_rooms r WHERE r.destination = d.destination)
     ORDER BY d.destination LIMIT ${Math.trunc(limit)}`,
    [after, beforeTs],
  );
  return rows.map((row) => row.destination);
}

/** Servers behind `after` in the alphabet for which events wait, and the last one that was looked at. */
export async function serversBehind(
  db: Db,
  after: string,
  limit: number,
): Promise<{ readonly servers: string[]; readonly last: string | undefined }> {
  const rows = await db.query<{ destination: string; top: number; done: number }>(
    `SELECT r.destination, MAX(r.stream_ordering) AS top, COALESCE(MAX(d.last_successful_stream_ordering), 0) AS done
     FROM destination_rooms r LEFT JOIN destinations d ON d.destination = r.destination
     WHERE r.destination > ? GROUP BY r.destination ORDER BY r.destination LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return {
    servers: rows.filter((row) => row.top > row.done).map((row) => row.destination),
    last: rows.length < limit ? undefined : rows.at(-1)?.destination,
  };
}

/** Events of local users, and those that are sent on for others, that clients may see, with `after < stream ordering <= upTo`, oldest first. */
export async function eventsToSend(
  db: Db,
  serverName: string,
  after: number,
  upTo: number,
  limit: number,
): Promise<FoundEvent[]> {
  const rows = await db.query<{
    event_id: string;
    room_id: string;
    stream_ordering: number;
    type: string;
    sender: string;
    state_key: string | null;
    membership: string | null;
  }>(
    `SELECT e.event_id, e.room_id, e.stream_ordering, e.type, e.sender, e.state_key, m.membership
     FROM events e LEFT JOIN room_memberships m ON m.event_id = e.event_id
     WHERE e.stream_ordering > ? AND e.stream_ordering <= ? AND e.outlier = FALSE AND e.soft_failed = FALSE
       AND e.rejection_reason IS NULL AND ${isToSend(db)}
     ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
    [after, upTo, serverName],
  );
  return rows.map((row) => ({
    eventId: row.event_id,
    roomId: row.room_id,
    streamOrdering: row.stream_ordering,
    type: row.type,
    sender: row.sender,
    stateKey: row.state_key ?? undefined,
    membership: row.membership ?? undefined,
  }));
}

/** Servers with a member who has joined and of whom nothing changed behind a place, by room; those that a partial join named, too. */
export async function serversSince(db: Db, roomIds: readonly string[], after: number): Promise<Map<string, string[]>> {
  const rows = await db.query<{ room_id: string; server: string }>(
    `SELECT DISTINCT c.room_id, ${serverOf(db, 'c.state_key')} AS server FROM current_state_events c
     WHERE ${db.dialect.anyOf('c.room_id')} AND c.type = 'm.room.member' AND c.membership = 'join'
       AND NOT EXISTS (SELECT 1 FROM current_state_delta_stream d WHERE d.room_id = c.room_id AND d.stream_id > ?
         AND d.type = 'm.room.member' AND d.state_key = c.state_key)
     UNION SELECT room_id, server_name FROM partial_state_rooms_servers WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds, after, roomIds],
  );
  return byRoom(roomIds, rows);
}

/** What changed behind a place of members and access control lists, oldest first. */
export async function audienceChanges(db: Db, roomIds: readonly string[], after: number): Promise<AudienceChange[]> {
  const rows = await db.query<{
    room_id: string;
    stream_id: number;
    type: AudienceChange['type'];
    state_key: string;
    event_id: string | null;
    prev_event_id: string | null;
    membership: string | null;
    prev_membership: string | null;
  }>(
    `SELECT d.room_id, d.stream_id, d.type, d.state_key, d.event_id, d.prev_event_id,
       n.membership, p.membership AS prev_membership
     FROM current_state_delta_stream d
     LEFT JOIN room_memberships n ON n.event_id = d.event_id
     LEFT JOIN room_memberships p ON p.event_id = d.prev_event_id
     WHERE ${db.dialect.anyOf('d.room_id')} AND d.stream_id > ?
       AND (d.type = 'm.room.member' OR (d.type = 'm.room.server_acl' AND d.state_key = ''))
     ORDER BY d.stream_id`,
    [roomIds, after],
  );
  return rows.map((row) => ({
    ...{ roomId: row.room_id, type: row.type, stateKey: row.state_key, streamOrdering: row.stream_id },
    before: { eventId: row.prev_event_id ?? undefined, membership: row.prev_membership ?? undefined },
    after: { eventId: row.event_id ?? undefined, membership: row.membership ?? undefined },
  }));
}

/** Servers with a joined member, by room, this one among them. */
export async function serversInRooms(db: Db, roomIds: readonly string[]): Promise<Map<string, string[]>> {
  const rows = await db.query<{ room_id: string; server: string }>(
    `SELECT DISTINCT room_id, ${serverOf(db, 'state_key')} AS server FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.member' AND membership = 'join'
     UNION SELECT room_id, server_name FROM partial_state_rooms_servers WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds, roomIds],
  );
  return byRoom(roomIds, rows);
}

function byRoom(
  roomIds: readonly string[],
  rows: readonly { readonly room_id: string; readonly server: string }[],
): Map<string, string[]> {
  const rooms = new Map<string, string[]>(roomIds.map((roomId) => [roomId, []]));
  for (const row of rows) rooms.get(row.room_id)?.push(row.server);
  return rooms;
}

/** How many servers have a joined member in any room. */
export async function countServers(db: Db): Promise<number> {
  const row = await db.get<{ count: number }>(
    `SELECT COUNT(DISTINCT ${serverOf(db, 'state_key')}) AS count FROM current_state_events
     WHERE type = 'm.room.member' AND membership = 'join'`,
  );
  return row?.count ?? 0;
}

/** Ids of the events that hold the server ACLs of rooms. */
export async function serverAclsOf(db: Db, roomIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<{ room_id: string; event_id: string }>(
    `SELECT room_id, event_id FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.server_acl' AND state_key = ''`,
    [roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, row.event_id]));
}

/** The rooms that users of this server have joined. */
export async function roomsOfLocalUsers(db: Db, userIds: readonly string[]): Promise<Map<string, string[]>> {
  const rows = await db.query<{ user_id: string; room_id: string }>(
    `SELECT user_id, room_id FROM local_current_membership WHERE ${db.dialect.anyOf('user_id')} AND membership = 'join'`,
    [userIds],
  );
  const rooms = new Map<string, string[]>(userIds.map((userId) => [userId, []]));
  for (const row of rows) rooms.get(row.user_id)?.push(row.room_id);
  return rooms;
}

const serverOf = (db: Db, column: string): string =>
  `substr(${column}, ${db.dialect.name === 'sqlite' ? 'instr' : 'strpos'}(${column}, ':') + 1)`;
