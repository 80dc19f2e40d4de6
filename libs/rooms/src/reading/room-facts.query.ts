import type { Db, SqlBool } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';

export interface FactsRow {
  readonly room_id: string;
  readonly room_type: string | null;
  readonly name: string | null;
  readonly is_encrypted: SqlBool;
}

/** Facts of those rooms that are known. */
export function selectRoomFacts(db: Db, roomIds: readonly string[]): Promise<FactsRow[]> {
  return db.query<FactsRow>(
    `SELECT r.room_id, s.room_type, s.name, s.encryption IS NOT NULL AS is_encrypted
     FROM rooms r LEFT JOIN room_stats_state s ON s.room_id = r.room_id WHERE ${db.dialect.anyOf('r.room_id')}`,
    [roomIds],
  );
}

/** Where the last activity in a room lies. */
export interface ActivityRow {
  readonly room_id: string;
  /** Position of the last event of the types asked for; `null` where there is none among those looked at. */
  readonly position: number | null;
  /** Position of the first event looked at, where there may be more before it. */
  readonly edge: number | null;
}

/** The last event of some types among the last `count` events of each room. */
export function selectLastActivity(
  db: Db,
  roomIds: readonly string[],
  types: readonly string[],
  count: number,
): Promise<ActivityRow[]> {
  const { anyOf } = db.dialect;
  return db.query<ActivityRow>(
    `WITH ends AS (SELECT r.room_id, (SELECT f.stream_ordering FROM events f
         WHERE f.room_id = r.room_id AND f.stream_ordering > 0 ORDER BY f.stream_ordering DESC LIMIT 1 OFFSET ${Math.trunc(count) - 1}) AS edge
       FROM rooms r WHERE ${anyOf('r.room_id')} LIMIT ?)
     SELECT l.room_id, l.edge, (SELECT e.stream_ordering FROM events e WHERE e.room_id = l.room_id
         AND e.stream_ordering >= COALESCE(l.edge, 1) AND ${anyOf('e.type')} AND ${servableSql('e.')}
       ORDER BY e.stream_ordering DESC LIMIT 1) AS position FROM ends l`,
    [roomIds, roomIds.length, types],
  );
}
