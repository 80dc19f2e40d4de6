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

/** Events among which the deepest is looked for: those that arrive while servers do not see each other's. */
const maxForked = 100;

interface PlaceRow {
  readonly event_id: string;
  readonly room_id: string;
  readonly topological_ordering: number;
  readonly stream_ordering: number;
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
   * @param to where to stop, at the latest
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
    if (backwards && from.topological === undefined) {
      // What came later, though it lies less deep, is what the reader begins with.
      conditions.push('e.stream_ordering <= ?');
      params.push(from.stream);
    }
    if (options.to) {
      const stop = await this.topological(roomId, options.to);
      conditions.push(`${place} ${backwards ? '>' : '<='} (?, ?)`);
      params.push(stop.topological, stop.stream);
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
    const row = await this.database.get<Pick<PlaceRow, 'topological_ordering' | 'stream_ordering'>>(
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
   * The place in the room's own order behind what arrived last, up to `upTo`. Not that of the very last event: one of another
   * server may be less deep than those that arrived before it.
   */
  async endPlace(roomId: string, upTo?: number): Promise<RoomPosition | undefined> {
    const row = await this.database.get<Pick<PlaceRow, 'topological_ordering' | 'stream_ordering'>>(
      `SELECT topological_ordering, stream_ordering FROM (
         SELECT topological_ordering, stream_ordering FROM events
         WHERE room_id = ? AND outlier = FALSE ${upTo === undefined ? '' : 'AND stream_ordering <= ?'}
         ORDER BY stream_ordering DESC LIMIT ${maxForked}) AS latest
       ORDER BY topological_ordering DESC, stream_ordering DESC LIMIT 1`,
      upTo === undefined ? [roomId] : [roomId, upTo],
    );
    return row && { topological: row.topological_ordering, stream: row.stream_ordering };
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
      this.database.get<Pick<PlaceRow, 'topological_ordering' | 'stream_ordering'>>(
        `SELECT topological_ordering, stream_ordering FROM events
         WHERE room_id = ? AND outlier = FALSE AND stream_ordering > ? ORDER BY stream_ordering LIMIT 1`,
        [roomId, place.stream],
      ),
    ]);
    return next && next.topological_ordering > end.topological ? before(next) : end;
  }

  /** A place in the room's own order for one in the order of arrival: looking back from there, nothing is missed. */
  async topological(roomId: string, place: RoomPosition, direction: 'f' | 'b' = 'b'): Promise<PlaceInRoom> {
    if (place.topological !== undefined) return { topological: place.topological, stream: place.stream };
    const last = await (direction === 'b' ? this.endPlace(roomId, place.stream) : this.lastPlace(roomId, place.stream));
    return { topological: last?.topological ?? 0, stream: last?.stream ?? place.stream };
  }
}

const before = (row: Pick<PlaceRow, 'topological_ordering' | 'stream_ordering'>): PlaceInRoom => ({
  topological: row.topological_ordering,
  stream: row.stream_ordering - 1,
});
