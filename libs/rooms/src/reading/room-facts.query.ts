import type { Db, SqlBool } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';

export interface FactsRow {
  readonly room_id: string;
  readonly room_type: string | null;
  readonly name: string | null;
  readonly is_encrypted: SqlBool;
  /** Position of the last event of the types asked for. */
  readonly last_activity: number | null;
}

/** Facts of those rooms that are known. */
export function selectRoomFacts(
  db: Db,
  roomIds: readonly string[],
  activityTypes: readonly string[],
): Promise<FactsRow[]> {
  const { dialect } = db;
  return db.query<FactsRow>(
    `SELECT r.room_id, s.room_type, s.name, s.encryption IS NOT NULL AS is_encrypted,
       (SELECT e.stream_ordering FROM events e WHERE e.room_id = r.room_id AND e.stream_ordering > 0
          AND ${dialect.anyOf('e.type')} AND ${servableSql('e.')}
        ORDER BY e.stream_ordering DESC LIMIT 1) AS last_activity
     FROM rooms r LEFT JOIN room_stats_state s ON s.room_id = r.room_id WHERE ${dialect.anyOf('r.room_id')}`,
    [activityTypes, roomIds],
  );
}
