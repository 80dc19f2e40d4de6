import type { Db, Dialect, SqlValue, Tx } from '@rookery/database';
import { withdrawPushNotes } from '@rookery/rooms';
import { type EventPush, usualActions } from './event-push.js';

/** Stores how members are notified who are notified in a way of their own, in at most one statement. */
export async function insertOwnPushes(tx: Tx, pushes: readonly EventPush[]): Promise<void> {
  const own = pushes.flatMap((push) =>
    [...push.own].map(([userId, outcome]) => [
      userId,
      push.roomId,
      push.eventId,
      push.streamOrdering,
      push.threadId,
      outcome.highlight ? 1 : 0,
      outcome.json,
    ]),
  );
  if (own.length === 0) return;
  await tx.insertMany(
    'event_push_actions',
    ['user_id', 'room_id', 'event_id', 'stream_ordering', 'thread_id', 'highlight', 'actions'],
    own,
  );
}

/** Which of these invites to a room are their target's membership now. */
export async function currentInvites(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<Set<string>> {
  if (eventIds.length === 0) return new Set();
  const rows = await tx.query<{ event_id: string }>(
    `SELECT event_id FROM local_current_membership
     WHERE room_id = ? AND membership = 'invite' AND ${tx.dialect.anyOf('event_id')}`,
    [roomId, eventIds],
  );
  return new Set(rows.map((row) => row.event_id));
}

/** Which of some events of a room, each about one of these users, somebody has been told of in a way of their own. */
export async function selectTold(
  tx: Tx,
  roomId: string,
  userIds: readonly string[],
  eventIds: readonly string[],
): Promise<Set<string>> {
  if (eventIds.length === 0) return new Set();
  const { anyOf } = tx.dialect;
  const rows = await tx.query<{ event_id: string }>(
    `SELECT event_id FROM event_push_actions WHERE ${anyOf('user_id')} AND room_id = ? AND ${anyOf('event_id')}`,
    [userIds, roomId, eventIds],
  );
  return new Set(rows.map((row) => row.event_id));
}

/** Takes back what events meant: they were redacted, or are out of sight. */
export async function withdrawPushes(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await withdrawPushNotes(tx, eventIds);
  await deleteOwnPushes(tx, eventIds);
}

/** Up to where some events have notified anybody, by thread; empty where they have not. */
export async function selectReach(db: Db, eventIds: readonly string[]): Promise<Map<string, number>> {
  const rows = await db.query<{ thread_id: string; position: number }>(
    `SELECT thread_id, MAX(position) AS position FROM (
       SELECT push_thread AS thread_id, stream_ordering AS position FROM events
       WHERE ${db.dialect.anyOf('event_id')} AND push_thread IS NOT NULL
       UNION ALL
       SELECT a.thread_id, a.stream_ordering AS position FROM events e
       CROSS JOIN event_push_actions a WHERE a.stream_ordering = e.stream_ordering AND ${db.dialect.anyOf('e.event_id')}
     ) AS told GROUP BY thread_id`,
    [eventIds, eventIds],
  );
  return new Map(rows.map((row) => [row.thread_id, row.position]));
}

/** Deletes what lies beside the rows of events, before these go: they say where it is. */
export async function deleteOwnPushes(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await tx.exec(
    `DELETE FROM event_push_actions WHERE stream_ordering IN (
       SELECT stream_ordering FROM events WHERE ${tx.dialect.anyOf('event_id')})`,
    [eventIds],
  );
}

/** Forgets everything about a room; while it is known who was in it. */
export async function deleteRoomPushes(tx: Tx, roomId: string): Promise<void> {
  for (const table of ['event_push_actions', 'push_read_marks']) {
    await tx.exec(
      `DELETE FROM ${table} WHERE room_id = ? AND user_id IN (
         SELECT user_id FROM local_current_membership WHERE room_id = ?)`,
      [roomId, roomId],
    );
  }
}

/** Users begin to count from their join; who was in the room already goes on. */
export async function insertMarks(
  tx: Tx,
  roomId: string,
  joins: readonly (readonly [userId: string, position: number])[],
): Promise<void> {
  await tx.insertMany(
    'push_read_marks',
    ['user_id', 'room_id', 'thread_id', 'joined_at', 'read_up_to'],
    joins.map(([userId, position]) => [userId, roomId, '', position, position]),
    'ON CONFLICT (user_id, room_id, thread_id) DO NOTHING',
  );
}

/** Users who have left count no more. */
export async function deleteMarks(tx: Tx, roomId: string, userIds: readonly string[]): Promise<void> {
  await tx.exec(`DELETE FROM push_read_marks WHERE room_id = ? AND ${tx.dialect.anyOf('user_id')}`, [roomId, userIds]);
}

/** A member has read a room, or one of its threads, up to a position. No effect for users who are not in the room. */
export async function raiseMark(
  tx: Tx,
  userId: string,
  roomId: string,
  threadId: string | undefined,
  position: number,
): Promise<void> {
  if (threadId === undefined) {
    await tx.exec(
      `UPDATE push_read_marks SET read_up_to = ? WHERE user_id = ? AND room_id = ? AND thread_id = '' AND read_up_to < ?`,
      [position, userId, roomId, position],
    );
    // Threads that were read no further have nothing to add any more.
    await tx.exec(
      `DELETE FROM push_read_marks WHERE user_id = ? AND room_id = ? AND thread_id <> '' AND read_up_to <= ?`,
      [userId, roomId, position],
    );
    return;
  }
  await tx.exec(
    `INSERT INTO push_read_marks (user_id, room_id, thread_id, joined_at, read_up_to)
     SELECT user_id, room_id, CAST(? AS TEXT), joined_at, CAST(? AS BIGINT) FROM push_read_marks
     WHERE user_id = ? AND room_id = ? AND thread_id = '' AND read_up_to < ?
     ON CONFLICT (user_id, room_id, thread_id) DO UPDATE SET read_up_to = excluded.read_up_to
     WHERE push_read_marks.read_up_to < excluded.read_up_to`,
    [threadId, position, userId, roomId, position],
  );
}

/** Up to where a user has read a thread of a room, or what is in none: `main`. */
export interface ThreadMark {
  readonly userId: string;
  readonly roomId: string;
  readonly threadId: string;
  readonly streamOrdering: number;
}

/** Raises many marks in one statement, no two of which are of the same thread and user. No effect for users who are not in the room. */
export async function raiseThreadMarks(tx: Tx, marks: readonly ThreadMark[]): Promise<void> {
  const isSqlite = tx.dialect.name === 'sqlite';
  const given = isSqlite
    ? `(SELECT json_extract(value, '$.u') AS u, json_extract(value, '$.r') AS r, json_extract(value, '$.t') AS t,
         json_extract(value, '$.p') AS p FROM json_each(?)) AS w CROSS JOIN`
    : 'json_to_recordset(?::json) AS w(u text, r text, t text, p bigint) JOIN';
  // In the same order each time, so that two transactions do not wait for each other.
  const list = marks
    .map(({ userId, roomId, threadId, streamOrdering }) => ({ u: userId, r: roomId, t: threadId, p: streamOrdering }))
    .sort((one, other) => (`${one.u}${one.r}${one.t}` < `${other.u}${other.r}${other.t}` ? -1 : 1));
  await tx.exec(
    `INSERT INTO push_read_marks (user_id, room_id, thread_id, joined_at, read_up_to)
     SELECT m.user_id, m.room_id, w.t, m.joined_at, w.p
     FROM ${given} push_read_marks m ON m.user_id = w.u AND m.room_id = w.r AND m.thread_id = ''
     WHERE m.read_up_to < w.p
     ON CONFLICT (user_id, room_id, thread_id) DO UPDATE SET read_up_to = excluded.read_up_to
     WHERE push_read_marks.read_up_to < excluded.read_up_to`,
    [JSON.stringify(list)],
  );
}

/** Unread notifications of a user in one thread of one room. */
export interface CountRow {
  readonly room_id: string;
  readonly thread_id: string;
  readonly notify: number;
  readonly highlight: number;
}

/** That a text has a part; both are expressions. */
export const contains = (dialect: Dialect, text: string, part: string): string =>
  `${dialect.name === 'sqlite' ? 'instr' : 'strpos'}(${text}, ${part}) > 0`;

/** That what an event means to everybody is meant for the user of a mark `m`, whose parameters are {@link sharedParams}. */
const sharedWith = (dialect: Dialect, alias: string): string =>
  `${alias}.push_thread IS NOT NULL AND ${alias}.sender <> ?
     AND (${alias}.push_except IS NULL OR (NOT (${contains(dialect, `${alias}.push_except`, '?')})
       AND NOT EXISTS (SELECT 1 FROM push_rule_groups g WHERE g.user_id = m.user_id AND g.room_id = m.room_id
         AND g.since <= ${alias}.stream_ordering AND (g.until IS NULL OR g.until > ${alias}.stream_ordering)
         AND ${contains(dialect, `${alias}.push_except`, `'"' || g.rules || '"'`)})))`;
const sharedParams = (userId: string): string[] => [userId, JSON.stringify(userId)];

/** That an event was not read in its thread either. */
const unreadThread = (alias: string, thread: string): string =>
  `NOT EXISTS (SELECT 1 FROM push_read_marks t WHERE t.user_id = m.user_id AND t.room_id = m.room_id
     AND t.thread_id = ${alias}.${thread} AND t.read_up_to >= ${alias}.stream_ordering)`;

/** Rows of a table that lie in the room of a mark `m`, between two positions. */
interface Stretch {
  readonly table: 'events' | 'event_push_actions';
  /** An expression about `m`. */
  readonly after: string;
  readonly afterParams?: readonly SqlValue[];
  readonly before: number;
  /** What else is asked of them, beginning with `AND`. */
  readonly also?: (alias: string) => string;
  readonly alsoParams?: readonly SqlValue[];
  /** Which of them come, where there are more than the limit. */
  readonly first: 'newest' | 'oldest';
  readonly limit: number;
  /** That the positions see to the limit. */
  readonly isBounded?: boolean;
}

/**
 * The part of a FROM clause that joins a stretch of rows, called `e`, to each mark. Only what lies in the stretch is looked at:
 * neither database finds that out by itself, for it cannot know how few rows lie behind a mark. PostgreSQL is told by a
 * lateral join, SQLite by a cross join, whose sides it takes as they are written, and by where the last row lies.
 */
function stretchOf(dialect: Dialect, stretch: Stretch): { readonly sql: string; readonly params: SqlValue[] } {
  const { table, after, before, first } = stretch;
  const limit = Math.trunc(stretch.limit);
  const { also = () => '', alsoParams = [], afterParams = [] } = stretch;
  const order = first === 'newest' ? 'DESC' : 'ASC';
  const keyed = (alias: string): string =>
    `${table === 'events' ? '' : `${alias}.user_id = m.user_id AND `}${alias}.room_id = m.room_id`;
  const within = `FROM ${table} x WHERE ${keyed('x')} AND x.stream_ordering > ${after} AND x.stream_ordering < ?
    ${also('x')} ORDER BY x.stream_ordering ${order}`;
  const params = [...afterParams, before, ...alsoParams];
  if (dialect.name === 'postgres')
    return { sql: `CROSS JOIN LATERAL (SELECT x.* ${within} LIMIT ${limit}) AS e`, params };
  if (stretch.isBounded) {
    return {
      sql: `CROSS JOIN ${table} e ON ${keyed('e')} AND e.stream_ordering > ${after} AND e.stream_ordering < ? ${also('e')}`,
      params,
    };
  }
  const rest = `(SELECT x.stream_ordering ${within} LIMIT 1 OFFSET ${limit})`;
  return first === 'newest'
    ? {
        sql: `CROSS JOIN ${table} e ON ${keyed('e')} AND e.stream_ordering > COALESCE(${rest}, ${after})
          AND e.stream_ordering < ? ${also('e')}`,
        params: [...params, ...afterParams, before, ...alsoParams],
      }
    : {
        sql: `CROSS JOIN ${table} e ON ${keyed('e')} AND e.stream_ordering > ${after}
          AND e.stream_ordering < COALESCE(${rest}, ?) ${also('e')}`,
        params: [...afterParams, ...params, before, ...alsoParams],
      };
}

/** What lies behind a mark and behind a position, which is given twice. */
const afterBoth = (mark: string): string => `CASE WHEN ${mark} > ? THEN ${mark} ELSE ? END`;

/** The rooms in which something can be unread for a user. */
export async function selectCountedRooms(db: Db, userId: string): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM push_read_marks WHERE user_id = ? AND thread_id = ''`,
    [userId],
  );
  return rows.map((row) => row.room_id);
}

/** A part of what users have not read of rooms. */
export interface CountedPart {
  readonly rows: CountRow[];
  /** Where to go on in rooms of which there is more: everything before this position is left. */
  readonly rest: Map<string, number>;
}

/**
 * Unread notifications by room and thread among the newest events of each room before a position.
 * @param limit of so many events of each room
 */
export async function selectCounts(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  { before, limit }: { readonly before: number; readonly limit: number },
): Promise<CountedPart> {
  // Nobody is notified of what is not among the events.
  const unread = { after: 'COALESCE(m.rest, m.read_up_to)', before, first: 'newest', limit, isBounded: true } as const;
  const shared = stretchOf(db.dialect, { table: 'events', ...unread });
  const own = stretchOf(db.dialect, { table: 'event_push_actions', ...unread });
  const rows = await db.query<Omit<CountRow, 'thread_id'> & { readonly thread_id: string | null }>(
    `WITH m AS MATERIALIZED (
       SELECT r.user_id, r.room_id, r.read_up_to, (SELECT x.stream_ordering FROM events x
           WHERE x.room_id = r.room_id AND x.stream_ordering > r.read_up_to AND x.stream_ordering < ?
           ORDER BY x.stream_ordering DESC LIMIT 1 OFFSET ${Math.trunc(limit)}) AS rest
       FROM push_read_marks r WHERE r.user_id = ? AND ${db.dialect.anyOf('r.room_id')} AND r.thread_id = '')
     SELECT room_id, thread_id, CAST(SUM(notify) AS BIGINT) AS notify, CAST(SUM(highlight) AS BIGINT) AS highlight FROM (
       SELECT e.room_id, e.push_thread AS thread_id, COUNT(*) AS notify, SUM(e.push_highlight) AS highlight
       FROM m ${shared.sql}
       WHERE ${sharedWith(db.dialect, 'e')} AND ${unreadThread('e', 'push_thread')}
       GROUP BY e.room_id, e.push_thread
       UNION ALL
       SELECT e.room_id, e.thread_id, COUNT(*) AS notify, SUM(e.highlight) AS highlight
       FROM m ${own.sql}
       WHERE ${unreadThread('e', 'thread_id')}
       GROUP BY e.room_id, e.thread_id) AS counted
     GROUP BY room_id, thread_id
     UNION ALL SELECT room_id, NULL, rest, 0 FROM m WHERE rest IS NOT NULL`,
    [before, userId, roomIds, ...shared.params, ...sharedParams(userId), ...own.params],
  );
  return {
    rows: rows.filter((row): row is CountRow => row.thread_id !== null),
    rest: new Map(rows.flatMap((row) => (row.thread_id === null ? [[row.room_id, row.notify + 1] as const] : []))),
  };
}

/** What an event means to members of its room, as far as it counts; a row for each who is notified in a way of their own. */
export interface StoredPushRow {
  readonly room_id: string;
  readonly stream_ordering: number;
  readonly sender: string;
  /** Absent where nobody is notified by default. */
  readonly push_thread: string | null;
  readonly push_highlight: number | null;
  readonly push_except: string | null;
  readonly user_id: string | null;
  readonly thread_id: string | null;
  readonly highlight: number | null;
}

/** The first events of rooms with `after < position <= upTo`, in order, with what they mean. */
export async function selectStoredPushes(
  db: Db,
  roomIds: readonly string[],
  { after, upTo, limit }: { readonly after: number; readonly upTo: number; readonly limit: number },
): Promise<StoredPushRow[]> {
  return db.query<StoredPushRow>(
    `SELECT e.room_id, e.stream_ordering, e.sender, e.push_thread, e.push_highlight, e.push_except,
       a.user_id, a.thread_id, a.highlight
     FROM events e LEFT JOIN event_push_actions a ON a.stream_ordering = e.stream_ordering
     WHERE ${db.dialect.anyOf('e.room_id')} AND e.stream_ordering > ? AND e.stream_ordering <= ?
     ORDER BY e.stream_ordering LIMIT ?`,
    [roomIds, after, upTo, limit],
  );
}

/** A notification of one user. */
export interface NotificationRow {
  readonly room_id: string;
  readonly event_id: string;
  readonly stream_ordering: number;
  readonly thread_id: string;
  readonly highlight: number;
  readonly actions: string;
}

const ownColumns = 'a.room_id, a.event_id, a.stream_ordering, a.thread_id, a.highlight, a.actions';
const sharedColumns = `e.room_id, e.event_id, e.stream_ordering, e.push_thread AS thread_id,
  e.push_highlight AS highlight, COALESCE(e.push_actions, '${usualActions}') AS actions`;

/** A user's notifications with `after < position < before`, newest first, read or not. */
export async function selectNotifications(
  db: Db,
  userId: string,
  options: {
    readonly after: number;
    readonly before: number;
    readonly limit: number;
    readonly onlyHighlights: boolean;
  },
): Promise<NotificationRow[]> {
  const limit = Math.trunc(options.limit);
  const { after, before, onlyHighlights } = options;
  const shared = stretchOf(db.dialect, {
    table: 'events',
    after: afterBoth('m.joined_at'),
    afterParams: [after, after],
    before,
    also: (alias) => `AND ${sharedWith(db.dialect, alias)} ${onlyHighlights ? `AND ${alias}.push_highlight = 1` : ''}`,
    alsoParams: sharedParams(userId),
    first: 'newest',
    limit,
  });
  return db.query<NotificationRow>(
    `SELECT * FROM (SELECT ${ownColumns} FROM event_push_actions a
       WHERE a.user_id = ? AND a.stream_ordering > ? AND a.stream_ordering < ? ${onlyHighlights ? 'AND a.highlight = 1' : ''}
       ORDER BY a.stream_ordering DESC LIMIT ${limit}) AS own
     UNION ALL
     SELECT * FROM (SELECT ${sharedColumns} FROM push_read_marks m ${shared.sql}
       WHERE m.user_id = ? AND m.thread_id = '' ORDER BY e.stream_ordering DESC LIMIT ${limit}) AS shared
     ORDER BY stream_ordering DESC LIMIT ${limit}`,
    [userId, after, before, ...shared.params, userId],
  );
}

/** From where on a user's rooms can have notified, and the newest position of all. */
export async function selectNotifiedRange(db: Db, userId: string): Promise<{ oldest: number; newest: number }> {
  const row = await db.get<{ oldest: number | null; newest: number | null }>(
    `SELECT (SELECT MIN(joined_at) FROM push_read_marks WHERE user_id = ?) AS oldest,
       (SELECT MAX(stream_ordering) FROM events) AS newest`,
    [userId],
  );
  const newest = row?.newest ?? 0;
  return { oldest: row?.oldest ?? newest, newest };
}

/** How many events a user's rooms have with `after < position < before`; one more than the limit where they are more. */
export async function countRoomEvents(
  db: Db,
  userId: string,
  range: { readonly after: number; readonly before: number; readonly limit: number },
): Promise<number> {
  const { after, before } = range;
  const limit = Math.trunc(range.limit) + 1;
  const inRange = `x.room_id = m.room_id AND x.stream_ordering > ${afterBoth('m.joined_at')} AND x.stream_ordering < ?`;
  const joined =
    db.dialect.name === 'postgres'
      ? `CROSS JOIN LATERAL (SELECT 1 FROM events x WHERE ${inRange} LIMIT ${limit}) AS e`
      : `CROSS JOIN events x ON ${inRange}`;
  const row = await db.get<{ found: number }>(
    `SELECT COUNT(*) AS found FROM (SELECT 1 AS one FROM push_read_marks m ${joined}
       WHERE m.user_id = ? AND m.thread_id = '' LIMIT ${limit}) AS looked`,
    [after, after, before, userId],
  );
  return row?.found ?? 0;
}

/**
 * What a user has not read and not been pushed, with `after < position <= upTo`, oldest first. Invites are among it while they
 * stand; what was said in rooms that the user has left is not.
 */
export async function selectUnread(
  db: Db,
  userId: string,
  range: { readonly after: number; readonly upTo: number; readonly limit: number },
): Promise<NotificationRow[]> {
  const limit = Math.trunc(range.limit);
  const { after, upTo } = range;
  const shared = stretchOf(db.dialect, {
    table: 'events',
    after: afterBoth('m.read_up_to'),
    afterParams: [after, after],
    before: upTo + 1,
    also: (alias) => `AND ${sharedWith(db.dialect, alias)} AND ${unreadThread(alias, 'push_thread')}`,
    alsoParams: sharedParams(userId),
    first: 'oldest',
    limit,
  });
  return db.query<NotificationRow>(
    `SELECT * FROM (SELECT ${ownColumns} FROM event_push_actions a
       LEFT JOIN push_read_marks m ON m.user_id = a.user_id AND m.room_id = a.room_id AND m.thread_id = ''
       WHERE a.user_id = ? AND a.stream_ordering > ? AND a.stream_ordering <= ?
         AND ((m.user_id IS NULL AND EXISTS (SELECT 1 FROM local_current_membership i
             WHERE i.user_id = a.user_id AND i.room_id = a.room_id AND i.membership = 'invite'))
           OR (a.stream_ordering > m.read_up_to AND ${unreadThread('a', 'thread_id')}))
       ORDER BY a.stream_ordering LIMIT ${limit}) AS own
     UNION ALL
     SELECT * FROM (SELECT ${sharedColumns} FROM push_read_marks m ${shared.sql}
       WHERE m.user_id = ? AND m.thread_id = '' ORDER BY e.stream_ordering LIMIT ${limit}) AS shared
     ORDER BY stream_ordering LIMIT ${limit}`,
    [userId, after, upTo, ...shared.params, userId],
  );
}

/** How far users have read threads of a room, by user and thread; the empty thread is the room as a whole. */
export async function selectMarksIn(
  db: Db,
  roomId: string,
  userIds: readonly string[],
  threadIds: readonly string[],
): Promise<Map<string, Map<string, number>>> {
  const { anyOf } = db.dialect;
  const rows = await db.query<{ user_id: string; thread_id: string; read_up_to: number }>(
    `SELECT user_id, thread_id, read_up_to FROM push_read_marks
     WHERE ${anyOf('user_id')} AND room_id = ? AND ${anyOf('thread_id')}`,
    [userIds, roomId, threadIds],
  );
  return marksBy(rows.map((row) => [row.user_id, row.thread_id, row.read_up_to]));
}

/** How far a user has read, by room and thread; the empty thread is the room as a whole. */
export async function selectMarks(
  db: Db,
  userId: string,
  roomIds: readonly string[],
): Promise<Map<string, Map<string, number>>> {
  const rows = await db.query<{ room_id: string; thread_id: string; read_up_to: number }>(
    `SELECT room_id, thread_id, read_up_to FROM push_read_marks WHERE user_id = ? AND ${db.dialect.anyOf('room_id')}`,
    [userId, roomIds],
  );
  return marksBy(rows.map((row) => [row.room_id, row.thread_id, row.read_up_to]));
}

function marksBy(
  rows: readonly (readonly [key: string, threadId: string, readUpTo: number])[],
): Map<string, Map<string, number>> {
  const marks = new Map<string, Map<string, number>>();
  for (const [key, threadId, readUpTo] of rows) {
    const known = marks.get(key);
    if (known) known.set(threadId, readUpTo);
    else marks.set(key, new Map([[threadId, readUpTo]]));
  }
  return marks;
}
