import { type DataStores, type Db, likeText, type SqlBool, type Tx } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { deleteSomeRows } from '../store/partial-rooms.query.js';
import { type LeafGroup, selectLeafGroups, selectNamedState, selectSizes } from '../store/state-database.query.js';
import { deleteEventJson } from '../pipeline/write-events.query.js';
import { leaveThreads, shortenThreads } from '../pipeline/write-references.query.js';

/** Tables that hold one row or more per event, by the column that names it. */
const eventTables: readonly (readonly [table: string, column: string])[] = [
  ['event_edges', 'event_id'],
  ['event_auth', 'event_id'],
  ['event_auth_chains', 'event_id'],
  ['event_to_state_groups', 'event_id'],
  ['event_relations', 'event_id'],
  ['event_reports', 'event_id'],
  ['partial_state_events', 'event_id'],
  ['redactions', 'event_id'],
  ['rejections', 'event_id'],
  ['state_events', 'event_id'],
  ['room_memberships', 'event_id'],
  ['events', 'event_id'],
];

/** Tables that hold rows per room and none per event; the row of `rooms` goes last. */
const roomTables: readonly string[] = [
  'event_forward_extremities',
  'event_backward_extremities',
  'event_failed_pull_attempts',
  'partial_state_rooms',
  'partial_state_rooms_servers',
  'partial_state_events',
  'un_partial_stated_room_stream',
  'timeline_gaps',
  'current_state_events',
  'current_state_delta_stream',
  'local_current_membership',
  'threads',
  'thread_repliers',
  'room_depth',
  'forgotten_rooms',
  'room_aliases',
  'room_retention',
  'room_stats_state',
  'room_stats_current',
  'appservice_room_list',
  'room_reports',
  'room_removal_redactions',
  'rooms',
];

/** Events before this place in the room's own order; without `topological`, in the order in which they were stored. */
export interface PurgeBefore {
  readonly topological?: number | undefined;
  readonly stream: number;
}

/** What part of a room's history goes. */
export interface PurgePoint {
  readonly roomId: string;
  readonly before: PurgeBefore;
  /** Also those of this server's users; otherwise these leave the timeline and stay in the database. */
  readonly includeLocal: boolean;
  readonly serverName: string;
}

/** What may be purged of a part of a room. */
export interface Purgeable {
  /** Ids of those that are to be deleted. */
  readonly deleted: readonly string[];
  /** Ids of those that are only to leave the timeline. */
  readonly setAside: readonly string[];
  /** The last event that was looked at: the next part begins behind it. */
  readonly last: PurgeBefore;
}

/**
 * What may be purged of the next `limit` events of a room: no state, no forward extremities, nothing that was set aside before, and no
 * redaction of what stays, as long as it is not final: else that would be read again. What stays may be most of what there is: each event
 * is looked at once.
 * @param behind where the part before ended
 * @returns `undefined` where there are no more events before the point
 */
export async function selectPurgeable(
  db: Db,
  { roomId, before, includeLocal, serverName }: PurgePoint,
  behind: PurgeBefore | undefined,
  limit: number,
): Promise<Purgeable | undefined> {
  const isByArrival = before.topological === undefined;
  const orderOf = (alias: string): string =>
    isByArrival ? `${alias}.stream_ordering` : `${alias}.topological_ordering, ${alias}.stream_ordering`;
  const order = orderOf('e');
  const place = isByArrival ? '(?)' : '(?, ?)';
  const valuesOf = ({ topological, stream }: PurgeBefore): number[] =>
    isByArrival ? [stream] : [topological ?? Number.MIN_SAFE_INTEGER, stream];
  const isOwn = (alias: string): string => `${alias}.sender LIKE ? ESCAPE '\\'`;
  const own = includeLocal ? [] : [`%:${likeText(serverName)}`];
  const rows = await db.query<{
    event_id: string;
    sender: string;
    topological_ordering: number;
    stream_ordering: number;
    is_due: SqlBool;
    is_needed: SqlBool;
  }>(
    `SELECT e.event_id, e.sender, e.topological_ordering, e.stream_ordering,
       (e.state_key IS NULL ${includeLocal ? '' : `AND NOT (e.outlier = TRUE AND ${isOwn('e')})`} AND NOT EXISTS (
         SELECT 1 FROM event_forward_extremities f WHERE f.room_id = e.room_id AND f.event_id = e.event_id)) AS is_due,
       EXISTS (
         SELECT 1 FROM redactions d JOIN events t ON t.event_id = d.redacts
         WHERE d.event_id = e.event_id AND d.have_censored = FALSE AND t.room_id = e.room_id
           AND (t.state_key IS NOT NULL OR (${orderOf('t')}) >= ${place} ${includeLocal ? '' : `OR ${isOwn('t')}`})) AS is_needed
     FROM events e WHERE e.room_id = ? AND (${order}) < ${place} ${behind ? `AND (${order}) > ${place}` : ''}
     ORDER BY ${order} LIMIT ${Math.trunc(limit)}`,
    [...[...own, ...valuesOf(before), ...own], ...[roomId, ...valuesOf(before), ...(behind ? valuesOf(behind) : [])]],
  );
  const last = rows.at(-1);
  if (last === undefined) return undefined;
  const isKept = ({ sender }: { readonly sender: string }): boolean => !includeLocal && domainOf(sender) === serverName;
  const due = rows.filter((row) => row.is_due);
  return {
    deleted: due.filter((row) => !isKept(row) && !row.is_needed).map((row) => row.event_id),
    setAside: due.filter(isKept).map((row) => row.event_id),
    last: { topological: last.topological_ordering, stream: last.stream_ordering },
  };
}

/**
 * The place behind the newest event that was stored at or before a time. Depths do not count: whoever claims a great one must
 * not have messages purged that are younger.
 */
export async function selectPurgePlace(db: Db, roomId: string, ts: number): Promise<PurgeBefore | undefined> {
  const row = await db.get<StoredPlace>(
    `${storedPlaces} AND stream_ordering <= ? AND outlier = FALSE ORDER BY stream_ordering DESC LIMIT 1`,
    [roomId, await lastStoredBy(db, roomId, ts)],
  );
  return row && row.received_ts <= ts ? { stream: row.stream_ordering + 1 } : undefined;
}

interface StoredPlace {
  readonly stream_ordering: number;
  readonly received_ts: number;
}

const storedPlaces = 'SELECT stream_ordering, received_ts FROM events WHERE room_id = ?';

/** Events at the end of a room among which it is looked first: most rooms have no more that are younger. */
const nearest = 1_000;

/**
 * The position of the last event of a room that came as news and was stored at or before a time, 0 without any. Where that lies far back,
 * it is found by halving: what is stored later has a higher position, and a room may have a million events that are younger.
 */
async function lastStoredBy(db: Db, roomId: string, ts: number): Promise<number> {
  const near = await db.get<{ found: number | null; lowest: number | null; looked: number }>(
    `SELECT MAX(CASE WHEN received_ts <= ? THEN stream_ordering END) AS found, MIN(stream_ordering) AS lowest, COUNT(*) AS looked
     FROM (${storedPlaces} AND stream_ordering > 0 ORDER BY stream_ordering DESC LIMIT ${nearest}) AS newest`,
    [ts, roomId],
  );
  let found = near?.found ?? 0;
  if (found > 0 || Number(near?.looked ?? 0) < nearest) return found;
  let low = 1;
  let high = near?.lowest ?? 1;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const next = await db.get<StoredPlace>(
      `${storedPlaces} AND stream_ordering >= ? ORDER BY stream_ordering LIMIT 1`,
      [roomId, middle],
    );
    if (next === undefined || next.received_ts > ts) high = middle;
    else {
      found = next.stream_ordering;
      low = found + 1;
    }
  }
  return found;
}

/**
 * Takes events out of the timeline, whoever asks, and leaves them in the database. What they redact stays redacted. Should they come back
 * from another server, they are stored as if they were new.
 */
export async function setAside(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  const threadIds = await leaveThreads(tx, roomId, eventIds);
  await tx.run(`UPDATE events SET outlier = TRUE WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
  await tx.run(`DELETE FROM event_to_state_groups WHERE ${tx.dialect.anyOf('event_id')}`, [eventIds]);
  await shortenThreads(tx, roomId, threadIds);
}

/** Ids of any events of a room; at most `limit`. */
export async function selectSomeEvents(db: Db, roomId: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT event_id FROM events WHERE room_id = ? LIMIT ${Math.trunc(limit)}`,
    [roomId],
  );
  return rows.map((row) => row.event_id);
}

/** Deletes everything that this lib keeps about events of a room. */
export async function deleteEvents(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  const chains = await tx.query<{ chain_id: number }>(
    `SELECT DISTINCT chain_id FROM event_auth_chains WHERE ${tx.dialect.anyOf('event_id')}`,
    [eventIds],
  );
  const threadIds = await leaveThreads(tx, roomId, eventIds);
  await deleteEventJson(tx, eventIds);
  for (const [table, column] of eventTables) {
    await tx.run(`DELETE FROM ${table} WHERE ${tx.dialect.anyOf(column)}`, [eventIds]);
  }
  // They are found by room only.
  await tx.run(`DELETE FROM threads WHERE room_id = ? AND ${tx.dialect.anyOf('thread_id')}`, [roomId, eventIds]);
  // Its rows are found by room: they live for a day, so there are few.
  await tx.run(`DELETE FROM event_txn_id_device_id WHERE room_id = ? AND ${tx.dialect.anyOf('event_id')}`, [
    roomId,
    eventIds,
  ]);
  await shortenThreads(tx, roomId, threadIds);
  if (chains.length === 0) return;
  await tx.run(
    `DELETE FROM event_auth_chain_links WHERE ${tx.dialect.anyOf('origin_chain_id')} AND NOT EXISTS (
       SELECT 1 FROM event_auth_chains c WHERE c.chain_id = event_auth_chain_links.origin_chain_id)`,
    [chains.map((row) => row.chain_id)],
  );
}

/** State groups that are looked at together. */
const groupsAtOnce = 200;

/**
 * Deletes some of the rows of a room's state groups up to a number, and groups of which none are left: one may hold the whole state of a
 * large room.
 * @returns whether any may be left
 */
export async function deleteSomeGroups(tx: Tx, roomId: string, upTo: number, limit: number): Promise<boolean> {
  const found = await tx.query<{ id: number }>(
    // With the number plain PostgreSQL might go through the groups of all rooms.
    `SELECT id FROM state_groups WHERE room_id = ? AND id + 0 <= ? LIMIT ${groupsAtOnce}`,
    [roomId, upTo],
  );
  if (found.length === 0) return false;
  const groups = found.map((row) => row.id);
  if (!(await deleteSomeRows(tx, groups, limit))) await deleteGroups(tx, groups);
  return true;
}

export async function deleteGroups(tx: Tx, groups: readonly number[]): Promise<void> {
  await tx.run(`DELETE FROM state_groups_state WHERE ${tx.dialect.anyOf('state_group')}`, [groups]);
  await tx.run(`DELETE FROM state_group_edges WHERE ${tx.dialect.anyOf('state_group')}`, [groups]);
  await tx.run(`DELETE FROM state_groups WHERE ${tx.dialect.anyOf('id')}`, [groups]);
}

/** On a group `g` neither an event nor another group rests, and nobody is writing it. */
const isUnused = `NOT EXISTS (SELECT 1 FROM event_to_state_groups e WHERE e.state_group = g.id)
  AND NOT EXISTS (SELECT 1 FROM state_group_edges d WHERE d.prev_state_group = g.id)
  AND NOT EXISTS (SELECT 1 FROM partial_state_rooms p WHERE p.room_id = g.room_id AND p.state_group = g.id)`;
/**
 * A group `g` is older than the forward extremities of its room. What was made for these together is younger than each of them, and may
 * be in use though nothing rests on it yet.
 */
const isSuperseded = `g.id < (SELECT MAX(h.state_group) FROM event_forward_extremities f
    JOIN event_to_state_groups h ON h.event_id = f.event_id WHERE f.room_id = g.room_id)
  AND NOT EXISTS (SELECT 1 FROM partial_state_rooms p WHERE p.room_id = g.room_id)`;

/** A state group that may be deleted. */
export interface UnusedGroup {
  readonly group: number;
  /** How many rows it has of its own. */
  readonly rows: number;
}

/** All state groups of a room, the newest first: what rests on others is newer than these. */
export async function selectGroupsOfRoom(db: Db, roomId: string): Promise<number[]> {
  const rows = await db.query<{ id: number }>('SELECT id FROM state_groups WHERE room_id = ?', [roomId]);
  return rows.map((row) => row.id).sort((a, b) => b - a);
}

/**
 * Those of some state groups on which neither an event nor another group rests, and that nobody is writing.
 * @param superseded only those that nobody can be about to build upon
 */
export async function selectUnusedGroups(
  db: Db,
  groups: readonly number[],
  superseded: boolean,
): Promise<UnusedGroup[]> {
  const rows = await db.query<{ id: number; size: number }>(
    `SELECT g.id, (SELECT COUNT(*) FROM state_groups_state s WHERE s.state_group = g.id) AS size FROM state_groups g
     WHERE ${db.dialect.anyOf('g.id')} AND ${isUnused} ${superseded ? `AND ${isSuperseded}` : ''}`,
    [groups],
  );
  return rows.map((row) => ({ group: row.id, rows: Number(row.size) }));
}

/** Where state has a database of its own: what {@link selectUnusedGroups} asks in one statement. */
export interface SplitSearch {
  /** State groups up to this number were written by processes that are gone: nobody is about to name them. */
  readonly writtenBefore: number;
  /** Looks at groups behind this one, up to another, and at no more leaves among them than this. */
  readonly after: number;
  readonly upTo?: number | undefined;
  readonly limit: number;
}

/** What was found in a part of the groups, and where the search goes on; `undefined` at their end. */
export interface FoundUnused {
  readonly unused: readonly (UnusedGroup & { readonly roomId: string })[];
  readonly next: number | undefined;
}

/**
 * State groups upon which nothing rests and that nobody can be about to build upon, in a part of all groups or of those of one
 * room. Two steps: the leaves in the database of state, then what the main one says of them. What nobody names at the second step,
 * nobody ever will, but for the process that asks, which must hold the room (`EventPersister.exclusively`) to delete it.
 */
export async function findUnusedApart(
  { main, state }: DataStores,
  { writtenBefore, after, upTo = Number.MAX_SAFE_INTEGER, limit }: SplitSearch,
  roomId?: string,
): Promise<FoundUnused> {
  const leaves = await selectLeafGroups(state, {
    ...(roomId !== undefined && { roomId }),
    ...{ after, upTo, limit },
  });
  if (leaves.length === 0) return { unused: [], next: undefined };
  const { named, newest, partial } = await selectNamedState(main, leaves);
  const isUnused = ({ id, room_id: room }: LeafGroup): boolean =>
    !named.has(id) && !partial.has(room) && (id <= writtenBefore || id < (newest.get(room) ?? Number.MIN_SAFE_INTEGER));
  const unused = leaves.filter(isUnused);
  const sizes = await selectSizes(state, unused);
  return {
    unused: unused.map(({ id, room_id: room }) => ({ group: id, roomId: room, rows: sizes.get(id) ?? 0 })),
    next: leaves.length < limit ? undefined : leaves.at(-1)!.id,
  };
}

/** The last of the next `limit` state groups behind `after`; `undefined` where there are fewer. */
export async function selectNextGroup(db: Db, after: number, limit: number): Promise<number | undefined> {
  const row = await db.get<{ id: number }>(
    `SELECT id FROM state_groups WHERE id > ? ORDER BY id LIMIT 1 OFFSET ${Math.trunc(limit) - 1}`,
    [after],
  );
  return row?.id;
}

/** The rooms in which superseded groups behind `after`, up to `last`, have so many rows or more. */
export async function selectRoomsWithLeftovers(
  db: Db,
  after: number,
  last: number | undefined,
  minRows: number,
): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT g.room_id FROM state_groups g JOIN state_groups_state s ON s.state_group = g.id
     WHERE g.id > ? AND g.id <= ? AND ${isUnused} AND ${isSuperseded} GROUP BY g.room_id HAVING COUNT(*) >= ?`,
    [after, last ?? Number.MAX_SAFE_INTEGER, minRows],
  );
  return rows.map((row) => row.room_id);
}

/** Users of this server who ever had to do with a room. */
export async function selectUsersOf(db: Db, roomId: string): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>('SELECT user_id FROM local_current_membership WHERE room_id = ?', [
    roomId,
  ]);
  return rows.map((row) => row.user_id);
}

/** Deletes some rows of a room of the tables that hold one for each piece of its state. @returns whether any may be left */
export async function deleteSomeState(tx: Tx, roomId: string, limit: number): Promise<boolean> {
  const entries = await tx.query<{ type: string; state_key: string }>(
    'SELECT type, state_key FROM current_state_events WHERE room_id = ? LIMIT ?',
    [roomId, limit],
  );
  for (const [type, some] of Map.groupBy(entries, (row) => row.type)) {
    await tx.run(
      `DELETE FROM current_state_events WHERE room_id = ? AND type = ? AND ${tx.dialect.anyOf('state_key')}`,
      [...[roomId, type], some.map((row) => row.state_key)],
    );
  }
  const changes = await tx.query<{ stream_id: number; type: string; state_key: string }>(
    'SELECT stream_id, type, state_key FROM current_state_delta_stream WHERE room_id = ? ORDER BY stream_id LIMIT ?',
    [roomId, limit],
  );
  const last = changes.at(-1)?.stream_id;
  if (last !== undefined)
    await tx.run('DELETE FROM current_state_delta_stream WHERE room_id = ? AND stream_id < ?', [roomId, last]);
  // All that a join brought along has one position, which is that of no other room.
  const atLast = changes.filter((row) => row.stream_id === last);
  for (const [type, some] of Map.groupBy(atLast, (row) => row.type)) {
    await tx.run(
      `DELETE FROM current_state_delta_stream WHERE stream_id = ? AND type = ? AND ${tx.dialect.anyOf('state_key')}`,
      [...[last!, type], some.map((row) => row.state_key)],
    );
  }
  return entries.length === limit || changes.length === limit;
}

/** Deletes what is left of a room once its events and state groups are gone. */
export async function deleteRoomRows(tx: Tx, roomId: string): Promise<void> {
  for (const table of roomTables) await tx.run(`DELETE FROM ${table} WHERE room_id = ?`, [roomId]);
}
