import { type Db, likeText, type SqlValue, type Tx } from '@rookery/database';
import { indexText, matchText } from '../text/full-text.js';
import { type QueryWord, wordsOf } from '../text/words.js';

/** Somebody who can be found. */
export interface DirectoryUser {
  readonly userId: string;
  readonly displayName: string | undefined;
  readonly avatarUrl: string | undefined;
}

interface UserRow {
  readonly user_id: string;
  readonly display_name: string | null;
  readonly avatar_url: string | null;
}

const userOf = (row: UserRow): DirectoryUser => ({
  userId: row.user_id,
  displayName: row.display_name ?? undefined,
  avatarUrl: row.avatar_url ?? undefined,
});

const maxWords = 100;
const stored = (value: string | undefined): string | null => value?.replaceAll('\0', '').slice(0, 1_000) ?? null;

/** A user is found by name and by id. */
const wordsOfUser = ({ userId, displayName }: DirectoryUser): string[] =>
  wordsOf(`${displayName ?? ''} ${userId}`, maxWords);

/** Puts users into the directory, or changes what it says about them. No user may be named twice. */
export async function upsertUsers(tx: Tx, given: readonly DirectoryUser[]): Promise<void> {
  if (given.length === 0) return;
  // In the same order always, so that transactions about the same users wait for each other only one way.
  const users = given.toSorted((a, b) => (a.userId < b.userId ? -1 : 1));
  const row = (user: DirectoryUser): SqlValue[] => [user.userId, stored(user.displayName), stored(user.avatarUrl)];
  const text = (user: DirectoryUser): string => indexText(tx.dialect, wordsOfUser(user));
  const changed = 'display_name = excluded.display_name, avatar_url = excluded.avatar_url';
  if (tx.dialect.name === 'postgres') {
    await tx.insertMany(
      'user_directory',
      ['user_id', 'display_name', 'avatar_url', 'vector'],
      users.map((user) => [...row(user), text(user)]),
      `ON CONFLICT (user_id) DO UPDATE SET ${changed}, vector = excluded.vector`,
    );
    return;
  }
  await tx.insertMany(
    'user_directory',
    ['user_id', 'display_name', 'avatar_url'],
    users.map(row),
    `ON CONFLICT (user_id) DO UPDATE SET ${changed}`,
  );
  const ids = await tx.query<{ id: number; user_id: string }>(
    `SELECT id, user_id FROM user_directory WHERE ${tx.dialect.anyOf('user_id')}`,
    [users.map((user) => user.userId)],
  );
  const byId = new Map(ids.map((found) => [found.user_id, found.id]));
  await tx.run(`DELETE FROM user_directory_search WHERE ${tx.dialect.anyOf('rowid')}`, [[...byId.values()]]);
  await tx.insertMany(
    'user_directory_search',
    ['rowid', 'words'],
    users.map((user) => [byId.get(user.userId) ?? 0, text(user)]),
  );
}

/** Takes users out of the directory. */
export async function deleteUsers(tx: Tx, userIds: readonly string[]): Promise<void> {
  await deleteWhere(tx, tx.dialect.anyOf('user_id'), [userIds]);
}

/** Takes those users out who are in no room that this server knows. */
export async function deleteStrangers(tx: Tx, userIds: readonly string[]): Promise<void> {
  await deleteWhere(
    tx,
    `${tx.dialect.anyOf('user_id')} AND NOT EXISTS (SELECT 1 FROM current_state_events c
       WHERE c.type = 'm.room.member' AND c.state_key = user_directory.user_id AND c.membership = 'join')`,
    [userIds],
  );
}

async function deleteWhere(tx: Tx, condition: string, params: readonly SqlValue[]): Promise<void> {
  if (tx.dialect.name === 'sqlite') {
    await tx.run(
      `DELETE FROM user_directory_search WHERE rowid IN (SELECT id FROM user_directory WHERE ${condition})`,
      params,
    );
  }
  await tx.run(`DELETE FROM user_directory WHERE ${condition}`, params);
}

/** Ids of accounts of this server behind an id, in order; of any kind. */
export async function selectAccountIds(db: Db, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT name FROM users WHERE name > ? ORDER BY name LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.name);
}

/**
 * Those of some users of this server who are to be found, with their profiles: accounts of people, open and not guests. Users of application
 * services are met where these bring them; there may be as many as on a whole other network.
 */
export async function selectLocalUsers(db: Db, userIds: readonly string[]): Promise<DirectoryUser[]> {
  const rows = await db.query<{ name: string; displayname: string | null; avatar_url: string | null }>(
    `SELECT u.name, p.displayname, p.avatar_url FROM users u LEFT JOIN profiles p ON p.user_id = u.name
     WHERE ${db.dialect.anyOf('u.name')} AND u.deactivated = FALSE AND u.is_guest = FALSE
       AND u.appservice_id IS NULL AND (u.user_type IS NULL OR u.user_type <> 'support')`,
    [userIds],
  );
  return rows.map((row) => ({
    userId: row.name,
    displayName: row.displayname ?? undefined,
    avatarUrl: row.avatar_url ?? undefined,
  }));
}

/** Users of other servers who are in rooms, with the profiles in their member events, in order of their ids. */
export async function selectMembers(db: Db, after: string, limit: number): Promise<DirectoryUser[]> {
  const rows = await db.query<UserRow>(
    `SELECT c.state_key AS user_id, MAX(m.display_name) AS display_name, MAX(m.avatar_url) AS avatar_url
     FROM current_state_events c JOIN room_memberships m ON m.event_id = c.event_id
     WHERE c.type = 'm.room.member' AND c.membership = 'join' AND c.state_key > ?
       AND NOT EXISTS (SELECT 1 FROM local_current_membership l WHERE l.user_id = c.state_key AND l.room_id = c.room_id)
     GROUP BY c.state_key ORDER BY c.state_key LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map(userOf);
}

/** A membership of a user of another server has changed. Of those, one comes after another by position, then by user. */
export interface MovedStranger {
  readonly position: number;
  readonly userId: string;
}

/**
 * The next users of other servers whose memberships have changed: behind a place, up to a position, at most `limit`. Many may have changed at one
 * position, where a large room became known.
 */
export async function selectMovedStrangers(
  db: Db,
  serverName: string,
  behind: MovedStranger,
  upTo: number,
  limit: number,
): Promise<MovedStranger[]> {
  const rows = await db.query<{ stream_id: number; state_key: string }>(
    `SELECT stream_id, state_key FROM current_state_delta_stream
     WHERE (stream_id, type, state_key) > (?, 'm.room.member', ?) AND stream_id <= ? AND type = 'm.room.member'
       AND state_key NOT LIKE ? ESCAPE '\\'
     ORDER BY stream_id, type, state_key LIMIT ?`,
    [behind.position, behind.userId, upTo, `%:${likeText(serverName)}`, limit],
  );
  return rows.map((row) => ({ position: row.stream_id, userId: row.state_key }));
}

/** Those of some users who are in rooms, each with the profile of the member event that came to count last. */
export async function selectNewestProfiles(db: Db, userIds: readonly string[]): Promise<DirectoryUser[]> {
  const rows = await db.query<UserRow>(
    `SELECT user_id, display_name, avatar_url FROM (
       SELECT c.state_key AS user_id, m.display_name, m.avatar_url,
         ROW_NUMBER() OVER (PARTITION BY c.state_key ORDER BY c.event_stream_ordering DESC) AS place
       FROM current_state_events c JOIN room_memberships m ON m.event_id = c.event_id
       WHERE c.type = 'm.room.member' AND c.membership = 'join' AND ${db.dialect.anyOf('c.state_key')}) AS newest
     WHERE place = 1`,
    [userIds],
  );
  return rows.map(userOf);
}

/** What to look for, and whom to show to whom. */
export interface UserQuery {
  readonly requesterId: string;
  readonly words: readonly QueryWord[];
  /** The search as it was typed, in lower case: who is called exactly that comes first. */
  readonly exact: string;
  readonly serverName: string;
  readonly everybody: boolean;
  readonly localFirst: boolean;
  readonly localOnly: boolean;
  readonly lockedToo: boolean;
  readonly limit: number;
  /** How many of the best ones are passed over. */
  readonly offset: number;
}

/**
 * Whoever searches is found like anybody else: where others see them.
 * People of one room, or of a room that anybody can see into, know of each other. Who is in a room that everybody of this
 * server has left is not known any more.
 */
const knownTo = `EXISTS (SELECT 1 FROM current_state_events t
    WHERE t.type = 'm.room.member' AND t.state_key = d.user_id AND t.membership = 'join' AND (
      EXISTS (SELECT 1 FROM current_state_events m WHERE m.room_id = t.room_id AND m.type = 'm.room.member'
        AND m.state_key = ? AND m.state_key <> d.user_id AND m.membership = 'join')
      OR EXISTS (SELECT 1 FROM room_stats_state s WHERE s.room_id = t.room_id
        AND (s.join_rules = 'public' OR s.history_visibility = 'world_readable')
        AND EXISTS (SELECT 1 FROM local_current_membership l WHERE l.room_id = t.room_id AND l.membership = 'join'))))`;

/** Only so many of the best matches are looked at, whoever may see them: a single letter can match everybody. */
const maxCandidates = 2_000;

/** Users who match, the best first. */
export async function searchUsers(db: Db, query: UserQuery): Promise<DirectoryUser[]> {
  const isPostgres = db.dialect.name === 'postgres';
  const match = matchText(db.dialect, query.words);
  const [from, matching, distance] = isPostgres
    ? ['user_directory u', 'u.vector @@ CAST(? AS TSQUERY)', '-ts_rank_cd(u.vector, CAST(? AS TSQUERY))']
    : [
        'user_directory_search CROSS JOIN user_directory u ON u.id = user_directory_search.rowid',
        'user_directory_search MATCH ?',
        'bm25(user_directory_search)',
      ];
  const order = `other, ${query.localFirst ? 'away, ' : ''}distance, CASE WHEN display_name IS NULL THEN 1 ELSE 0 END, user_id`;
  const local = `%:${likeText(query.serverName)}`;
  const isAway = `CASE WHEN u.user_id LIKE ? ESCAPE '\\' THEN 0 ELSE 1 END`;
  const candidates = `SELECT u.user_id, u.display_name, u.avatar_url, ${distance} AS distance, ${isAway} AS away,
      CASE WHEN LOWER(u.display_name) = ? OR u.user_id = ? OR u.user_id LIKE ? ESCAPE '\\' THEN 0 ELSE 1 END AS other
    FROM ${from} WHERE ${matching} ${query.everybody ? 'AND u.user_id <> ?' : ''} ${query.localOnly ? `AND u.user_id LIKE ? ESCAPE '\\'` : ''}
    ORDER BY ${order} LIMIT ${maxCandidates}`;
  const params: SqlValue[] = [
    ...(isPostgres ? [match] : []),
    ...[local, query.exact, query.exact, `@${likeText(query.exact)}:%`, match],
    ...(query.everybody ? [query.requesterId] : []),
    ...(query.localOnly ? [local] : []),
    ...(query.everybody ? [] : [query.requesterId]),
  ];
  const conditions = [
    query.lockedToo ? '1 = 1' : 'NOT EXISTS (SELECT 1 FROM users a WHERE a.name = d.user_id AND a.locked = TRUE)',
    ...(query.everybody ? [] : [knownTo]),
  ];
  const rows = await db.query<UserRow>(
    `SELECT user_id, display_name, avatar_url FROM (${candidates}) AS d WHERE ${conditions.join(' AND ')}
     ORDER BY ${order} LIMIT ${Math.trunc(query.limit)} OFFSET ${Math.trunc(query.offset)}`,
    params,
  );
  return rows.map(userOf);
}
