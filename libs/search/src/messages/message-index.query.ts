import type { Db, SqlBool, SqlValue, Tx } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { eventFilterSql } from '@rookery/rooms';
import { createHash } from 'node:crypto';
import { matchText } from '../text/full-text.js';
import type { QueryWord } from '../text/words.js';
import type { SearchGroup } from './search-request.js';

type EventFilter = Parameters<typeof eventFilterSql>[0];

/** An event in the index. */
export interface IndexedMessage {
  readonly streamOrdering: number;
  readonly roomId: string;
  readonly words: readonly string[];
}

/** Any number: the lock of PostgreSQL that keeps apart who adds to the index and who takes out of it. */
const advisoryLock = 7_246_504;

/**
 * What one transaction adds another must not have taken out without its knowing: who adds waits for everybody, and then
 * sees what they did; those who take out wait for the former only. SQLite has one transaction at a time.
 */
async function lock(tx: Tx, mode: 'to add' | 'to take out'): Promise<void> {
  if (tx.dialect.name === 'sqlite') return;
  const name = mode === 'to add' ? 'pg_advisory_xact_lock' : 'pg_advisory_xact_lock_shared';
  await tx.query(`SELECT ${name}(?)`, [advisoryLock]);
}

/** Puts events into the index, but those that are redacted or gone by now; those that are in it already may come again. */
export async function indexMessages(tx: Tx, messages: readonly IndexedMessage[]): Promise<void> {
  if (messages.length === 0) return;
  await lock(tx, 'to add');
  const positions = messages.map(({ streamOrdering }) => streamOrdering);
  const standing = await selectStanding(tx, positions);
  const rows = messages.filter(({ streamOrdering }) => standing.has(streamOrdering));
  if (tx.dialect.name === 'postgres') {
    await tx.insertMany(
      'event_search',
      ['stream_ordering', 'vector'],
      rows.map(({ streamOrdering, words, roomId }) => [
        streamOrdering,
        // Words hold letters, digits and marks only: nothing in them needs to be escaped.
        [...[...new Set(words)].map((word) => `'${word}'`), lexemeOf(roomId)].join(' '),
      ]),
      'ON CONFLICT DO NOTHING',
    );
    return;
  }
  await tx.run(`DELETE FROM event_search WHERE ${tx.dialect.anyOf('rowid')}`, [positions]);
  await tx.insertMany(
    'event_search',
    ['rowid', 'words', 'room'],
    rows.map(({ streamOrdering, words, roomId }) => [streamOrdering, words.join(' '), roomWord(roomId)]),
  );
}

/** Takes events out of the index, before they are deleted. */
export async function deleteMessages(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await lock(tx, 'to take out');
  const positions = `SELECT stream_ordering FROM events WHERE ${tx.dialect.anyOf('event_id')}`;
  await tx.run(`DELETE FROM event_search WHERE ${keyOf(tx)} IN (${positions})`, [eventIds]);
}

/** Takes out of the index what these redactions redact. */
export async function deleteRedacted(tx: Tx, redactionIds: readonly string[]): Promise<void> {
  const rows = await tx.query<RedactionRow>(
    `SELECT ${withRedaction} FROM redactions r
     JOIN events e ON e.event_id = r.redacts JOIN events x ON x.event_id = r.event_id
     WHERE ${tx.dialect.anyOf('r.event_id')}`,
    [redactionIds],
  );
  const redacted = rows.filter(isRedacted).map((row) => row.stream_ordering);
  if (redacted.length === 0) return;
  await lock(tx, 'to take out');
  await tx.run(`DELETE FROM event_search WHERE ${tx.dialect.anyOf(keyOf(tx))}`, [redacted]);
}

/** Takes all events of a room out of the index, whether they still exist or not. */
export async function deleteRoomMessages(tx: Tx, roomId: string): Promise<void> {
  await lock(tx, 'to take out');
  const key = keyOf(tx);
  const isPostgres = tx.dialect.name === 'postgres';
  const inRoom = isPostgres ? 'vector @@ CAST(? AS TSQUERY)' : 'event_search MATCH ?';
  // Another room may have the same word.
  await tx.run(
    `DELETE FROM event_search WHERE ${key} IN (SELECT ${key} FROM event_search WHERE ${inRoom})
       AND NOT EXISTS (SELECT 1 FROM events e WHERE e.stream_ordering = event_search.${key} AND e.room_id <> ?)`,
    [isPostgres ? lexemeOf(roomId) : `{room} : "${roomWord(roomId)}"`, roomId],
  );
}

/** What one step of merging writes at most, about: 128 KiB take a few milliseconds. */
const mergedPages = 32;

/**
 * Merges a little of SQLite's index, which leaves out what was taken out of it.
 * @param isFirst begins a merge of all there is, unless it is in one part already and nothing was taken out of that
 * @returns whether there was nothing left to do
 */
export async function mergeIndex(tx: Tx, isFirst: boolean): Promise<boolean> {
  const changes = async (): Promise<number> =>
    (await tx.get<{ total: number }>('SELECT total_changes() AS total'))?.total ?? 0;
  const before = await changes();
  const pages = isFirst ? -mergedPages : mergedPages;
  await tx.run(`INSERT INTO event_search (event_search, rank) VALUES ('merge', ?)`, [pages]);
  // The statement itself counts as one.
  return (await changes()) - before < 2;
}

/** The column of the index that holds the stream ordering. */
const keyOf = (db: Db): string => (db.dialect.name === 'postgres' ? 'stream_ordering' : 'rowid');

/** An event with one of its redactions, if there is one. */
interface RedactionRow {
  readonly stream_ordering: number;
  readonly sender: string;
  readonly recheck: SqlBool | null;
  readonly redactor: string | null;
  /** The redaction lies in another room. */
  readonly elsewhere: SqlBool | null;
}

const withRedaction =
  'e.stream_ordering, e.sender, r.recheck, x.sender AS redactor, x.room_id <> e.room_id AS elsewhere';

/** Those of the positions whose events exist and are not redacted. */
async function selectStanding(db: Db, positions: readonly number[]): Promise<ReadonlySet<number>> {
  const rows = await db.query<RedactionRow>(
    `SELECT ${withRedaction} FROM events e
     LEFT JOIN redactions r ON r.redacts = e.event_id LEFT JOIN events x ON x.event_id = r.event_id
     WHERE ${db.dialect.anyOf('e.stream_ordering')}`,
    [positions],
  );
  const redacted = new Set(rows.filter(isRedacted).map((row) => row.stream_ordering));
  return new Set(rows.map((row) => row.stream_ordering).filter((position) => !redacted.has(position)));
}

/** A redaction without the power to redact counts among users of one server only, and none counts in other rooms. */
const isRedacted = ({ recheck, redactor, elsewhere, sender }: RedactionRow): boolean =>
  recheck !== null && !elsewhere && (!recheck || redactor === null || domainOf(redactor) === domainOf(sender));

/** What to look for, and where. */
export interface MessageQuery {
  readonly words: readonly QueryWord[];
  readonly roomIds: readonly string[];
  /** Types of events. */
  readonly types: readonly string[];
  /** What else the events must be like. */
  readonly filter?: EventFilter;
  /** Only what is of this group. */
  readonly group?: SearchGroup | undefined;
}

/** The same query, whose group is one of its conditions. */
export function withinGroup({ group, ...query }: MessageQuery): MessageQuery {
  if (group === undefined) return query;
  const { key, value } = group;
  if (key === 'room_id') return { ...query, roomIds: query.roomIds.filter((roomId) => roomId === value) };
  const { filter } = query;
  const isWanted = filter?.senders?.includes(value) ?? true;
  return { ...query, filter: { ...filter, senders: isWanted ? [value] : [] } };
}

/** An event that was found. */
export interface FoundRow {
  readonly event_id: string;
  readonly origin_server_ts: number;
  readonly stream_ordering: number;
}

/** The same, ranked. */
export interface RankedRow extends FoundRow {
  /** Higher is closer. */
  readonly rank: number;
  /** Which one it is of all matches, whatever their group; from 1. */
  readonly place: number;
}

/** A room as a word of the index, so that what was said in other rooms need not be looked at. */
const roomWord = (roomId: string): string =>
  createHash('sha256').update(roomId).digest().readBigUInt64BE().toString(36);
/** On PostgreSQL it lies among the words of the text, none of which begins like this. */
const lexemeOf = (roomId: string): string => `'!${roomWord(roomId)}'`;
/** For more rooms it is quicker to look at all that holds the words. */
const maxRoomWords = 20;

/**
 * Only so many of the newest matches are considered: to rank everything that holds a common word would take seconds. Counts
 * go no further either.
 */
export const searchWindow = 10_000;

const columns = 's.event_id, s.origin_server_ts, s.stream_ordering';

/** Every word looked for is there: it is close in a text that has few others. Where the words lie is not stored. */
const postgresRank = '1 / (1 + LN(CAST(GREATEST(LENGTH(i.vector) - 1, 1) AS DOUBLE PRECISION)))';

/** The newest matches of any group, as a table `s`; ranked ones with a rank, which takes its time. */
function matches(
  db: Db,
  query: MessageQuery,
  {
    ranked,
    before,
  }: { readonly ranked?: boolean; readonly before?: { readonly ts: number; readonly stream: number } | undefined } = {},
): { readonly sql: string; readonly params: SqlValue[] } {
  const { anyOf } = db.dialect;
  const isPostgres = db.dialect.name === 'postgres';
  const params: SqlValue[] = [matchOf(db, query), query.roomIds, query.types];
  const where = [
    isPostgres ? 'i.vector @@ CAST(? AS TSQUERY)' : 'event_search MATCH ?',
    anyOf('e.room_id'),
    anyOf('e.type'),
    ...eventFilterSql(query.filter, params, db.dialect),
  ];
  if (before) {
    where.push('(e.origin_server_ts, e.stream_ordering) < (?, ?)');
    params.push(before.ts, before.stream);
  }
  const found = `SELECT e.event_id, e.origin_server_ts, e.stream_ordering, e.received_ts, e.room_id, e.sender, e.state_key`;
  const sql = isPostgres
    ? `(${found}${ranked ? `, ${postgresRank} AS rank` : ''} FROM event_search i
        JOIN events e ON e.stream_ordering = i.stream_ordering WHERE ${where.join(' AND ')}
        ORDER BY i.stream_ordering DESC LIMIT ${searchWindow}) AS s`
    : `(${found}${ranked ? ', -bm25(event_search, 1.0, 0.0) AS rank' : ''} FROM event_search
        CROSS JOIN events e ON e.stream_ordering = event_search.rowid WHERE ${where.join(' AND ')}
        ORDER BY event_search.rowid DESC LIMIT ${searchWindow}) AS s`;
  return { sql, params };
}

/** The words looked for and the rooms, as an expression of the database's own. */
function matchOf(db: Db, { words, roomIds }: MessageQuery): string {
  const text = matchText(db.dialect, words);
  const isNarrow = roomIds.length <= maxRoomWords;
  if (db.dialect.name === 'postgres') return isNarrow ? `${text} & (${roomIds.map(lexemeOf).join(' | ')})` : text;
  const rooms = roomIds.map((roomId) => `"${roomWord(roomId)}"`).join(' OR ');
  return `{words} : (${text})${isNarrow ? ` AND {room} : (${rooms})` : ''}`;
}

/**
 * The closest first, behind a place. All matches are ranked before those of a group are chosen: in every group the places mean the same, and
 * go on where a page without groups has ended.
 */
export async function selectByRank(db: Db, query: MessageQuery, behind: number, limit: number): Promise<RankedRow[]> {
  const { sql, params } = matches(db, query, { ranked: true });
  const { group } = query;
  return db.query<RankedRow>(
    `SELECT ${columns}, s.rank, s.place FROM (
       SELECT s.*, ROW_NUMBER() OVER (ORDER BY s.rank DESC, s.origin_server_ts DESC, s.stream_ordering DESC) AS place
       FROM ${sql}) AS s
     WHERE s.place > ?${group === undefined ? '' : ` AND s.${group.key} = ?`} ORDER BY s.place LIMIT ${Math.trunc(limit)}`,
    [...params, behind, ...(group === undefined ? [] : [group.value])],
  );
}

/** The newest first, older than a place. */
export async function selectByTime(
  db: Db,
  query: MessageQuery,
  before: { readonly ts: number; readonly stream: number } | undefined,
  limit: number,
): Promise<FoundRow[]> {
  const { sql, params } = matches(db, withinGroup(query), { before });
  return db.query<FoundRow>(
    `SELECT ${columns} FROM ${sql} ORDER BY s.origin_server_ts DESC, s.stream_ordering DESC LIMIT ${Math.trunc(limit)}`,
    params,
  );
}

/** Matches that see the same state, are on the same side of the end of the reader's last stay, and are all state or all none. */
export interface AlikeRow {
  /** The one that is shown for the longest, where messages have a lifetime: who may see any of them may see it. */
  readonly event_id: string;
  readonly total: number;
}

/** Rooms and positions that are given as JSON, as a query. SQLite looks them up by an index only where it is told that they are text. */
const givenEnds = (db: Db): string =>
  db.dialect.name === 'sqlite'
    ? `SELECT CAST(json_extract(value, '$.room_id') AS TEXT) AS room_id, json_extract(value, '$.ended') AS ended FROM json_each(?)`
    : 'SELECT room_id, ended FROM json_to_recordset(CAST(? AS JSON)) AS w(room_id TEXT, ended BIGINT)';

/**
 * How many matches there are, up to {@link searchWindow}, by what decides who may see them; so many of these at most, the newest.
 * @param ends where the reader's last stay ended, by room; rooms where it goes on are absent
 */
export async function selectAlikeMatches(
  db: Db,
  query: MessageQuery,
  ends: ReadonlyMap<string, number>,
  limit: number,
): Promise<AlikeRow[]> {
  const { sql, params } = matches(db, withinGroup(query));
  const alike = 'PARTITION BY m.state_group, m.is_state, m.is_behind';
  return db.query<AlikeRow>(
    `WITH ends AS MATERIALIZED (${givenEnds(db)})
     SELECT event_id, total FROM (
       SELECT m.event_id, COUNT(*) OVER (${alike}) AS total, MAX(m.stream_ordering) OVER (${alike}) AS newest,
         ROW_NUMBER() OVER (${alike} ORDER BY m.shown_ts DESC, m.stream_ordering DESC) AS place
       FROM (
         SELECT s.event_id, s.stream_ordering, g.state_group,
           CASE WHEN s.state_key IS NULL THEN 0 ELSE 1 END AS is_state,
           CASE WHEN s.stream_ordering >= x.ended THEN 1 ELSE 0 END AS is_behind,
           CASE WHEN s.received_ts < s.origin_server_ts THEN s.received_ts ELSE s.origin_server_ts END AS shown_ts
         FROM ${sql} JOIN event_to_state_groups g ON g.event_id = s.event_id
         LEFT JOIN ends x ON x.room_id = s.room_id) AS m) AS ranked
     WHERE place = 1 ORDER BY newest DESC LIMIT ${Math.trunc(limit)}`,
    [JSON.stringify([...ends].map(([roomId, ended]) => ({ room_id: roomId, ended }))), ...params],
  );
}

/** An event that may have to be indexed, as it was stored. */
export interface RawEventRow {
  readonly room_id: string;
  readonly type: string;
  readonly stream_ordering: number;
  readonly json: string;
}

const servable = `SELECT e.room_id, e.type, e.stream_ordering, j.json FROM events e
  JOIN event_json j ON j.stream_ordering = e.stream_ordering
  WHERE e.outlier = FALSE AND e.soft_failed = FALSE AND e.rejection_reason IS NULL`;

/** Events that clients may see, of some types, older than a position, the newest first. */
export async function selectOlderEvents(
  db: Db,
  types: readonly string[],
  before: number,
  limit: number,
): Promise<RawEventRow[]> {
  return db.query<RawEventRow>(
    `${servable} AND e.stream_ordering < ? AND ${db.dialect.anyOf('e.type')}
     ORDER BY e.stream_ordering DESC LIMIT ${Math.trunc(limit)}`,
    [before, types],
  );
}

/** Events that clients may see, of some types, with `after < position <= upTo`, in order. */
export async function selectEventsBetween(
  db: Db,
  types: readonly string[],
  after: number,
  upTo: number,
  limit: number,
): Promise<RawEventRow[]> {
  return db.query<RawEventRow>(
    `${servable} AND e.stream_ordering > ? AND e.stream_ordering <= ? AND ${db.dialect.anyOf('e.type')}
     ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
    [after, upTo, types],
  );
}
