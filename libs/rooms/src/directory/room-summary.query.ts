import type { Db, SqlBool } from '@rookery/database';
import type { PublicRoomRow } from './directory.query.js';

/** Figures of a room, published or not. */
export interface SummaryRow extends PublicRoomRow {
  readonly room_version: string;
  readonly encryption: string | null;
  readonly is_public: SqlBool;
  /** Who made it, if that was somebody of this server. */
  readonly creator: string | null;
  readonly local_users_in_room: number;
}

/** Figures of those of some rooms whose state this server knows. */
export function selectSummaries(db: Db, roomIds: readonly string[]): Promise<SummaryRow[]> {
  return db.query<SummaryRow>(
    `SELECT r.room_id, r.room_version, r.is_public, r.creator, s.name, s.topic, s.canonical_alias, s.avatar, s.join_rules,
       s.history_visibility, s.guest_access, s.room_type, s.encryption, c.joined_members, c.local_users_in_room
     FROM rooms r JOIN room_stats_current c ON c.room_id = r.room_id LEFT JOIN room_stats_state s ON s.room_id = r.room_id
     WHERE ${db.dialect.anyOf('r.room_id')}`,
    [roomIds],
  );
}
