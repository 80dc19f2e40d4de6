import { Injectable } from '@nestjs/common';
import { passesFilter, passesRoom } from '@rookery/matrix-types';
import { eachLimit } from '@rookery/platform';
import {
  EventStore,
  RoomStateReader,
  type StoredEvent,
  TimelineReader,
  VisibilityFilter,
  type VisibleEvent,
} from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';
import type { CurrentStates, StateDelta, TimelineSlice } from '../model/rooms.js';
import { behind, visibleEnds } from '../model/visible-ends.js';

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
    private readonly state: RoomStateReader,
  ) {}

  /**
   * The last events of each room within its range, without what the user may not see. Rooms with the same range share a
   * query: one for the rooms that the user stayed in, one for those that are new, one per room that was left; and once more
   * for those of whose end most is hidden.
   * @param changes of current state since the last sync, of rooms that are not fresh
   * @param current of those that are
   * @param limitMax the server's own limit, `undefined` for none
   */
  async read(
    entries: readonly RoomEntry[],
    changes: Promise<ReadonlyMap<string, readonly StateDelta[]>>,
    current: CurrentStates,
    context: SyncContext,
    limitMax: number | undefined,
  ): Promise<Map<string, ShownTimeline>> {
    const wanted = entries.filter(
      ({ section, roomId }) =>
        (section === 'join' || section === 'leave') && passesRoom(context.filter.room.timeline, roomId),
    );
    const outside = wanted.filter(({ section, stay }) => section === 'leave' && stay === undefined);
    const asked = context.filter.room.timeline.limit ?? defaultLimit;
    const limit = limitMax === undefined ? asked : Math.min(asked, limitMax);
    const [changed, ends, endings] = await Promise.all([
      changes,
      visibleEnds(
        wanted.filter((entry) => !outside.includes(entry)),
        {
          limitOf: () => limit,
          slices: (some, sizeOf) => this.#slices(some, context, sizeOf(limit)),
          visible: (events) => this.visibility.visible(context.userId, events),
          placeBefore: (event) => this.timelines.arrivalOf(event),
        },
      ),
      this.#endings(outside, context),
    ]);
    const { slices, visible } = ends;
    const final = context.useStateAfter ? undefined : await this.#finalState(wanted, slices, changed, current);
    const shown = [...slices].map(([roomId, slice]): [string, ShownTimeline] => {
      const events = visible.get(roomId) ?? [];
      const first = final ? firstUnbroken(slice, events, final.get(roomId)) : 0;
      if (first === 0) return [roomId, { events, limited: slice.limited, start: slice.start }];
      const rest = events.slice(first);
      const next = rest[0]?.stored;
      return [roomId, { events: rest, limited: true, start: next ? this.timelines.arrivalOf(next) : behind(slice) }];
    });
    return new Map([...shown, ...endings]);
  }

  /** What holds in the end of the state that timelines tell, by room; absent where each event counts as having changed it. */
  async #finalState(
    entries: readonly RoomEntry[],
    slices: ReadonlyMap<string, TimelineSlice>,
    changed: ReadonlyMap<string, readonly StateDelta[]>,
    current: CurrentStates,
  ): Promise<ReadonlyMap<string, ReadonlyMap<string, string | undefined>>> {
    const final = new Map<string, ReadonlyMap<string, string | undefined>>();
    const asked = new Map<string, readonly [roomId: string, type: string, stateKey: string]>();
    for (const { roomId, section, fresh: isFresh } of entries) {
      const told = (slices.get(roomId)?.events ?? []).filter(({ event }) => event.stateKey !== undefined);
      if (told.length === 0) continue;
      if (!isFresh) {
        const changes = changed.get(roomId) ?? [];
        final.set(roomId, new Map(changes.map((each) => [stateKeyOf(each.type, each.stateKey), each.eventId])));
      } else if (section === 'join') {
        const known = current.get(roomId);
        final.set(roomId, known ?? new Map<string, string>());
        for (const { event } of told) {
          const key = stateKeyOf(event.type, event.stateKey ?? '');
          // Where members are loaded lazily, none is in what is known.
          if (known?.has(key) === true) continue;
          asked.set(`${roomId}\n${key}`, [roomId, event.type, event.stateKey ?? '']);
        }
      }
    }
    if (asked.size === 0) return final;
    const more = await this.state.currentEntries([...asked.values()]);
    for (const [roomId, ids] of more) final.set(roomId, new Map([...(final.get(roomId) ?? []), ...ids]));
    return final;
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
    limit: number,
  ): Promise<Map<string, TimelineSlice>> {
    const filter = context.filter.room.timeline;
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
 * event that is not what holds in the end, where the one which does is not shown behind it. The user may not see that one, or
 * state resolution went back to it from before the timeline, or never took the event of the timeline.
 * @param final what holds in the end, by key; without it the last event of each key
 */
function firstUnbroken(
  { events }: TimelineSlice,
  visible: readonly VisibleEvent[],
  final: ReadonlyMap<string, string | undefined> | undefined,
): number {
  if (!visible.some(({ stored }) => stored.event.stateKey !== undefined)) return 0;
  const keyOf = ({ event }: StoredEvent): string | undefined =>
    event.stateKey === undefined ? undefined : stateKeyOf(event.type, event.stateKey);
  const holds = final ?? new Map(events.map((stored) => [keyOf(stored) ?? '', stored.event.eventId]));
  const places = new Map(visible.map(({ stored }, place) => [stored.event.eventId, place]));
  const isOverruled = ({ stored }: VisibleEvent, place: number): boolean => {
    const key = keyOf(stored);
    return key !== undefined && (places.get(holds.get(key) ?? '') ?? -1) < place;
  };
  return visible.findLastIndex(isOverruled) + 1;
}
