import type { Db } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';

/** A user who is in a room. */
export interface JoinedUser {
  readonly roomId: string;
  readonly userId: string;
  /** Not all members of the room are known, and the user is said to be in it by its server. */
  readonly isPartial: boolean;
}

/**
 * Which of some users have joined which of some rooms; where not all members of a room are known, those whose server is said to be
 * in it.
 */
export async function joinedAmong(
  db: Db,
  roomIds: readonly string[],
  userIds: readonly string[],
): Promise<JoinedUser[]> {
  const servers = [...new Set(userIds.map(domainOf))];
  const rows = await db.query<{ room_id: string; user_id: string | null; server: string | null }>(
    `SELECT room_id, state_key AS user_id, NULL AS server FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.member' AND ${db.dialect.anyOf('state_key')}
       AND membership = 'join'
     UNION ALL SELECT room_id, NULL, server_name FROM partial_state_rooms_servers
     WHERE ${db.dialect.anyOf('room_id')} AND ${db.dialect.anyOf('server_name')}`,
    [roomIds, userIds, roomIds, servers],
  );
  return rows.flatMap(({ room_id: roomId, user_id: userId, server }): JoinedUser[] =>
    userId === null
      ? userIds.filter((each) => domainOf(each) === server).map((each) => ({ roomId, userId: each, isPartial: true }))
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
