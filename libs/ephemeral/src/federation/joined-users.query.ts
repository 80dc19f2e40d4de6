import type { Db } from '@rookery/database';

/** A user who is in a room. */
export interface JoinedUser {
  readonly roomId: string;
  readonly userId: string;
}

/** Which of some users have joined which of some rooms. */
export async function joinedAmong(
  db: Db,
  roomIds: readonly string[],
  userIds: readonly string[],
): Promise<JoinedUser[]> {
  return db.query<JoinedUser>(
    `SELECT room_id AS "roomId", state_key AS "userId" FROM current_state_events
     WHERE ${db.dialect.anyOf('room_id')} AND type = 'm.room.member' AND ${db.dialect.anyOf('state_key')}
       AND membership = 'join'`,
    [roomIds, userIds],
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
