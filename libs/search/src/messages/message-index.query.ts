import type { Db, SqlValue, Tx } from '@rookery/database';
import { createHash } from 'node:crypto';
import { indexText, matchText } from '../text/full-text.js';
import type { QueryWord } from '../text/words.js';
import type { SearchKey } from './searchable.js';

/** An event in the index. */
export interface IndexedMessage {
  readonly eventId: string;
  readonly roomId: string;
  readonly sender: string;
  readonly key: SearchKey;
  readonly originServerTs: number;
  readonly streamOrdering: number;
  readonly words: readonly string[];
}

/** Puts events into the index; those that are in it are passed over: nothing here may keep an event from being stored. */
export async function insertMessages(tx: Tx, messages: readonly IndexedMessage[]): Promise<void> {
  if (messages.length === 0) return;
  const columns = ['event_id', 'room_id', 'sender', 'key', 'origin_server_ts', 'stream_ordering'];
  const row = (message: IndexedMessage): SqlValue[] => [
    message.eventId,
    message.roomId,
    message.sender,
    message.key,
    message.originServerTs,
    message.streamOrdering,
  ];
  const text = ({ words }: IndexedMessage): string => indexText(tx.dialect, words);
  if (tx.dialect.name === 'postgres') {
    await tx.insertMany(
      'event_search',
      [...columns, 'vector'],
      messages.map((message) => [...row(message), text(message)]),
      'ON CONFLICT DO NOTHING',
    );
    return;
  }
  await tx.insertMany('event_search', columns, messages.map(row), 'ON CONFLICT DO NOTHING');
  await tx.run(`DELETE FROM event_search_words WHERE ${tx.dialect.anyOf('rowid')}`, [
    messages.map((message) => message.streamOrdering),
  ]);
  await tx.insertMany(
    'event_search_words',
    ['rowid', 'words', 'room'],
    messages.map((message) => [message.streamOrdering, text(message), roomWord(message.roomId)]),
  );
}

/** Takes events out of the index. */
export async function deleteMessages(tx: Tx, eventIds: readonly string[]): Promise<void> {
  await deleteWhere(tx, tx.dialect.anyOf('event_id'), [eventIds]);
}

/** Takes all events of a room out of the index. */
export async function deleteRoomMessages(tx: Tx, roomId: string): Promise<void> {
  await deleteWhere(tx, 'room_id = ?', [roomId]);
}

async function deleteWhere(tx: Tx, condition: string, params: readonly SqlValue[]): Promise<void> {
  if (tx.dialect.name === 'sqlite') {
    await tx.run(
      `DELETE FROM event_search_words WHERE rowid IN (SELECT stream_ordering FROM event_search WHERE ${condition})`,
      params,
    );
  }
  await tx.run(`DELETE FROM event_search WHERE ${condition}`, params);
}

/** What to look for, and where. */
export interface MessageQuery {
  readonly words: readonly QueryWord[];
  readonly roomIds: readonly string[];
  readonly keys: readonly SearchKey[];
  readonly senders?: readonly string[] | undefined;
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
}

/** A room as a word of the index of SQLite, so that what was said in other rooms need not be looked at. */
const roomWord = (roomId: string): string => `r${createHash('sha256').update(roomId).digest('hex').slice(0, 24)}`;
/** For more rooms, all of what was said is looked at. */
const maxRoomWords = 200;

/**
 * Only so many of the newest matches are considered: to rank everything that holds a common word would take seconds. Counts
 * go no further either.
 */
export const searchWindow = 10_000;

const columns = 's.event_id, s.origin_server_ts, s.stream_ordering';

/** The newest matches, as a table `s`; ranked ones with what a rank is made from, which takes its time. */
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
  const words = matchText(db.dialect, query.words);
  const isNarrow = query.roomIds.length <= maxRoomWords;
  const rooms = query.roomIds.map((roomId) => `"${roomWord(roomId)}"`).join(' OR ');
  const match = isPostgres ? words : `{words} : (${words})${isNarrow ? ` AND {room} : (${rooms})` : ''}`;
  const where = [
    isPostgres ? 's.vector @@ CAST(? AS TSQUERY)' : 'event_search_words MATCH ?',
    anyOf('s.room_id'),
    anyOf('s.key'),
    ...(query.senders ? [anyOf('s.sender')] : []),
    ...(before ? ['(s.origin_server_ts, s.stream_ordering) < (?, ?)'] : []),
  ];
  const params: SqlValue[] = [
    match,
    query.roomIds,
    query.keys,
    ...(query.senders ? [query.senders] : []),
    ...(before ? [before.ts, before.stream] : []),
  ];
  const sql = isPostgres
    ? `(SELECT ${columns}${ranked ? ', s.vector' : ''} FROM event_search s WHERE ${where.join(' AND ')}
        ORDER BY s.stream_ordering DESC LIMIT ${searchWindow}) AS s`
    : `(SELECT ${columns}${ranked ? ', -bm25(event_search_words, 1.0, 0.0) AS rank' : ''} FROM event_search_words
        CROSS JOIN event_search s ON s.stream_ordering = event_search_words.rowid WHERE ${where.join(' AND ')}
        ORDER BY event_search_words.rowid DESC LIMIT ${searchWindow}) AS s`;
  return { sql, params };
}

/** How close a match is, with its parameters. */
const rankOf = (db: Db, query: MessageQuery): { readonly sql: string; readonly params: SqlValue[] } =>
  db.dialect.name === 'postgres'
    ? { sql: 'ts_rank_cd(s.vector, CAST(? AS TSQUERY))', params: [matchText(db.dialect, query.words)] }
    : { sql: 's.rank', params: [] };

/** The closest first. */
export async function selectByRank(db: Db, query: MessageQuery, offset: number, limit: number): Promise<RankedRow[]> {
  const { sql, params } = matches(db, query, { ranked: true });
  const rank = rankOf(db, query);
  return db.query<RankedRow>(
    `SELECT ${columns}, ${rank.sql} AS rank FROM ${sql} ORDER BY 4 DESC, s.origin_server_ts DESC, s.stream_ordering DESC
     LIMIT ${Math.trunc(limit)} OFFSET ${Math.trunc(offset)}`,
    [...rank.params, ...params],
  );
}

/** The newest first, older than a place. */
export async function selectByTime(
  db: Db,
  query: MessageQuery,
  before: { readonly ts: number; readonly stream: number } | undefined,
  limit: number,
): Promise<FoundRow[]> {
  const { sql, params } = matches(db, query, { before });
  return db.query<FoundRow>(
    `SELECT ${columns} FROM ${sql} ORDER BY s.origin_server_ts DESC, s.stream_ordering DESC LIMIT ${Math.trunc(limit)}`,
    params,
  );
}

/** How many matches there are, up to {@link searchWindow}. */
export async function countMatches(db: Db, query: MessageQuery): Promise<number> {
  const { sql, params } = matches(db, query);
  return (await db.get<{ total: number }>(`SELECT COUNT(*) AS total FROM ${sql}`, params))?.total ?? 0;
}

/** An event that may have to be indexed, as it was stored. */
export interface RawEventRow {
  readonly event_id: string;
  readonly room_id: string;
  readonly sender: string;
  readonly type: string;
  readonly origin_server_ts: number;
  readonly stream_ordering: number;
  readonly json: string;
}

/** Events that clients may see, of some types, older than a position, the newest first; redacted ones left out. */
export async function selectOlderEvents(
  db: Db,
  types: readonly string[],
  before: number,
  limit: number,
): Promise<RawEventRow[]> {
  return db.query<RawEventRow>(
    `SELECT e.event_id, e.room_id, e.sender, e.type, e.origin_server_ts, e.stream_ordering, j.json FROM events e
     JOIN event_json j ON j.event_id = e.event_id
     WHERE e.stream_ordering < ? AND ${db.dialect.anyOf('e.type')} AND e.outlier = FALSE AND e.soft_failed = FALSE
       AND e.rejection_reason IS NULL AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.redacts = e.event_id)
     ORDER BY e.stream_ordering DESC LIMIT ${Math.trunc(limit)}`,
    [before, types],
  );
}
