import type { Db, SqlBool, SqlValue } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { eventColumns, type EventRow, eventTables } from '../store/event-store.query.js';
import type { EventPlace, HeardEvent } from '../store/recent-events.js';
import { servableSql } from '../store/servable.query.js';
import { isShownSql } from './aggregations.query.js';
import type { EventFilter } from './event-filter.js';
import { eventFilterSql, lookedAtFor } from './event-filter.query.js';
import type { PlaceInRoom } from './room-token.js';

/** Events next to a place in the order of arrival among which the outermost is looked for first. */
const nearest = 100;
/** Events beyond it that are looked at for others of that side, each time that one was found; and how often at most. */
const beyond = 1_000;
const maxRounds = 50;

const inTimelineSql = 'e.outlier = FALSE AND e.rejection_reason IS NULL';

interface PlaceRow {
  readonly topological_ordering: number;
  readonly stream_ordering: number;
}

interface EventPlaceRow extends PlaceRow {
  readonly event_id: string;
  readonly room_id: string;
}

const placeOf = (row: PlaceRow): PlaceInRoom => ({
  topological: row.topological_ordering,
  stream: row.stream_ordering,
});

const eventPlaceOf = (row: EventPlaceRow): EventPlace => ({ eventId: row.event_id, ...placeOf(row) });

/** The last places of rooms: those with `after < stream ordering <= upTo`. */
interface EndRange {
  readonly after: number;
  readonly upTo: number;
}

interface FilteredRange extends EndRange {
  readonly filter: EventFilter;
}

/** Events that are looked at for the end of a room of which a filter lets little through: first in all rooms, then in those where that is not enough. */
const lookedAtInEnds = [100, 1_000, 10_000] as const;

/** The last places of each room within a range, one more than `limit` where there are more, in order of arrival. */
export async function selectLastPlaces(
  db: Db,
  roomIds: readonly string[],
  range: EndRange,
  limit: number,
): Promise<Map<string, EventPlace[]>> {
  return placesByRoom(await selectEnds<EventPlaceRow>(db, roomIds, range, limit, '', ''));
}

/** The end of a room, and all that has to be known of each event there before somebody is shown it. */
export interface NewEnds {
  readonly places: ReadonlyMap<string, EventPlace[]>;
  /** Those that nobody has redacted. */
  readonly whole: readonly EventRow[];
  readonly heard: readonly HeardEvent[];
}

/** As {@link selectLastPlaces}, with the events, for ranges in which there is little. */
export async function selectNewEnds(
  db: Db,
  roomIds: readonly string[],
  range: EndRange,
  limit: number,
): Promise<NewEnds> {
  type Row = EventRow &
    EventPlaceRow & {
      readonly sender: string;
      readonly state_group: number | null;
      readonly is_related: SqlBool;
      readonly is_redacted: SqlBool;
    };
  const rows = await selectEnds<Row>(
    db,
    roomIds,
    range,
    limit,
    `, ${eventColumns}, e.sender, g.state_group,
      EXISTS (SELECT 1 FROM event_relations x WHERE x.relates_to_id = e.event_id AND ${isShownSql('x')}) AS is_related,
      EXISTS (SELECT 1 FROM redactions d WHERE d.redacts = e.event_id) AS is_redacted`,
    `${eventTables} LEFT JOIN event_to_state_groups g ON g.event_id = e.event_id`,
  );
  return {
    places: placesByRoom(rows),
    whole: rows.filter((row) => !row.is_redacted),
    heard: rows.map((row) => ({
      ...{ eventId: row.event_id, roomId: row.room_id, sender: row.sender, group: row.state_group ?? undefined },
      isUnrelated: !row.is_related,
    })),
  };
}

function placesByRoom(rows: readonly EventPlaceRow[]): Map<string, EventPlace[]> {
  const places = new Map<string, EventPlace[]>();
  for (const row of rows) {
    const list = places.get(row.room_id);
    if (list) list.push(eventPlaceOf(row));
    else places.set(row.room_id, [eventPlaceOf(row)]);
  }
  return places;
}

function selectEnds<Row extends EventPlaceRow>(
  db: Db,
  roomIds: readonly string[],
  range: EndRange,
  limit: number,
  columns: string,
  tables: string,
): Promise<Row[]> {
  // Where rooms begin is a table of its own, and its limit keeps it one: in the join, SQLite would look for it anew at each event. The lower
  // bound is said twice: a database that has yet to work out the first would look at the whole room.
  return db.query<Row>(
    `WITH starts AS (SELECT r.room_id, COALESCE((
         SELECT b.stream_ordering FROM events b WHERE b.room_id = r.room_id AND b.stream_ordering > ?
           AND b.stream_ordering <= ? AND ${servableSql('b.')} ORDER BY b.stream_ordering DESC LIMIT 1 OFFSET ${Math.trunc(limit) + 1}), ?) AS start
       FROM rooms r WHERE ${db.dialect.anyOf('r.room_id')} LIMIT ?)
     SELECT e.event_id, e.room_id, e.topological_ordering, e.stream_ordering${columns} FROM starts l
     CROSS JOIN events e ${tables} WHERE e.room_id = l.room_id AND e.stream_ordering > l.start AND e.stream_ordering > ?
       AND e.stream_ordering <= ? AND ${servableSql('e.')} ORDER BY e.stream_ordering`,
    [range.after, range.upTo, range.after, roomIds, roomIds.length, range.after, range.upTo],
  );
}

/** What was found of the ends of rooms. */
export interface FilteredEnds {
  readonly places: Map<string, readonly EventPlace[]>;
  /** By room: the position at which nobody looked any more, though there is more. */
  readonly lookedDownTo: ReadonlyMap<string, number>;
}

/**
 * As {@link selectLastPlaces}, of what a filter lets through. Of that there may be as little as nothing in all of a room: no more than the last
 * 10,000 events of each within the range are looked at, fewer for a filter of many patterns, and few at a time.
 */
export async function selectFilteredPlaces(
  db: Db,
  roomIds: readonly string[],
  range: FilteredRange,
  limit: number,
): Promise<FilteredEnds> {
  const places = new Map<string, readonly EventPlace[]>();
  const lookedDownTo = new Map<string, number>();
  const atOnce = lookedAtFor(range.filter);
  let rooms = roomIds;
  let before = 0;
  for (const wanted of lookedAtInEnds) {
    const count = Math.min(wanted, atOnce);
    if (count === before || rooms.length === 0) break;
    before = count;
    const ofOneStatement = Math.trunc(atOnce / count);
    for (let first = 0; first < rooms.length; first += ofOneStatement) {
      if (first > 0 || count > lookedAtInEnds[0]) await ownTurn();
      const some = rooms.slice(first, first + ofOneStatement);
      const rows = await selectFilteredEnds(db, some, range, limit, count);
      for (const [roomId, list] of placesByRoom(rows.filter((row) => row.edge === null))) places.set(roomId, list);
      for (const roomId of some) lookedDownTo.delete(roomId);
      for (const { room_id: roomId, edge } of rows) if (edge !== null) lookedDownTo.set(roomId, edge);
    }
    rooms = rooms.filter((roomId) => lookedDownTo.has(roomId) && (places.get(roomId)?.length ?? 0) <= limit);
  }
  return { places, lookedDownTo };
}

/** The ends of rooms among the last `count` events of each, and up to where those are, where there are more. */
function selectFilteredEnds(
  db: Db,
  roomIds: readonly string[],
  { after, upTo, filter }: FilteredRange,
  limit: number,
  count: number,
): Promise<({ readonly room_id: string; readonly edge: number } | (EventPlaceRow & { readonly edge: null }))[]> {
  const params: SqlValue[] = [after, upTo, after, roomIds, roomIds.length, upTo];
  const conditions = (alias: string): string =>
    [servableSql(`${alias}.`), ...eventFilterSql(filter, params, db.dialect, alias)].join(' AND ');
  const inner = conditions('b');
  params.push(after, upTo);
  const outer = conditions('e');
  // Both parts name `starts`, so that it is worked out once: where it stood in the join, SQLite would look for it anew at each event.
  return db.query(
    `WITH ends AS (SELECT r.room_id, COALESCE((
         SELECT f.stream_ordering FROM events f WHERE f.room_id = r.room_id AND f.stream_ordering > ? AND f.stream_ordering <= ?
         ORDER BY f.stream_ordering DESC LIMIT 1 OFFSET ${Math.trunc(count)}), ?) AS edge
       FROM rooms r WHERE ${db.dialect.anyOf('r.room_id')} LIMIT ?),
     starts AS (SELECT l.room_id, l.edge, COALESCE((SELECT b.stream_ordering FROM events b
         WHERE b.room_id = l.room_id AND b.stream_ordering <= ? AND b.stream_ordering > l.edge AND ${inner}
         ORDER BY b.stream_ordering DESC LIMIT 1 OFFSET ${Math.trunc(limit) + 1}), l.edge) AS start FROM ends l)
     SELECT l.room_id, l.edge, NULL AS event_id, NULL AS topological_ordering, NULL AS stream_ordering
       FROM starts l WHERE l.edge > ?
     UNION ALL
     SELECT e.room_id, NULL, e.event_id, e.topological_ordering, e.stream_ordering FROM starts l
     CROSS JOIN events e WHERE e.room_id = l.room_id AND e.stream_ordering <= ? AND e.stream_ordering > l.start AND ${outer}
     ORDER BY stream_ordering`,
    params,
  );
}

/** What a page of a room's history holds. */
export interface PageRange {
  readonly direction: 'f' | 'b';
  readonly limit: number;
  /** On the way back at or before this place, else behind it. */
  readonly start: PlaceInRoom;
  /** What arrived on the other side of this position is not on the page. */
  readonly arrivedFrom: number | undefined;
  /** The page ends at this place; the event there is on a page forwards only. */
  readonly stop: PlaceInRoom | undefined;
  /** The page is cut at this position in the order of arrival, too. */
  readonly arrivedTo: number | undefined;
  readonly filter: EventFilter | undefined;
  readonly withSoftFailed: boolean;
}

/** What is on a page. */
export interface PlacesPage {
  /** In the room's own order, in the direction of travel. */
  readonly places: readonly EventPlace[];
  /** Where the page would begin that goes on looking: there are too few on this one, and there may be more. */
  readonly lookedUpTo: PlaceInRoom | undefined;
}

/** Events that are looked at for a page; nearly always the first of them are enough. */
const lookedAt = [1_000, 10_000] as const;

/**
 * A page of a room. Of what a filter does not let through, of what other servers told of a room's state and of what nobody sees there may
 * be as much as there is of the room: a page looks at no more than 10,000 events, at fewer for a filter of many patterns, and may hold fewer
 * than were asked for, or none.
 */
export async function selectPage(db: Db, roomId: string, range: PageRange): Promise<PlacesPage> {
  const places: EventPlace[] = [];
  let { start } = range;
  const most = lookedAtFor(range.filter);
  let before = 0;
  for (const wanted of lookedAt) {
    const count = Math.min(wanted, most);
    if (count === before) break;
    const edge = await selectEdge(db, roomId, { ...range, start }, count - before);
    before = count;
    const limit = range.limit - places.length;
    places.push(...(await selectPlaces(db, roomId, { ...range, start, limit, stop: edge ?? range.stop })));
    if (edge === undefined || places.length >= Math.trunc(range.limit)) return { places, lookedUpTo: undefined };
    start = edge;
  }
  return { places, lookedUpTo: start };
}

type Conditions = { readonly conditions: string[]; readonly params: SqlValue[]; readonly order: string };

/** What lies in the room's own order where a page is looked for. */
function rangeSql(
  roomId: string,
  { direction, start, stop }: Pick<PageRange, 'direction' | 'start' | 'stop'>,
): Conditions {
  const isBack = direction === 'b';
  const place = '(e.topological_ordering, e.stream_ordering)';
  const conditions = ['e.room_id = ?', `${place} ${isBack ? '<=' : '>'} (?, ?)`];
  const params: SqlValue[] = [roomId, start.topological, start.stream];
  if (stop) {
    conditions.push(`${place} ${isBack ? '>' : '<='} (?, ?)`);
    params.push(stop.topological, stop.stream);
  }
  const way = isBack ? 'DESC' : 'ASC';
  return { conditions, params, order: `e.topological_ordering ${way}, e.stream_ordering ${way}` };
}

/** Up to where there are so many events, of whatever kind; `undefined` where there are no more than these. */
async function selectEdge(db: Db, roomId: string, range: PageRange, count: number): Promise<PlaceInRoom | undefined> {
  const { conditions, params, order } = rangeSql(roomId, range);
  // The event there is on the next page on the way back, and on this one on the way forwards.
  const before = range.direction === 'b' ? count : count - 1;
  const row = await db.get<PlaceRow>(
    `SELECT e.topological_ordering, e.stream_ordering FROM events e WHERE ${conditions.join(' AND ')}
     ORDER BY ${order} LIMIT 1 OFFSET ${before}`,
    params,
  );
  return row && placeOf(row);
}

async function selectPlaces(db: Db, roomId: string, range: PageRange): Promise<EventPlace[]> {
  const { conditions, params, order } = rangeSql(roomId, range);
  const isBack = range.direction === 'b';
  if (range.arrivedFrom !== undefined) {
    conditions.push(`e.stream_ordering ${isBack ? '<=' : '>'} ?`);
    params.push(range.arrivedFrom);
  }
  if (range.arrivedTo !== undefined) {
    conditions.push(`e.stream_ordering ${isBack ? '>' : '<='} ?`);
    params.push(range.arrivedTo);
  }
  conditions.push(range.withSoftFailed ? inTimelineSql : servableSql('e.'));
  conditions.push(...eventFilterSql(range.filter, params, db.dialect));
  const rows = await db.query<EventPlaceRow>(
    `SELECT e.event_id, e.room_id, e.topological_ordering, e.stream_ordering FROM events e
     WHERE ${conditions.join(' AND ')} ORDER BY ${order} LIMIT ${Math.trunc(range.limit)}`,
    params,
  );
  return rows.map(eventPlaceOf);
}

/** The ids of the servable events just before and just after an event, in its room's own order. */
export interface Neighbors {
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** The neighbors of each of some events. */
export async function selectNeighbors(db: Db, eventIds: readonly string[]): Promise<Map<string, Neighbors>> {
  const place = '(n.topological_ordering, n.stream_ordering)';
  const own = '(e.topological_ordering, e.stream_ordering)';
  const neighbor = (comparison: '<' | '>', order: 'ASC' | 'DESC'): string =>
    `(SELECT n.event_id FROM events n WHERE n.room_id = e.room_id AND ${servableSql('n.')} AND ${place} ${comparison} ${own}
       ORDER BY n.topological_ordering ${order}, n.stream_ordering ${order} LIMIT 1)`;
  const rows = await db.query<{ event_id: string; prior: string | null; next: string | null }>(
    `SELECT e.event_id, ${neighbor('<', 'DESC')} AS prior, ${neighbor('>', 'ASC')} AS next
       FROM events e WHERE ${db.dialect.anyOf('e.event_id')}`,
    [eventIds],
  );
  return new Map(
    rows.map(({ event_id, prior, next }) => [event_id, { before: prior ?? undefined, after: next ?? undefined }]),
  );
}

/** Whether something is missing before an event of a room whose depth lies between two, both included. */
export async function hasGapBetween(db: Db, roomId: string, from: number, upTo: number): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM event_backward_extremities b JOIN event_edges g ON g.prev_event_id = b.event_id
     JOIN events e ON e.event_id = g.event_id
     WHERE b.room_id = ? AND e.topological_ordering >= ? AND e.topological_ordering <= ? LIMIT 1`,
    [roomId, from, upTo],
  );
  return row !== undefined;
}

/** The newest event, in the room's own order, at or before a place and at least so deep, before which something is missing. */
export async function selectLastGap(
  db: Db,
  roomId: string,
  from: PlaceInRoom,
  least: number,
): Promise<PlaceInRoom | undefined> {
  const row = await db.get<PlaceRow>(
    `SELECT e.topological_ordering, e.stream_ordering FROM event_backward_extremities b
     JOIN event_edges g ON g.prev_event_id = b.event_id JOIN events e ON e.event_id = g.event_id
     WHERE b.room_id = ? AND (e.topological_ordering, e.stream_ordering) <= (?, ?) AND e.topological_ordering >= ?
     ORDER BY e.topological_ordering DESC, e.stream_ordering DESC LIMIT 1`,
    [roomId, from.topological, from.stream, least],
  );
  return row && placeOf(row);
}

/** Ids of servable events of a room with `after < stream ordering <= upTo`, oldest first. */
export async function selectArrivals(
  db: Db,
  roomId: string,
  after: number,
  upTo: number,
  limit: number,
): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT e.event_id FROM events e
     WHERE e.room_id = ? AND e.stream_ordering > ? AND e.stream_ordering <= ? AND ${servableSql('e.')}
     ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
    [roomId, after, upTo],
  );
  return rows.map((row) => row.event_id);
}

/**
 * Events that clients may ever see with `after < stream ordering <= upTo`, oldest first: servable ones, and what users of this
 * server were told of rooms that it is not in, which is invites, and what ends them.
 */
export function selectNews(
  db: Db,
  after: number,
  upTo: number,
  limit: number,
): Promise<{ readonly event_id: string; readonly stream_ordering: number }[]> {
  return db.query(
    `SELECT e.event_id, e.stream_ordering FROM events e
     WHERE e.stream_ordering > ? AND e.stream_ordering <= ? AND e.soft_failed = FALSE AND e.rejection_reason IS NULL
       AND (e.outlier = FALSE OR (e.type = 'm.room.member' AND EXISTS (SELECT 1 FROM local_current_membership l
         WHERE l.user_id = e.state_key AND l.room_id = e.room_id AND l.event_id = e.event_id)))
     ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
    [after, upTo],
  );
}

/** The last place of a room in the order of arrival, up to a position. */
export async function selectLastPlace(db: Db, roomId: string, upTo?: number): Promise<PlaceInRoom | undefined> {
  const row = await db.get<PlaceRow>(
    `SELECT topological_ordering, stream_ordering FROM events
     WHERE room_id = ? AND outlier = FALSE ${upTo === undefined ? '' : 'AND stream_ordering <= ?'}
     ORDER BY stream_ordering DESC LIMIT 1`,
    upTo === undefined ? [roomId] : [roomId, upTo],
  );
  return row && placeOf(row);
}

/** The first place of a room in the order of arrival behind a position. */
export async function selectNextPlace(db: Db, roomId: string, after: number): Promise<PlaceInRoom | undefined> {
  const row = await db.get<PlaceRow>(
    `SELECT topological_ordering, stream_ordering FROM events
     WHERE room_id = ? AND outlier = FALSE AND stream_ordering > ? ORDER BY stream_ordering LIMIT 1`,
    [roomId, after],
  );
  return row && placeOf(row);
}

/** The deepest place of a room. */
export async function selectDeepest(db: Db, roomId: string): Promise<PlaceInRoom | undefined> {
  const row = await db.get<PlaceRow>(
    `SELECT topological_ordering, stream_ordering FROM events WHERE room_id = ? AND outlier = FALSE
     ORDER BY topological_ordering DESC, stream_ordering DESC LIMIT 1`,
    [roomId],
  );
  return row && placeOf(row);
}

/**
 * The deepest of the events that arrived up to a position (`b`), or the least deep of those that arrived behind it (`f`). Costs
 * what those cost that lie between it and the nearest arrivals: other branches of the room, not its whole history.
 */
export async function selectOutermost(
  db: Db,
  roomId: string,
  stream: number,
  direction: 'f' | 'b',
): Promise<PlaceInRoom | undefined> {
  const [outwards, inwards, further, side] =
    direction === 'b' ? ['DESC', 'ASC', '>', 'stream_ordering <= ?'] : ['ASC', 'DESC', '<', 'stream_ordering > ?'];
  const columns = 'topological_ordering, stream_ordering';
  const first = `ORDER BY topological_ordering ${outwards}, stream_ordering ${outwards} LIMIT 1`;
  let found = await db.get<PlaceRow>(
    `SELECT ${columns} FROM (SELECT ${columns} FROM events WHERE room_id = ? AND outlier = FALSE AND ${side}
       ORDER BY stream_ordering ${outwards} LIMIT ${nearest}) AS arrivals ${first}`,
    [roomId, stream],
  );
  for (let round = 0; found && round < maxRounds; round++) {
    const next: PlaceRow | undefined = await db.get<PlaceRow>(
      `SELECT ${columns} FROM (SELECT ${columns} FROM events
         WHERE room_id = ? AND outlier = FALSE AND (${columns}) ${further} (?, ?)
         ORDER BY topological_ordering ${inwards}, stream_ordering ${inwards} LIMIT ${beyond}) AS others
       WHERE ${side} ${first}`,
      [roomId, found.topological_ordering, found.stream_ordering, stream],
    );
    if (!next) break;
    found = next;
  }
  return found && placeOf(found);
}

/** The last servable event of a room in the order of arrival, up to a position. */
export async function selectLastEventId(db: Db, roomId: string, upTo: number): Promise<string | undefined> {
  const row = await db.get<{ event_id: string }>(
    `SELECT e.event_id FROM events e WHERE e.room_id = ? AND e.stream_ordering <= ? AND ${servableSql('e.')}
     ORDER BY e.stream_ordering DESC LIMIT 1`,
    [roomId, upTo],
  );
  return row?.event_id;
}

/** The first servable event of a room in the order of arrival. */
export async function selectFirstEventId(db: Db, roomId: string): Promise<string | undefined> {
  const row = await db.get<{ event_id: string }>(
    `SELECT e.event_id FROM events e WHERE e.room_id = ? AND ${servableSql('e.')} ORDER BY e.stream_ordering LIMIT 1`,
    [roomId],
  );
  return row?.event_id;
}
