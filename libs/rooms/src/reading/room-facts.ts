import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { selectLastActivity, selectRoomFacts } from './room-facts.query.js';

/** What lists of rooms are sorted and filtered by. */
export interface RoomFacts {
  /** `type` of the create event; absent for an ordinary room. */
  readonly roomType: string | undefined;
  readonly name: string | undefined;
  readonly isEncrypted: boolean;
  /**
   * Position of the last event that people would call activity; absent when there was none while this server looked. Of a room whose last
   * thousand events are none, the position of the first of these.
   */
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

/** Events at the end of a room among which activity is looked for: first in all rooms, then in those where there was none. */
const lookedAt = [20, 1_000] as const;
/** Events that are looked at before others get a turn. */
const lookedAtOnce = 20_000;

/** Facts of many rooms at once. */
@Injectable()
export class RoomFactsReader {
  constructor(private readonly database: Database) {}

  /** Whether events of a type move a room up in a list (MSC4186). */
  isActivity(type: string): boolean {
    return activityTypes.has(type);
  }

  /** Facts by room; rooms that are not known are absent. */
  async of(roomIds: readonly string[]): Promise<Map<string, RoomFacts>> {
    if (roomIds.length === 0) return new Map();
    const rows = await selectRoomFacts(this.database, roomIds);
    const activity = await this.#lastActivity(rows.map((row) => row.room_id));
    return new Map(
      rows.map((row) => [
        row.room_id,
        {
          roomType: row.room_type ?? undefined,
          name: row.name ?? undefined,
          isEncrypted: !!row.is_encrypted,
          lastActivity: activity.get(row.room_id),
        },
      ]),
    );
  }

  async #lastActivity(roomIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const activity = new Map<string, number>();
    let quiet = roomIds;
    for (const count of lookedAt) {
      const left: string[] = [];
      const roomsAtOnce = lookedAtOnce / count;
      for (let start = 0; start < quiet.length; start += roomsAtOnce) {
        if (start > 0) await ownTurn();
        const some = quiet.slice(start, start + roomsAtOnce);
        for (const row of await selectLastActivity(this.database, some, [...activityTypes], count)) {
          const position = row.position ?? row.edge;
          if (position !== null) activity.set(row.room_id, position);
          else activity.delete(row.room_id);
          if (row.position === null && row.edge !== null) left.push(row.room_id);
        }
      }
      quiet = left;
    }
    return activity;
  }
}
