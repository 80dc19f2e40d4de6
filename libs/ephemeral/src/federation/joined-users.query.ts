import { type Db, givenRows } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';

/** A user who is in a room. */
export interface JoinedUser {
  readonly roomId: string;
  readonly userId: string;
  /** Not all members of the room are known, and the user is said to be in it by its server. */
  readonly isPartial: boolean;
}

/**
 * Who of some users has joined the room that they are named with; where not all members of it are known, whose server is said to be in it.
 */
export async function joinedAmong(
  db: Db,
  places: readonly { readonly roomId: string; readonly userId: string }[],
): Promise<JoinedUser[]> {
  const users = givenRows(
    db,
    ['room_id', 'user_id'],
    places.map(({ roomId, userId }) => [roomId, userId]),
  );
  const byServer = Map.groupBy(places, ({ roomId, userId }) => `${roomId}\n${domainOf(userId)}`);
  const servers = givenRows(
    db,
    ['room_id', 'server'],
    [...byServer.values()].map(([one]) => [one!.roomId, domainOf(one!.userId)]),
  );
  const rows = await db.query<{ room_id: string; user_id: string | null; server: string | null }>(
    `SELECT c.room_id, c.state_key AS user_id, NULL AS server FROM ${users.sql} CROSS JOIN current_state_events c
     WHERE c.room_id = w.room_id AND c.type = 'm.room.member' AND c.state_key = w.user_id AND c.membership = 'join'
     UNION ALL SELECT p.room_id, NULL, p.server_name FROM ${servers.sql} CROSS JOIN partial_state_rooms_servers p
     WHERE p.room_id = w.room_id AND p.server_name = w.server`,
    [users.value, servers.value],
  );
  return rows.flatMap(({ room_id: roomId, user_id: userId, server }): JoinedUser[] =>
    userId === null
      ? (byServer.get(`${roomId}\n${server}`) ?? []).map((one) => ({ roomId, userId: one.userId, isPartial: true }))
      : [{ roomId, userId, isPartial: false }],
  );
}

/** Which of some users have joined any room that this server knows. */
export async function knownAmong(db: Db, userIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{ state_key: string }>(
    `SELECT DISTINCT state_key FROM current_state_events
     WHERE type = 'm.room.member' AND ${db.dialect.anyOf('state_key')} AND membership = 'join'`,
    [userIds],
  );
  return new Set(rows.map((row) => row.state_key));
}
