import { Injectable } from '@nestjs/common';
import { passesFilter, passesRoom } from '@rookery/matrix-types';
import { eachLimit } from '@rookery/platform';
import { EventStore, type TimelineSlice, TimelineReader, type VisibleEvent, VisibilityFilter } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';

const defaultLimit = 10;
const parallelReads = 8;

/** What a client is shown of a room's end, oldest first. Whatever goes with it is computed against this, not against more. */
export interface ShownTimeline {
  readonly events: readonly VisibleEvent[];
  /** There are more between the last sync and the first event. */
  readonly limited: boolean;
  /** The place before the first event; pagination backwards goes on from it. */
  readonly start: TimelineSlice['start'];
}

/** Reads the timelines of many rooms at once. */
@Injectable()
export class Timelines {
  constructor(
    private readonly timelines: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly events: EventStore,
  ) {}

  /**
   * The last events of each room within its range, without what the user may not see. Rooms with the same range share a
   * query: one for the rooms that the user stayed in, one for those that are new, one per room that was left.
   * @param limitMax the server's own limit, `undefined` for none
   */
  async read(
    entries: readonly RoomEntry[],
    context: SyncContext,
    limitMax: number | undefined,
  ): Promise<Map<string, ShownTimeline>> {
    const wanted = entries.filter(
      ({ section, roomId }) =>
        (section === 'join' || section === 'leave') && passesRoom(context.filter.room.timeline, roomId),
    );
    const outside = wanted.filter(({ section, stay }) => section === 'leave' && stay === undefined);
    const [slices, endings] = await Promise.all([
      this.#slices(
        wanted.filter((entry) => !outside.includes(entry)),
        context,
        limitMax,
      ),
      this.#endings(outside, context),
    ]);
    const visible = await this.visibility.visible(
      context.userId,
      [...slices.values()].flatMap((slice) => slice.events),
    );
    const byRoom = Map.groupBy(visible, ({ stored }) => stored.event.roomId);
    const isApplied = !context.useStateAfter;
    const shown = [...slices].map(([roomId, slice]): [string, ShownTimeline] => {
      const events = byRoom.get(roomId) ?? [];
      const first = isApplied ? firstUnbroken(slice, events) : 0;
      if (first === 0) return [roomId, { events, limited: slice.limited, start: slice.start }];
      const rest = events.slice(first);
      const next = rest[0]?.stored;
      return [roomId, { events: rest, limited: true, start: next && this.timelines.arrivalOf(next) }];
    });
    return new Map([...shown, ...endings]);
  }

  /** All that is told of rooms that the user has not been in: how an invite or a knock ended, by whom and why. */
  async #endings(entries: readonly RoomEntry[], { filter }: SyncContext): Promise<[string, ShownTimeline][]> {
    const loaded = await this.events.many(entries.map((entry) => entry.membership.eventId));
    return entries.map(({ roomId, membership }) => {
      const stored = loaded.get(membership.eventId);
      // A membership that state resolution took away ended without an event.
      const isEnd = stored?.event.content['membership'] === membership.membership;
      const isWanted = stored !== undefined && isEnd && passesFilter(filter.room.timeline, stored.event);
      const events: VisibleEvent[] = isWanted ? [{ stored, membership: membership.membership }] : [];
      return [roomId, { events, limited: false, start: undefined }];
    });
  }

  async #slices(
    entries: readonly RoomEntry[],
    context: SyncContext,
    limitMax: number | undefined,
  ): Promise<Map<string, TimelineSlice>> {
    const filter = context.filter.room.timeline;
    const asked = filter.limit ?? defaultLimit;
    const limit = limitMax === undefined ? asked : Math.min(asked, limitMax);
    const groups = Map.groupBy(entries, (entry) => `${entry.after}:${entry.upTo}`);
    const slices = new Map<string, TimelineSlice>();
    await eachLimit(groups.values(), parallelReads, async (group) => {
      const [{ after, upTo } = { after: 0, upTo: 0 }] = group;
      const found = await this.timelines.latest(
        group.map((entry) => entry.roomId),
        { after, upTo, limit, ...(filter.passesEverything ? {} : { filter }) },
      );
      for (const [roomId, slice] of found) slices.set(roomId, slice);
    });
    return slices;
  }
}

/**
 * Where a timeline must begin so that a client which applies it on top of `state` ends with current state: behind the last
 * event whose entry was changed again by one that the user may not see, since `state` comes before the timeline.
 */
function firstUnbroken({ events }: TimelineSlice, visible: readonly VisibleEvent[]): number {
  if (visible.length === events.length) return 0;
  const final = new Map<string, string>();
  for (const { event } of events)
    if (event.stateKey !== undefined) final.set(stateKeyOf(event.type, event.stateKey), event.eventId);
  const shown = new Set(visible.map(({ stored }) => stored.event.eventId));
  return (
    visible.findLastIndex(({ stored: { event } }) => {
      if (event.stateKey === undefined) return false;
      return !shown.has(final.get(stateKeyOf(event.type, event.stateKey)) ?? '');
    }) + 1
  );
}
