import { Injectable } from '@nestjs/common';
import { passesRoom } from '@rookery/matrix-types';
import { type TimelineSlice, TimelineReader } from '@rookery/rooms';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';

const defaultLimit = 10;
const parallelReads = 8;

/** Reads the timelines of many rooms at once. */
@Injectable()
export class Timelines {
  constructor(private readonly timelines: TimelineReader) {}

  /**
   * The last events of each room within its range. Rooms with the same range share a query: one for the rooms that the
   * user stayed in, one for those that are new, one per room that was left.
   * @param limitMax the server's own limit, `undefined` for none
   */
  async read(
    entries: readonly RoomEntry[],
    context: SyncContext,
    limitMax: number | undefined,
  ): Promise<Map<string, TimelineSlice>> {
    const filter = context.filter.room.timeline;
    const asked = filter.limit ?? defaultLimit;
    const limit = limitMax === undefined ? asked : Math.min(asked, limitMax);
    const groups = Map.groupBy(
      entries.filter(
        (entry) => (entry.section === 'join' || entry.section === 'leave') && passesRoom(filter, entry.roomId),
      ),
      (entry) => `${entry.after}:${entry.upTo}`,
    );
    const slices = new Map<string, TimelineSlice>();
    const pending = [...groups.values()];
    const worker = async (): Promise<void> => {
      for (let group = pending.pop(); group !== undefined; group = pending.pop()) {
        const [{ after, upTo } = { after: 0, upTo: 0 }] = group;
        const found = await this.timelines.latest(
          group.map((entry) => entry.roomId),
          { after, upTo, limit, ...(filter.passesEverything ? {} : { filter }) },
        );
        for (const [roomId, slice] of found) slices.set(roomId, slice);
      }
    };
    await Promise.all(Array.from({ length: parallelReads }, worker));
    return slices;
  }
}
