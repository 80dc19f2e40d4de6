import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { selectRoomFacts } from './room-facts.query.js';

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
const activityTypes: ReadonlySet<string> = new Set([
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

/** Facts of many rooms at once. */
@Injectable()
export class RoomFactsReader {
  constructor(private readonly database: Database) {}

  /** Whether events of a type move a room up in a list (MSC4186). */
  isActivity(type: string): boolean {
    return activityTypes.has(type);
  }

  /** Facts by room, in one query; rooms that are not known are absent. */
  async of(roomIds: readonly string[]): Promise<Map<string, RoomFacts>> {
    if (roomIds.length === 0) return new Map();
    const rows = await selectRoomFacts(this.database, roomIds, [...activityTypes]);
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
