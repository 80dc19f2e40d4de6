import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { SingleFlight } from '@rookery/platform';
import type { StoredEvent } from '../model/stored-event.js';
import { EventStore } from '../store/event-store.js';
import { type EventPlace, RecentEvents } from '../store/recent-events.js';
import { TimelineGaps } from '../store/timeline-gaps.js';
import type { EventFilter } from './event-filter.js';
import type { PlaceInRoom, RoomPosition } from './room-token.js';
import {
  type FilteredEnds,
  hasGapBetween,
  type Neighbors,
  type NewEnds,
  selectArrivals,
  selectNews,
  selectDeepest,
  selectFilteredPlaces,
  selectFirstEventId,
  selectLastEventId,
  selectLastGap,
  selectLastPlace,
  selectLastPlaces,
  selectNewEnds,
  selectNeighbors,
  selectNextPlace,
  selectOutermost,
  selectPage,
} from './timeline.query.js';

/** Where no more than this was stored, in whatever room, since somebody was shown the end of rooms, they read what is new with its events. */
const maxNews = 100;

/** The last events of a room, oldest first. */
export interface TimelineSlice {
  readonly events: readonly StoredEvent[];
  /** There are more between the lower bound and the first event, or may be: something is missing there. */
  readonly limited: boolean;
  /**
   * The place before the first event, or behind what there is when none was asked for; pagination backwards goes on from it.
   * In the order of arrival, as the events are: what arrived before them may lie deeper in the room.
   */
  readonly start: RoomPosition | undefined;
}

/** One page of a room's history, in the direction of travel. */
export interface TimelinePage {
  readonly events: readonly StoredEvent[];
  /** The place behind the last event, or behind what was looked at for events; absent when there is no more. */
  readonly end: RoomPosition | undefined;
}

/**
 * Events of rooms in order of arrival and in the rooms' own order. What comes back has not been checked against history
 * visibility: pass it through {@link VisibilityFilter} before it leaves the server.
 */
@Injectable()
export class TimelineReader {
  readonly #ends = new SingleFlight<ReadonlyMap<string, readonly EventPlace[]>>();

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
    private readonly gaps: TimelineGaps,
  ) {}

  /**
   * The last `limit` events of each room with `after < stream ordering <= upTo`, in one query for all rooms whose end is not
   * in memory and one or two for the events themselves. Rooms without any are absent.
   * @param range.filter what is wanted of them; no more than the last 10,000 events of each room are looked at for it
   */
  async latest(
    roomIds: readonly string[],
    range: { readonly after?: number; readonly upTo: number; readonly limit: number; readonly filter?: EventFilter },
  ): Promise<Map<string, TimelineSlice>> {
    const slices = new Map<string, TimelineSlice>();
    const limit = Math.trunc(range.limit);
    const after = range.after ?? 0;
    const lastOf = (list: readonly EventPlace[]): readonly EventPlace[] => (limit > 0 ? list.slice(-limit) : []);
    const { upTo, filter } = range;
    const { places, lookedDownTo }: FilteredEnds = filter
      ? await selectFilteredPlaces(this.database, roomIds, { after, upTo, filter }, limit)
      : { places: await this.#places(roomIds, { after, upTo }, limit), lookedDownTo: new Map() };
    await this.gaps.ready();
    /** Where slices begin that begin elsewhere than before their first event, as if the limit had been there. */
    const cut = new Map<string, RoomPosition | undefined>();
    for (const roomId of roomIds) {
      const gap = this.gaps.lastIn(roomId, after, upTo);
      const edge = lookedDownTo.get(roomId);
      const list = places.get(roomId) ?? [];
      if (gap !== undefined && (edge === undefined || gap > edge)) {
        // Behind the last gap. What is missing might pass a filter that nothing behind it does.
        const behind = list.filter(({ stream }) => stream >= gap);
        if (behind.length > 0) cut.set(roomId, undefined);
        else if (filter) cut.set(roomId, { topological: undefined, stream: gap - 1 });
        if (cut.has(roomId)) places.set(roomId, behind);
      } else if (edge !== undefined && list.length <= limit) {
        cut.set(roomId, { topological: undefined, stream: edge });
        places.set(roomId, list);
      }
    }
    const loaded = await this.events.many([...places.values()].flatMap(lastOf).map((place) => place.eventId));
    for (const [roomId, list] of places) {
      const slice = lastOf(list);
      const first = slice[0] ?? list.at(-1);
      const start = first && { topological: undefined, stream: slice.length > 0 ? first.stream - 1 : first.stream };
      slices.set(roomId, {
        events: slice.flatMap((place) => loaded.get(place.eventId) ?? []),
        limited: list.length > slice.length || cut.has(roomId),
        start: cut.get(roomId) ?? start,
      });
    }
    return slices;
  }

  async #places(
    roomIds: readonly string[],
    range: { readonly after: number; readonly upTo: number },
    limit: number,
  ): Promise<Map<string, readonly EventPlace[]>> {
    const { after, upTo } = range;
    const places = new Map<string, readonly EventPlace[]>();
    const unknown: string[] = [];
    for (const roomId of roomIds) {
      const recent = this.recent.latest(roomId, after, upTo, limit);
      if (recent === undefined) unknown.push(roomId);
      else if (recent.length > 0) places.set(roomId, recent);
    }
    if (unknown.length === 0) return places;
    const read = async (): Promise<ReadonlyMap<string, readonly EventPlace[]>> => {
      if (this.recent.heardUpTo !== undefined && upTo - after <= maxNews) return this.#newEnds(unknown, range, limit);
      const ends = await selectLastPlaces(this.database, unknown, range, limit);
      const shown = [...ends.values()].flatMap((list) => (limit > 0 ? list.slice(-limit) : []));
      await this.events.many(shown.map((place) => place.eventId));
      return ends;
    };
    // Members of a room who are woken together ask for the same, and then all of them for these events.
    const found = await this.#ends.run(JSON.stringify([after, upTo, limit, unknown]), read);
    for (const [roomId, list] of found) places.set(roomId, list);
    return places;
  }

  /** What another process has stored just now: all that its readers ask for next comes with it. */
  async #newEnds(
    roomIds: readonly string[],
    range: { readonly after: number; readonly upTo: number },
    limit: number,
  ): Promise<ReadonlyMap<string, readonly EventPlace[]>> {
    const read = (): Promise<NewEnds> => selectNewEnds(this.database, roomIds, range, limit);
    return (await this.recent.hear(() => this.events.readWhole(read))).places;
  }

  /** The place before an event in the order of arrival. */
  arrivalOf(stored: StoredEvent): RoomPosition {
    return { topological: undefined, stream: stored.streamOrdering - 1 };
  }

  /** The place just before or just after an event, in the room's own order. */
  placeOf(stored: StoredEvent, side: 'before' | 'after'): RoomPosition {
    return {
      topological: stored.event.depth,
      stream: side === 'before' ? stored.streamOrdering - 1 : stored.streamOrdering,
    };
  }

  /**
   * A page of history in the room's own order. It may hold fewer events than were asked for, or none, though there are more.
   * @param from where to start; a place in the order of arrival is translated, and what arrived behind it left out of this page
   *   on the way back
   * @param to where to stop, at the latest; a place in the order of arrival cuts by arrival, however deep what came lies
   */
  async page(
    roomId: string,
    from: RoomPosition,
    options: {
      readonly direction: 'f' | 'b';
      readonly limit: number;
      readonly to?: RoomPosition | undefined;
      readonly filter?: EventFilter | undefined;
      /** Also what was soft-failed. */
      readonly withSoftFailed?: boolean | undefined;
    },
  ): Promise<TimelinePage> {
    const backwards = options.direction === 'b';
    const start = backwards ? await this.wayBack(roomId, from) : await this.topological(roomId, from, 'f');
    const { to } = options;
    const { places, lookedUpTo } = await selectPage(this.database, roomId, {
      direction: options.direction,
      limit: options.limit,
      start,
      // What came later, though it lies less deep, is what the reader begins with on the way back; and the other way round.
      arrivedFrom: from.topological === undefined ? from.stream : undefined,
      stop: to && (await this.stop(roomId, to, options.direction)),
      arrivedTo: to && to.topological === undefined ? to.stream : undefined,
      filter: options.filter,
      withSoftFailed: options.withSoftFailed ?? false,
    });
    const events = await this.events.inOrder(places.map((place) => place.eventId));
    const last = places.at(-1);
    if (last === undefined || places.length < Math.trunc(options.limit)) return { events, end: lookedUpTo };
    return { events, end: backwards ? before(last) : { topological: last.topological, stream: last.stream } };
  }

  /** The ids of the servable events just before and just after each of some events, in the rooms' own order. */
  neighbors(eventIds: readonly string[]): Promise<Map<string, Neighbors>> {
    return selectNeighbors(this.database, eventIds);
  }

  /** Whether something is missing before an event of a room whose depth lies between two, both included. */
  hasGap(roomId: string, from = 0, upTo = Number.MAX_SAFE_INTEGER): Promise<boolean> {
    return hasGapBetween(this.database, roomId, from, upTo);
  }

  /**
   * The place before the newest event, in the room's own order, among those before which something is missing.
   * @param from only events at or before this place
   * @param least only events at least this deep
   */
  async lastGap(roomId: string, from: PlaceInRoom, least = 0): Promise<PlaceInRoom | undefined> {
    const gap = await selectLastGap(this.database, roomId, from, least);
    return gap && before(gap);
  }

  /**
   * Events of all rooms that clients may ever see with `after < stream ordering <= upTo`, oldest first; at most `limit`. Invites from
   * rooms that this server is not in are among them, and what ends these.
   * @returns with them, up to where these are all
   */
  async news(
    after: number,
    upTo: number,
    limit: number,
  ): Promise<{ readonly stored: StoredEvent[]; readonly reached: number }> {
    const rows = await selectNews(this.database, after, upTo, limit);
    // Fewer than asked for means that there are no more.
    const reached = rows.length < limit ? upTo : (rows.at(-1)?.stream_ordering ?? upTo);
    return { stored: await this.events.inOrder(rows.map((row) => row.event_id)), reached };
  }

  /** The first events of a room with `after < stream ordering <= upTo`, oldest first; at most `limit`. */
  async arrivals(roomId: string, after: number, upTo: number, limit: number): Promise<StoredEvent[]> {
    return this.events.inOrder(await selectArrivals(this.database, roomId, after, upTo, limit));
  }

  /** The last place of a room in the order of arrival, up to `upTo`. */
  lastPlace(roomId: string, upTo?: number): Promise<RoomPosition | undefined> {
    return selectLastPlace(this.database, roomId, upTo);
  }

  /**
   * The place in the room's own order behind everything that arrived up to `upTo`. Not that of the last event: while servers do
   * not see each other's, any number of them arrive that are less deep than those that were there before.
   */
  endPlace(roomId: string, upTo?: number): Promise<PlaceInRoom | undefined> {
    return upTo === undefined
      ? selectDeepest(this.database, roomId)
      : selectOutermost(this.database, roomId, upTo, 'b');
  }

  /** The last event of a room in the order of arrival, up to `upTo`. */
  lastEventId(roomId: string, upTo: number): Promise<string | undefined> {
    return selectLastEventId(this.database, roomId, upTo);
  }

  /** The first event of a room in the order of arrival. */
  firstEventId(roomId: string): Promise<string | undefined> {
    return selectFirstEventId(this.database, roomId);
  }

  /**
   * Where the way back through a room begins in its own order. From a place in the order of arrival that is behind all that
   * arrived before it, and no less deep than what came next: something may be missing between the two.
   */
  async wayBack(roomId: string, place: RoomPosition): Promise<PlaceInRoom> {
    if (place.topological !== undefined) return { topological: place.topological, stream: place.stream };
    const [end, next] = await Promise.all([
      this.topological(roomId, place),
      selectNextPlace(this.database, roomId, place.stream),
    ]);
    return next && next.topological > end.topological ? before(next) : end;
  }

  /**
   * Where a page ends in the room's own order at the latest: for a place in the order of arrival behind everything on that side
   * of it, so that what is cut off there by arrival need not be looked for in the whole room.
   */
  stop(roomId: string, to: RoomPosition, direction: 'f' | 'b'): Promise<PlaceInRoom> {
    return this.topological(roomId, to, direction === 'b' ? 'f' : 'b');
  }

  /**
   * A place in the room's own order for one in the order of arrival. Looking back from there, nothing is missed that arrived
   * before; looking forwards (`f`), nothing that arrived behind it.
   */
  async topological(roomId: string, place: RoomPosition, direction: 'f' | 'b' = 'b'): Promise<PlaceInRoom> {
    if (place.topological !== undefined) return { topological: place.topological, stream: place.stream };
    const next = direction === 'f' ? await selectOutermost(this.database, roomId, place.stream, 'f') : undefined;
    if (next) return before(next);
    const last = await this.endPlace(roomId, place.stream);
    return { topological: last?.topological ?? 0, stream: last?.stream ?? place.stream };
  }
}

/** The place just before another. */
const before = ({ topological, stream }: PlaceInRoom): PlaceInRoom => ({ topological, stream: stream - 1 });
