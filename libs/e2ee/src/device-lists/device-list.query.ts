import type { Db, Tx } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { batchesBySize, batchesOf, ownTurn } from '@rookery/platform';

/** What is looked at before others get a turn: users and the rooms that each is in, and local members of rooms. */
const usersPerTurn = 20;
const roomsPerTurn = 200;
const membersPerTurn = 1_000;

/** A device whose keys are new, changed or gone, with its place in the stream `device_lists`. */
export interface DeviceListChange {
  readonly position: number;
  readonly userId: string;
  readonly deviceId: string;
}

/** A user who came into a room or its invites, or went, by the room's current state. */
export interface MemberTransition {
  readonly roomId: string;
  readonly userId: string;
  readonly before: Membership | undefined;
  readonly now: Membership | undefined;
}

/** Records changes; of each device, and none may be there twice, only the latest is kept. */
export async function insertChanges(tx: Tx, changes: readonly DeviceListChange[]): Promise<void> {
  await tx.insertMany(
    'device_lists_stream',
    ['stream_id', 'user_id', 'device_id'],
    changes.map(({ position, userId, deviceId }) => [position, userId, deviceId]),
    'ON CONFLICT (user_id, device_id) DO UPDATE SET stream_id = excluded.stream_id',
  );
}

/**
 * Forgets of users with changes in `(after, upTo]` all but the last of these. Whoever asks for users, from whatever position, finds that
 * one.
 */
export async function deleteFormerChanges(tx: Tx, after: number, upTo: number): Promise<void> {
  await tx.run(
    // A device that changes meanwhile has a later position. The sign keeps SQLite from going through all that have an earlier one.
    `DELETE FROM device_lists_stream WHERE +stream_id <= ? AND (user_id, device_id) IN (
       SELECT s.user_id, s.device_id FROM (
         SELECT user_id, MAX(stream_id) AS top FROM device_lists_stream
         WHERE stream_id > ? AND stream_id <= ? GROUP BY user_id) n
       JOIN device_lists_stream s ON s.user_id = n.user_id AND s.stream_id < n.top)`,
    [upTo, after, upTo],
  );
}

/** Records that a user signed keys of others; that they were signed before need not be known any more. */
export async function insertSignatureChange(
  tx: Tx,
  streamId: number,
  fromUserId: string,
  userIds: readonly string[],
): Promise<void> {
  await tx.run('INSERT INTO user_signature_stream (stream_id, from_user_id, user_ids) VALUES (?, ?, ?)', [
    streamId,
    fromUserId,
    JSON.stringify(userIds),
  ]);
  const former = new Set([userIds, ...userIds.map((userId) => [userId])].map((users) => JSON.stringify(users)));
  await tx.run(
    `DELETE FROM user_signature_stream WHERE from_user_id = ? AND stream_id < ? AND ${tx.dialect.anyOf('user_ids')}`,
    [fromUserId, streamId, [...former]],
  );
}

/**
 * Local users who are in a room with one of some users, or in one to which such a one is invited, since what is said there is for the invited,
 * too: of some at a time, with a turn for others in between.
 */
export async function localUsersSharing(db: Db, userIds: readonly string[]): Promise<Set<string>> {
  const members = new Map<string, number>();
  for (const [index, part] of batchesOf(userIds, usersPerTurn).entries()) {
    if (index > 0) await ownTurn();
    const rooms = await db.query<{ room_id: string; local_members: number | null }>(
      `SELECT DISTINCT m.room_id, s.local_users_in_room AS local_members FROM current_state_events m
       LEFT JOIN room_stats_current s ON s.room_id = m.room_id
       WHERE m.type = 'm.room.member' AND ${db.dialect.anyOf('m.state_key')}
         AND m.membership IN ('join', 'invite')`,
      [part],
    );
    for (const room of rooms) members.set(room.room_id, room.local_members ?? membersPerTurn);
  }
  const found = new Set<string>();
  const parts = batchesBySize([...members], ([, count]) => count, membersPerTurn, roomsPerTurn);
  for (const [index, part] of parts.entries()) {
    if (index > 0) await ownTurn();
    const roomIds = part.map(([roomId]) => roomId);
    // What is alone may have any number of them.
    if (roomIds.length === 1) await addLocalMembers(db, roomIds[0]!, found);
    else
      for (const row of await db.query<{ user_id: string }>(
        `SELECT DISTINCT user_id FROM local_current_membership
         WHERE ${db.dialect.anyOf('room_id')} AND membership = 'join'`,
        [roomIds],
      ))
        found.add(row.user_id);
  }
  return found;
}

async function addLocalMembers(db: Db, roomId: string, users: Set<string>): Promise<void> {
  for (let after: string | undefined = ''; after !== undefined;) {
    if (after !== '') await ownTurn();
    const rows: { user_id: string }[] = await db.query(
      `SELECT user_id FROM local_current_membership
       WHERE room_id = ? AND membership = 'join' AND user_id > ? ORDER BY user_id LIMIT ${membersPerTurn}`,
      [roomId, after],
    );
    for (const row of rows) users.add(row.user_id);
    after = rows.length < membersPerTurn ? undefined : rows.at(-1)?.user_id;
  }
}

/** Users with changes in `(after, upTo]` who are in a room that `userId` has joined, or invited to one, and the user. */
export async function changedUsersSharing(db: Db, userId: string, after: number, upTo: number): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT DISTINCT s.user_id FROM device_lists_stream s
     WHERE s.stream_id > ? AND s.stream_id <= ? AND (s.user_id = ? OR EXISTS (
       SELECT 1 FROM current_state_events o JOIN current_state_events m ON m.room_id = o.room_id
         AND m.type = 'm.room.member' AND m.state_key = ? AND m.membership = 'join'
       WHERE o.type = 'm.room.member' AND o.state_key = s.user_id AND o.membership IN ('join', 'invite')))`,
    [after, upTo, userId, userId],
  );
  return rows.map((row) => row.user_id);
}

/** The position of the last of the next `count` changes behind one, whoever's they are; `undefined` where there are no more than these. */
export async function lastOfNextChanges(
  db: Db,
  after: number,
  upTo: number,
  count: number,
): Promise<number | undefined> {
  const row = await db.get<{ stream_id: number }>(
    `SELECT stream_id FROM device_lists_stream WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id
     LIMIT 1 OFFSET ${Math.trunc(count) - 1}`,
    [after, upTo],
  );
  return row?.stream_id;
}

/** Users whose keys `userId` signed in `(after, upTo]`. */
export async function usersSignedBy(db: Db, userId: string, after: number, upTo: number): Promise<string[]> {
  const rows = await db.query<{ user_ids: string }>(
    'SELECT user_ids FROM user_signature_stream WHERE from_user_id = ? AND stream_id > ? AND stream_id <= ?',
    [userId, after, upTo],
  );
  return rows.flatMap((row) => JSON.parse(row.user_ids) as string[]);
}

/**
 * Who became, or is no longer, joined or invited between two positions of `events`, oldest first; of one user where that is
 * given. Whose membership only became known, with all of a room's state, has not changed it.
 */
export async function memberTransitions(
  db: Db,
  roomIds: readonly string[],
  after: number,
  upTo: number,
  userId?: string,
): Promise<MemberTransition[]> {
  const rows = await db.query<{
    room_id: string;
    state_key: string;
    before: Membership | null;
    now: Membership | null;
  }>(
    `SELECT d.room_id, d.state_key, p.membership AS before, n.membership AS now
     FROM current_state_delta_stream d
     LEFT JOIN room_memberships n ON n.event_id = d.event_id
     LEFT JOIN room_memberships p ON p.event_id = d.prev_event_id
     WHERE ${db.dialect.anyOf('d.room_id')} AND d.stream_id > ? AND d.stream_id <= ? AND d.type = 'm.room.member'
       AND COALESCE(n.membership, '') <> COALESCE(p.membership, '')
       AND (n.membership IN ('join', 'invite') OR p.membership IN ('join', 'invite'))
       AND (d.prev_event_id IS NOT NULL OR NOT EXISTS (
         SELECT 1 FROM un_partial_stated_room_stream u WHERE u.stream_id = d.stream_id AND u.room_id = d.room_id))
       ${userId === undefined ? '' : 'AND d.state_key = ?'}
     ORDER BY d.stream_id`,
    userId === undefined ? [roomIds, after, upTo] : [roomIds, after, upTo, userId],
  );
  return rows.map((row) => ({
    roomId: row.room_id,
    userId: row.state_key,
    before: row.before ?? undefined,
    now: row.now ?? undefined,
  }));
}

/** Changes with `after < position <= upTo`, ascending, at most about `limit`. */
export async function changesInStream(db: Db, after: number, upTo: number, limit: number): Promise<DeviceListChange[]> {
  const rows = await db.query<{ stream_id: number; user_id: string; device_id: string }>(
    `SELECT stream_id, user_id, device_id FROM device_lists_stream
     WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id LIMIT ?`,
    [after, upTo, limit],
  );
  return rows.map((row) => ({ position: row.stream_id, userId: row.user_id, deviceId: row.device_id }));
}

/** The position of the latest change of each of some users. */
export async function latestChanges(db: Db, userIds: readonly string[]): Promise<Map<string, number>> {
  const rows = await db.query<{ user_id: string; top: number }>(
    `SELECT user_id, MAX(stream_id) AS top FROM device_lists_stream WHERE ${db.dialect.anyOf('user_id')} GROUP BY user_id`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.user_id, row.top]));
}

/** The device of each of some users that changed last; those of whom none did are absent. */
export async function latestDevices(db: Db, userIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<{ user_id: string; device_id: string }>(
    `SELECT user_id, device_id FROM device_lists_stream WHERE ${db.dialect.anyOf('user_id')} ORDER BY stream_id`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.user_id, row.device_id]));
}

/** The furthest position in the stream that the tables hold. */
export async function highestDeviceListId(db: Db): Promise<number> {
  const row = await db.get<Record<'lists' | 'signatures' | 'keys', number | null>>(
    `SELECT (SELECT MAX(stream_id) FROM device_lists_stream) AS lists,
       (SELECT MAX(stream_id) FROM user_signature_stream) AS signatures,
       (SELECT MAX(stream_id) FROM e2e_cross_signing_keys) AS keys`,
  );
  return Math.max(row?.lists ?? 0, row?.signatures ?? 0, row?.keys ?? 0);
}
