import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock } from '@rookery/platform';
import type { StoredEvent } from '../model/stored-event.js';
import { EventStore } from './event-store.js';
import {
  type BackwardGap,
  backwardGaps,
  forgetFailedPulls,
  noteFailedPulls,
  selectNamedBy,
} from './pull-attempts.query.js';
import { holdRooms } from './room-hold.query.js';

/** Where the history of rooms goes on elsewhere, and what came of asking for it. */
@Injectable()
export class BackwardGaps {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly clock: Clock,
  ) {}

  /** Events of a room before which something is missing, the latest first; at most `limit`. */
  of(roomId: string, limit: number): Promise<BackwardGap[]> {
    return backwardGaps(this.database, roomId, limit);
  }

  /** What of a room follows upon some events that are missing: accepted, and with a place in the timeline. */
  async followers(roomId: string, eventIds: readonly string[]): Promise<StoredEvent[]> {
    const found = await this.events.many(await selectNamedBy(this.database, eventIds));
    return [...found.values()].filter(
      ({ event, outlier, rejectedReason }) => event.roomId === roomId && !outlier && rejectedReason === undefined,
    );
  }

  /** Notes what of that was asked for has come, and what nobody gave, and why. */
  async note(roomId: string, came: readonly string[], failed: readonly string[], cause: string): Promise<void> {
    const nowTs = this.clock.nowMs();
    await this.database.write(
      async (tx) => {
        if (came.length > 0) await forgetFailedPulls(tx, roomId, came);
        if (failed.length > 0 && (await holdRooms(tx, [roomId])).has(roomId))
          await noteFailedPulls(tx, roomId, failed, nowTs, cause);
      },
      { name: 'note_backfill' },
    );
  }
}
