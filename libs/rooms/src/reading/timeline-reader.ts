import { Injectable } from '@nestjs/common';
import { Database, type SqlValue } from '@rookery/database';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { type EventFilter, eventFilterSql } from './event-filter.js';
import { servableSql } from '../model/servable-sql.js';
import { type EventPlace, RecentEvents } from '../store/recent-events.js';
import type { PlaceInRoom, RoomPosition } from './room-token.js';
import { TimelineGaps } from '../store/timeline-gaps.js';

/** The last events of a room, oldest first. */
export interface TimelineSlice {
  readonly events: readonly StoredEvent[];
  /** There are more between the lower bound and the first event. */
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
  /** The place behind the last event; absent when there is no more. */
  readonly end: RoomPosition | undefined;
}

/** Events next to a place in the order of arrival among which the outermost is looked for first. */
const nearest = 100;
/** Events beyond it that are looked at for others of that side, each time that one was found; and how often at most. */
const beyond = 1_000;
const maxRounds = 50;

interface Place {
  readonly topological_ordering: number;
  readonly stream_ordering: number;
}

interface PlaceRow extends Place {
  readonly event_id: string;
  readonly room_id: string;
}

const inTimelineSql = 'e.outlier = FALSE AND e.rejection_reason IS NULL';

/**
 * Events of rooms in order of arrival and in the rooms' own order. What comes back has not been checked against history
 * visibility: pass it through {@link VisibilityFilter} before it leaves the server.
 */
@Injectable()
export class TimelineReader {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
    private readonly gaps: TimelineGaps,
  ) {}

  /**
   * The last `limit` events of each room with `after < stream ordering <= upTo`, in one query for all rooms whose end is not
   * in memory and one or two for the events themselves. Rooms without any are absent.
   */
  async latest(
    roomIds: readonly string[],
    range: { readonly after?: number; readonly upTo: number; readonly limit: number; readonly filter?: EventFilter },
  ): Promise<Map<string, TimelineSlice>> {
    const slices = new Map<string, TimelineSlice>();
    const limit = Math.trunc(range.limit);
    const after = range.after ?? 0;
    const places = new Map<string, readonly EventPlace[]>();
    const unknown: string[] = [];
    for (const roomId of roomIds) {
      const recent = range.filter ? undefined : this.recent.latest(roomId, after, range.upTo, limit);
      if (recent === undefined) unknown.push(roomId);
      else if (recent.length > 0) places.set(roomId, recent);
    }
    for (const [roomId, list] of await this.#lastPlaces(unknown, range, limit)) places.set(roomId, list);
    await this.gaps.ready();
    const cut = new Set<string>();
    for (const [roomId, list] of places) {
      // A slice begins behind the last gap, as if the limit had been there.
      const gap = this.gaps.lastIn(roomId, after, range.upTo);
      const behind = gap === undefined ? [] : list.filter(({ stream }) => stream >= gap);
      if (behind.length === 0) continue;
      places.set(roomId, behind);
      cut.add(roomId);
    }
    const lastOf = (list: readonly EventPlace[]): readonly EventPlace[] => (limit > 0 ? list.slice(-limit) : []);
    const loaded = await this.events.many([...places.values()].flatMap(lastOf).map((place) => place.eventId));
    for (const [roomId, list] of places) {
      const slice = lastOf(list);
      const first = slice[0] ?? list.at(-1);
      slices.set(roomId, {
        events: slice.flatMap((place) => loaded.get(place.eventId) ?? []),
        limited: list.length > slice.length || cut.has(roomId),
        start: first && { topological: undefined, stream: slice.length > 0 ? first.stream - 1 : first.stream },
      });
    }
    return slices;
  }

  /** The last places of each room within a range, more than `limit` where there are more. */
  async #lastPlaces(
    roomIds: readonly string[],
    range: { readonly after?: number; readonly upTo: number; readonly filter?: EventFilter },
    limit: number,
  ): Promise<Map<string, EventPlace[]>> {
    const places = new Map<string, EventPlace[]>();
    if (roomIds.length === 0) return places;
    const after = range.after ?? 0;
    const anyOf = (column: string): string => this.database.dialect.anyOf(column);
    const params: SqlValue[] = [];
    const conditions = (alias: string): string =>
      [servableSql(`${alias}.`), ...eventFilterSql(range.filter, params, this.database.dialect, alias)].join(' AND ');
    params.push(range.upTo, after, range.upTo);
    const inner = conditions('b');
    params.push(after, roomIds);
    const outer = conditions('e');
    const rows = await this.database.query<PlaceRow>(
      `SELECT e.event_id, e.room_id, e.topological_ordering, e.stream_ordering FROM rooms r
       JOIN events e ON e.room_id = r.room_id AND e.stream_ordering <= ? AND e.stream_ordering > COALESCE((
         SELECT b.stream_ordering FROM events b WHERE b.room_id = r.room_id AND b.stream_ordering > ?
           AND b.stream_ordering <= ? AND ${inner} ORDER BY b.stream_ordering DESC LIMIT 1 OFFSET ${limit + 1}), ?)
       WHERE ${anyOf('r.room_id')} AND ${outer} ORDER BY e.stream_ordering`,
      params,
    );
    for (const row of rows) {
      const list = places.get(row.room_id);
      const place = { eventId: row.event_id, topological: row.topological_ordering, stream: row.stream_ordering };
      if (list) list.push(place);
      else places.set(row.room_id, [place]);
    }
    return places;
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
   * A page of history in the room's own order.
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
    const params: SqlValue[] = [roomId, start.topological, start.stream];
    const place = '(e.topological_ordering, e.stream_ordering)';
    const conditions = ['e.room_id = ?', `${place} ${backwards ? '<=' : '>'} (?, ?)`];
    if (from.topological === undefined) {
      // What came later, though it lies less deep, is what the reader begins with on the way back; and the other way round.
      conditions.push(`e.stream_ordering ${backwards ? '<=' : '>'} ?`);
      params.push(from.stream);
    }
    if (options.to) {
      const stop = await this.stop(roomId, options.to, options.direction);
      conditions.push(`${place} ${backwards ? '>' : '<='} (?, ?)`);
      params.push(stop.topological, stop.stream);
      if (options.to.topological === undefined) {
        conditions.push(`e.stream_ordering ${backwards ? '>' : '<='} ?`);
        params.push(options.to.stream);
      }
    }
    conditions.push(options.withSoftFailed ? inTimelineSql : servableSql('e.'));
    conditions.push(...eventFilterSql(options.filter, params, this.database.dialect));
    const order = backwards ? 'DESC' : 'ASC';
    const limit = Math.trunc(options.limit);
    const rows = await this.database.query<PlaceRow>(
      `SELECT e.event_id, e.room_id, e.topological_ordering, e.stream_ordering FROM events e
       WHERE ${conditions.join(' AND ')}
       ORDER BY e.topological_ordering ${order}, e.stream_ordering ${order} LIMIT ${limit}`,
      params,
    );
    const events = await this.events.inOrder(rows.map((row) => row.event_id));
    const last = rows.at(-1);
    const end =
      last === undefined || rows.length < limit
        ? undefined
        : backwards
          ? before(last)
          : { topological: last.topological_ordering, stream: last.stream_ordering };
    return { events, end };
  }

  /** The ids of the servable events just before and just after each of some events, in the rooms' own order. */
  async neighbors(
    eventIds: readonly string[],
  ): Promise<Map<string, { readonly before: string | undefined; readonly after: string | undefined }>> {
    const place = '(n.topological_ordering, n.stream_ordering)';
    const own = '(e.topological_ordering, e.stream_ordering)';
    const neighbor = (comparison: '<' | '>', order: 'ASC' | 'DESC'): string =>
      `(SELECT n.event_id FROM events n WHERE n.room_id = e.room_id AND ${servableSql('n.')} AND ${place} ${comparison} ${own}
         ORDER BY n.topological_ordering ${order}, n.stream_ordering ${order} LIMIT 1)`;
    const rows = await this.database.query<{ event_id: string; prior: string | null; next: string | null }>(
      `SELECT e.event_id, ${neighbor('<', 'DESC')} AS prior, ${neighbor('>', 'ASC')} AS next
         FROM events e WHERE ${this.database.dialect.anyOf('e.event_id')}`,
      [eventIds],
    );
    return new Map(
      rows.map(({ event_id, prior, next }) => [event_id, { before: prior ?? undefined, after: next ?? undefined }]),
    );
  }

  /** Whether something is missing before an event of a room whose depth lies between two, both included. */
  async hasGap(roomId: string, from = 0, upTo = Number.MAX_SAFE_INTEGER): Promise<boolean> {
    const row = await this.database.get(
      `SELECT 1 AS found FROM event_backward_extremities b JOIN event_edges g ON g.prev_event_id = b.event_id
       JOIN events e ON e.event_id = g.event_id
       WHERE b.room_id = ? AND e.topological_ordering >= ? AND e.topological_ordering <= ? LIMIT 1`,
      [roomId, from, upTo],
    );
    return row !== undefined;
  }

  /**
   * The place before the newest event, in the room's own order, among those before which something is missing.
   * @param from only events at or before this place
   * @param least only events at least this deep
   */
  async lastGap(roomId: string, from: PlaceInRoom, least = 0): Promise<PlaceInRoom | undefined> {
    const row = await this.database.get<Place>(
      `SELECT e.topological_ordering, e.stream_ordering FROM event_backward_extremities b
       JOIN event_edges g ON g.prev_event_id = b.event_id JOIN events e ON e.event_id = g.event_id
       WHERE b.room_id = ? AND (e.topological_ordering, e.stream_ordering) <= (?, ?) AND e.topological_ordering >= ?
       ORDER BY e.topological_ordering DESC, e.stream_ordering DESC LIMIT 1`,
      [roomId, from.topological, from.stream, least],
    );
    return row && before(row);
  }

  /** Servable events of all rooms with `after < stream ordering <= upTo`, oldest first; at most `limit`. */
  async all(after: number, upTo: number, limit: number): Promise<StoredEvent[]> {
    const rows = await this.database.query<{ event_id: string }>(
      `SELECT e.event_id FROM events e WHERE e.stream_ordering > ? AND e.stream_ordering <= ? AND ${servableSql('e.')}
       ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
      [after, upTo],
    );
    return this.events.inOrder(rows.map((row) => row.event_id));
  }

  /** The last place of a room in the order of arrival, up to `upTo`. */
  async lastPlace(roomId: string, upTo?: number): Promise<RoomPosition | undefined> {
    const row = await this.database.get<PlaceRow>(
      `SELECT event_id, room_id, topological_ordering, stream_ordering FROM events
       WHERE room_id = ? AND outlier = FALSE ${upTo === undefined ? '' : 'AND stream_ordering <= ?'}
       ORDER BY stream_ordering DESC LIMIT 1`,
      upTo === undefined ? [roomId] : [roomId, upTo],
    );
    return row && { topological: row.topological_ordering, stream: row.stream_ordering };
  }

  /**
   * The place in the room's own order behind everything that arrived up to `upTo`. Not that of the last event: while servers do
   * not see each other's, any number of them arrive that are less deep than those that were there before.
   */
  async endPlace(roomId: string, upTo?: number): Promise<RoomPosition | undefined> {
    const row = await (upTo === undefined ? this.#deepest(roomId) : this.#outermost(roomId, upTo, 'b'));
    return row && { topological: row.topological_ordering, stream: row.stream_ordering };
  }

  #deepest(roomId: string): Promise<Place | undefined> {
    return this.database.get<Place>(
      `SELECT topological_ordering, stream_ordering FROM events WHERE room_id = ? AND outlier = FALSE
       ORDER BY topological_ordering DESC, stream_ordering DESC LIMIT 1`,
      [roomId],
    );
  }

  /**
   * The deepest of the events that arrived up to a place (`b`), or the least deep of those that arrived behind it (`f`). Costs
   * what those cost that lie between it and the nearest arrivals: other branches of the room, not its whole history.
   */
  async #outermost(roomId: string, stream: number, direction: 'f' | 'b'): Promise<Place | undefined> {
    const [outwards, inwards, further, side] =
      direction === 'b' ? ['DESC', 'ASC', '>', 'stream_ordering <= ?'] : ['ASC', 'DESC', '<', 'stream_ordering > ?'];
    const columns = 'topological_ordering, stream_ordering';
    const first = `ORDER BY topological_ordering ${outwards}, stream_ordering ${outwards} LIMIT 1`;
    let found = await this.database.get<Place>(
      `SELECT ${columns} FROM (SELECT ${columns} FROM events WHERE room_id = ? AND outlier = FALSE AND ${side}
         ORDER BY stream_ordering ${outwards} LIMIT ${nearest}) AS arrivals ${first}`,
      [roomId, stream],
    );
    for (let round = 0; found && round < maxRounds; round++) {
      const next: Place | undefined = await this.database.get<Place>(
        `SELECT ${columns} FROM (SELECT ${columns} FROM events
           WHERE room_id = ? AND outlier = FALSE AND (${columns}) ${further} (?, ?)
           ORDER BY topological_ordering ${inwards}, stream_ordering ${inwards} LIMIT ${beyond}) AS others
         WHERE ${side} ${first}`,
        [roomId, found.topological_ordering, found.stream_ordering, stream],
      );
      if (!next) break;
      found = next;
    }
    return found;
  }

  /** The last event of a room in the order of arrival, up to `upTo`. */
  async lastEventId(roomId: string, upTo: number): Promise<string | undefined> {
    const row = await this.database.get<{ event_id: string }>(
      `SELECT e.event_id FROM events e WHERE e.room_id = ? AND e.stream_ordering <= ? AND ${servableSql('e.')}
       ORDER BY e.stream_ordering DESC LIMIT 1`,
      [roomId, upTo],
    );
    return row?.event_id;
  }

  /** The first event of a room in the order of arrival. */
  async firstEventId(roomId: string): Promise<string | undefined> {
    const row = await this.database.get<{ event_id: string }>(
      `SELECT e.event_id FROM events e WHERE e.room_id = ? AND ${servableSql('e.')} ORDER BY e.stream_ordering LIMIT 1`,
      [roomId],
    );
    return row?.event_id;
  }

  /**
   * Where the way back through a room begins in its own order. From a place in the order of arrival that is behind all that
   * arrived before it, and no less deep than what came next: something may be missing between the two.
   */
  async wayBack(roomId: string, place: RoomPosition): Promise<PlaceInRoom> {
    if (place.topological !== undefined) return { topological: place.topological, stream: place.stream };
    const [end, next] = await Promise.all([
      this.topological(roomId, place),
      this.database.get<Place>(
        `SELECT topological_ordering, stream_ordering FROM events
         WHERE room_id = ? AND outlier = FALSE AND stream_ordering > ? ORDER BY stream_ordering LIMIT 1`,
        [roomId, place.stream],
      ),
    ]);
    return next && next.topological_ordering > end.topological ? before(next) : end;
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
    const next = direction === 'f' ? await this.#outermost(roomId, place.stream, 'f') : undefined;
    if (next) return before(next);
    const last = await this.endPlace(roomId, place.stream);
    return { topological: last?.topological ?? 0, stream: last?.stream ?? place.stream };
  }
}

const before = (row: Place): PlaceInRoom => ({
  topological: row.topological_ordering,
  stream: row.stream_ordering - 1,
});
