import { Injectable } from '@nestjs/common';
import { Database, type SqlBool } from '@rookery/database';
import { servableSql } from '../model/servable-sql.js';

/** What lists of rooms are sorted and filtered by. */
export interface RoomFacts {
  /** `type` of the create event; absent for an ordinary room. */
  readonly roomType: string | undefined;
  readonly name: string | undefined;
  readonly isEncrypted: boolean;
  /** Position of the last event that people would call activity; absent when there was none while this server looked. */
  readonly lastActivity: number | undefined;
}

/** Types of events that move a room up in a list (MSC4186). */
export const activityTypes: ReadonlySet<string> = new Set([
  'm.room.create',
  'm.room.message',
  'm.room.encrypted',
  'm.sticker',
  'm.call.invite',
  'm.poll.start',
  'org.matrix.msc3381.poll.start',
  'm.beacon_info',
  'org.matrix.msc3672.beacon_info',
]);

interface FactsRow {
  readonly room_id: string;
  readonly room_type: string | null;
  readonly name: string | null;
  readonly is_encrypted: SqlBool;
  readonly last_activity: number | null;
}

/** Facts of many rooms at once. */
@Injectable()
export class RoomFactsReader {
  constructor(private readonly database: Database) {}

  /** Facts by room, in one query; rooms that are not known are absent. */
  async of(roomIds: readonly string[]): Promise<Map<string, RoomFacts>> {
    if (roomIds.length === 0) return new Map();
    const { dialect } = this.database;
    const rows = await this.database.query<FactsRow>(
      `SELECT r.room_id, s.room_type, s.name, s.encryption IS NOT NULL AS is_encrypted,
         (SELECT e.stream_ordering FROM events e WHERE e.room_id = r.room_id AND e.stream_ordering > 0
            AND ${dialect.anyOf('e.type')} AND ${servableSql('e.')}
          ORDER BY e.stream_ordering DESC LIMIT 1) AS last_activity
       FROM rooms r LEFT JOIN room_stats_state s ON s.room_id = r.room_id WHERE ${dialect.anyOf('r.room_id')}`,
      [[...activityTypes], roomIds],
    );
    return new Map(
      rows.map((row) => [
        row.room_id,
        {
          roomType: row.room_type ?? undefined,
          name: row.name ?? undefined,
          isEncrypted: !!row.is_encrypted,
          lastActivity: row.last_activity ?? undefined,
        },
      ]),
    );
  }
}
