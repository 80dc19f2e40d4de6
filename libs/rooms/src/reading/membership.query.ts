import type { Db, SqlBool } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { membershipsOfUserSql } from './membership-history.query.js';

/** A user's current membership of a room, for users of this server. */
export interface RoomMembership {
  readonly roomId: string;
  readonly userId: string;
  readonly membership: Membership;
  /** The member event, and who sent it; where state resolution took it away without another, the one that counted last. */
  readonly eventId: string;
  readonly sender: string;
  /** Position of that event. */
  readonly streamOrdering: number;
  readonly forgotten: boolean;
  readonly roomVersion: string;
}

/** A member event of a user, as it was stored. */
export interface MembershipChange {
  readonly roomId: string;
  readonly userId: string;
  readonly sender: string;
  readonly membership: Membership;
  readonly eventId: string;
  readonly streamOrdering: number;
}

/** A joined member and the profile in the member event. */
export interface JoinedMember {
  readonly userId: string;
  readonly displayName: string | undefined;
  readonly avatarUrl: string | undefined;
}

/** How many members a room has, by membership. */
export interface MemberCounts {
  readonly joined: number;
  readonly invited: number;
}

interface MembershipRow {
  readonly room_id: string;
  readonly user_id: string;
  readonly membership: Membership;
  readonly event_id: string;
  readonly sender: string;
  readonly event_stream_ordering: number;
  readonly forgotten: SqlBool;
  readonly room_version: string;
}

const localMembershipSql = `SELECT l.room_id, l.user_id, l.membership, l.event_id, l.event_stream_ordering, l.forgotten, e.sender, r.room_version
   FROM local_current_membership l JOIN rooms r ON r.room_id = l.room_id JOIN events e ON e.event_id = l.event_id`;

/** The rooms of a user of this server, those of some memberships or all; forgotten ones come too, marked. */
export async function selectRoomsOf(
  db: Db,
  userId: string,
  memberships?: readonly Membership[],
): Promise<RoomMembership[]> {
  const rows = await db.query<MembershipRow>(
    `${localMembershipSql} WHERE l.user_id = ? ${memberships ? `AND ${db.dialect.anyOf('l.membership')}` : ''}`,
    memberships ? [userId, memberships] : [userId],
  );
  return rows.map(membership);
}

/** Ids of the rooms that a user of this server has joined. */
export async function selectJoinedRoomIds(db: Db, userId: string): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM local_current_membership WHERE user_id = ? AND membership = 'join'`,
    [userId],
  );
  return rows.map((row) => row.room_id);
}

/** A local user's membership of one room. */
export async function selectLocalMembership(
  db: Db,
  userId: string,
  roomId: string,
): Promise<RoomMembership | undefined> {
  const row = await db.get<MembershipRow>(`${localMembershipSql} WHERE l.user_id = ? AND l.room_id = ?`, [
    userId,
    roomId,
  ]);
  return row && membership(row);
}

/** The same of some rooms, by room; those without one are absent. */
export async function selectLocalMemberships(
  db: Db,
  userId: string,
  roomIds: readonly string[],
): Promise<Map<string, RoomMembership>> {
  const rows = await db.query<MembershipRow>(
    `${localMembershipSql} WHERE l.user_id = ? AND ${db.dialect.anyOf('l.room_id')}`,
    [userId, roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, membership(row)]));
}

/** Current membership of any user by the room's state. */
export async function selectCurrentMembership(db: Db, roomId: string, userId: string): Promise<Membership | undefined> {
  const row = await db.get<{ membership: Membership }>(
    `SELECT membership FROM current_state_events WHERE room_id = ? AND type = 'm.room.member' AND state_key = ?`,
    [roomId, userId],
  );
  return row?.membership;
}

/** The next joined members with their profiles, in the order of their ids. */
export async function selectJoinedMembers(
  db: Db,
  roomId: string,
  after: string,
  limit: number,
): Promise<JoinedMember[]> {
  const rows = await db.query<{ user_id: string; display_name: string | null; avatar_url: string | null }>(
    `SELECT m.user_id, m.display_name, m.avatar_url FROM current_state_events c
     JOIN room_memberships m ON m.event_id = c.event_id
     WHERE c.room_id = ? AND c.type = 'm.room.member' AND c.membership = 'join' AND c.state_key > ?
     ORDER BY c.state_key LIMIT ?`,
    [roomId, after, limit],
  );
  return rows.map((row) => ({
    userId: row.user_id,
    displayName: row.display_name ?? undefined,
    avatarUrl: row.avatar_url ?? undefined,
  }));
}

/** Ids of those whose membership of some rooms is one of these, local and remote. */
export async function selectUserIdsIn(
  db: Db,
  roomIds: readonly string[],
  memberships: readonly Membership[],
): Promise<{ readonly roomId: string; readonly userId: string }[]> {
  const rows = await db.query<{ room_id: string; state_key: string }>(
    `SELECT room_id, state_key FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.member' AND ${db.dialect.anyOf('membership')}`,
    [roomIds, memberships],
  );
  return rows.map((row) => ({ roomId: row.room_id, userId: row.state_key }));
}

/** The next users who have, or had, to do with a room, in the order of their ids, with what has become of it. */
export async function selectNextUsersIn(
  db: Db,
  roomId: string,
  after: string,
  limit: number,
): Promise<{ readonly userId: string; readonly membership: Membership }[]> {
  const rows = await db.query<{ state_key: string; membership: Membership }>(
    `SELECT state_key, membership FROM current_state_events
     WHERE room_id = ? AND type = 'm.room.member' AND state_key > ? ORDER BY state_key LIMIT ${Math.trunc(limit)}`,
    [roomId, after],
  );
  return rows.map((row) => ({ userId: row.state_key, membership: row.membership }));
}

/** How many pieces of state each of some rooms has, members included; those of which nothing is counted are absent. */
export async function selectStateSizes(db: Db, roomIds: readonly string[]): Promise<Map<string, number>> {
  const rows = await db.query<{ room_id: string; current_state_events: number }>(
    `SELECT room_id, current_state_events FROM room_stats_current WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, row.current_state_events]));
}

/** Numbers of joined and invited members, per room. */
export async function selectMemberCounts(db: Db, roomIds: readonly string[]): Promise<Map<string, MemberCounts>> {
  const rows = await db.query<{ room_id: string; joined_members: number; invited_members: number }>(
    `SELECT room_id, joined_members, invited_members FROM room_stats_current WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, { joined: row.joined_members, invited: row.invited_members }]));
}

/** What became of a user's memberships with `after < stream ordering <= upTo`, oldest first. */
export async function selectMembershipChanges(
  db: Db,
  userId: string,
  after: number,
  upTo: number,
): Promise<MembershipChange[]> {
  const rows = await db.query<MembershipRow>(
    `${membershipsOfUserSql(' AND d.stream_id > ? AND d.stream_id <= ?', ' AND m.event_stream_ordering > ? AND m.event_stream_ordering <= ?')}
     ORDER BY event_stream_ordering`,
    [userId, after, upTo, userId, after, upTo],
  );
  return rows.map((row) => ({
    roomId: row.room_id,
    userId: row.user_id,
    sender: row.sender,
    membership: row.membership,
    eventId: row.event_id,
    streamOrdering: row.event_stream_ordering,
  }));
}

/** Some users who are given, as a table `w (user_id)`. */
const givenUsers = (db: Db): string =>
  db.dialect.name === 'sqlite'
    ? '(SELECT value AS user_id FROM json_each(?)) AS w'
    : 'unnest(CAST(? AS TEXT[])) AS w(user_id)';

/**
 * Which of `others` have one of these memberships in a room that a user has joined. Each is looked for by itself, in the rooms that it is
 * in: those of the user may have very many members.
 */
export async function selectInRoomsOf(
  db: Db,
  userId: string,
  others: readonly string[],
  memberships: readonly Membership[],
): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT w.user_id FROM ${givenUsers(db)} WHERE EXISTS (
       SELECT 1 FROM current_state_events o CROSS JOIN current_state_events m
       WHERE o.type = 'm.room.member' AND o.state_key = w.user_id AND ${db.dialect.anyOf('o.membership')}
         AND m.room_id = o.room_id AND m.type = 'm.room.member' AND m.state_key = ? AND m.membership = 'join')`,
    [others, memberships, userId],
  );
  return rows.map((row) => row.user_id);
}

/** Ids of the rooms that both users have joined. */
export async function selectMutualRooms(db: Db, userId: string, otherId: string): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT a.room_id FROM current_state_events a JOIN current_state_events b ON b.room_id = a.room_id
     WHERE a.type = 'm.room.member' AND a.state_key = ? AND a.membership = 'join'
       AND b.type = 'm.room.member' AND b.state_key = ? AND b.membership = 'join' ORDER BY a.room_id`,
    [userId, otherId],
  );
  return rows.map((row) => row.room_id);
}

/** The server of a member event's user. */
const hostSql = (db: Db): string =>
  `substr(state_key, ${db.dialect.name === 'sqlite' ? 'instr' : 'strpos'}(state_key, ':') + 1)`;

/** Servers with a joined member, and those that are said to have one while not all members are known; each room is present. */
export async function selectHosts(db: Db, roomIds: readonly string[]): Promise<Map<string, Set<string>>> {
  const rows = await db.query<{ room_id: string; host: string }>(
    `SELECT DISTINCT room_id, ${hostSql(db)} AS host FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.member' AND membership = 'join'
     UNION SELECT room_id, server_name FROM partial_state_rooms_servers WHERE ${db.dialect.anyOf('room_id')}`,
    [roomIds, roomIds],
  );
  const rooms = new Map<string, Set<string>>(roomIds.map((roomId) => [roomId, new Set()]));
  for (const row of rows) rooms.get(row.room_id)!.add(row.host);
  return rooms;
}

/** Those of some rooms to which a user of a server is invited. */
export async function selectInvitedTo(db: Db, roomIds: readonly string[], serverName: string): Promise<Set<string>> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT DISTINCT room_id FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.member' AND membership = 'invite' AND ${hostSql(db)} = ?`,
    [roomIds, serverName],
  );
  return new Set(rows.map((row) => row.room_id));
}

function membership(row: MembershipRow): RoomMembership {
  return {
    roomId: row.room_id,
    userId: row.user_id,
    membership: row.membership,
    eventId: row.event_id,
    sender: row.sender,
    streamOrdering: row.event_stream_ordering,
    forgotten: !!row.forgotten,
    roomVersion: row.room_version,
  };
}
