import type { Db } from '@rookery/database';

/**
 * The first members of each room beside one user, room by room, in the order of their member events; those that came together, as the
 * state of a room that was joined elsewhere does, in that of their ids.
 */
export function selectFirstMembers(
  db: Db,
  roomIds: readonly string[],
  exceptUserId: string,
  memberships: readonly string[],
  limit: number,
): Promise<{ readonly room_id: string; readonly state_key: string }[]> {
  const { dialect } = db;
  return db.query(
    `SELECT room_id, state_key FROM (
       SELECT room_id, state_key, ROW_NUMBER() OVER (PARTITION BY room_id ORDER BY event_stream_ordering, state_key) AS place
       FROM current_state_events
       WHERE ${dialect.anyOf('room_id')} AND type = 'm.room.member' AND ${dialect.anyOf('membership')} AND state_key <> ?
     ) AS ranked WHERE place <= ? ORDER BY room_id, place`,
    [roomIds, memberships, exceptUserId, limit],
  );
}
