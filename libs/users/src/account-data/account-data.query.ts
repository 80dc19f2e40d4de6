import type { Db, Tx } from '@rookery/database';

/** One piece of account data. Content is JSON text; with MSC3391 `{}` stands for deleted. */
export interface AccountDataRow {
  readonly type: string;
  readonly content: string;
  /** Of the content. */
  readonly bytes: number;
  readonly streamId: number;
}

/** One piece of account data of a room. */
export interface RoomAccountDataRow extends AccountDataRow {
  readonly roomId: string;
}

/** Largest content that is read with its row, bytes. */
const withRowBytes = 4_096;
/** What is told of a piece; `content` is empty where it is larger, and read by {@link contentsOf}. */
const piece = `account_data_type AS type, stream_id AS "streamId", OCTET_LENGTH(content) AS bytes,
  CASE WHEN OCTET_LENGTH(content) <= ${withRowBytes} THEN content ELSE '' END AS content`;

/** The account's own data, or what it has of rooms. */
export type AccountDataTable = 'account_data' | 'room_account_data';

/** What narrows rows down to some types; all where none are named. */
const ofTypes = (db: Db, types: readonly string[] | undefined): string =>
  types === undefined ? '' : ` AND ${db.dialect.anyOf('account_data_type')}`;

export async function findGlobal(db: Db, userId: string, type: string): Promise<string | undefined> {
  return (
    await db.get<{ content: string }>('SELECT content FROM account_data WHERE user_id = ? AND account_data_type = ?', [
      userId,
      type,
    ])
  )?.content;
}

export async function findForRoom(db: Db, userId: string, roomId: string, type: string): Promise<string | undefined> {
  return (
    await db.get<{ content: string }>(
      'SELECT content FROM room_account_data WHERE user_id = ? AND room_id = ? AND account_data_type = ?',
      [userId, roomId, type],
    )
  )?.content;
}

export async function writeGlobal(
  tx: Tx,
  userId: string,
  type: string,
  content: string,
  streamId: number,
): Promise<void> {
  await tx.run(
    `INSERT INTO account_data (user_id, account_data_type, stream_id, content) VALUES (?, ?, ?, ?)
     ON CONFLICT (user_id, account_data_type) DO UPDATE SET stream_id = excluded.stream_id, content = excluded.content`,
    [userId, type, streamId, content],
  );
}

export async function writeForRoom(
  tx: Tx,
  userId: string,
  roomId: string,
  type: string,
  content: string,
  streamId: number,
): Promise<void> {
  await tx.run(
    `INSERT INTO room_account_data (user_id, room_id, account_data_type, stream_id, content) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (user_id, room_id, account_data_type) DO UPDATE SET stream_id = excluded.stream_id, content = excluded.content`,
    [userId, roomId, type, streamId, content],
  );
}

/** The types of which something changed in `(after, upTo]`. */
export async function changedTypes(
  db: Db,
  table: AccountDataTable,
  userId: string,
  after: number,
  upTo: number,
): Promise<string[]> {
  const rows = await db.query<{ type: string }>(
    `SELECT DISTINCT account_data_type AS type FROM ${table} WHERE user_id = ? AND stream_id > ? AND stream_id <= ?`,
    [userId, after, upTo],
  );
  return rows.map(({ type }) => type);
}

/**
 * The account's own data that changed in `(after, upTo]`, oldest first; large ones without their contents.
 * @param types only these
 */
export async function globalChanges(
  db: Db,
  userId: string,
  after: number,
  upTo: number,
  types?: readonly string[],
): Promise<AccountDataRow[]> {
  return db.query<AccountDataRow>(
    `SELECT ${piece} FROM account_data
     WHERE user_id = ? AND stream_id > ? AND stream_id <= ?${ofTypes(db, types)} ORDER BY stream_id`,
    [userId, after, upTo, ...(types ? [types] : [])],
  );
}

/** The same of rooms. */
export async function roomChanges(
  db: Db,
  userId: string,
  after: number,
  upTo: number,
  types?: readonly string[],
): Promise<RoomAccountDataRow[]> {
  return db.query<RoomAccountDataRow>(
    `SELECT room_id AS "roomId", ${piece} FROM room_account_data
     WHERE user_id = ? AND stream_id > ? AND stream_id <= ?${ofTypes(db, types)} ORDER BY stream_id`,
    [userId, after, upTo, ...(types ? [types] : [])],
  );
}

/** The types that some rooms have. */
export async function typesOfRooms(db: Db, userId: string, roomIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ type: string }>(
    `SELECT DISTINCT account_data_type AS type FROM room_account_data
     WHERE user_id = ? AND ${db.dialect.anyOf('room_id')}`,
    [userId, roomIds],
  );
  return rows.map(({ type }) => type);
}

/** All account data of some rooms, oldest first; large ones without their contents. @param types only these */
export async function forRooms(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  types?: readonly string[],
): Promise<RoomAccountDataRow[]> {
  const rows = await db.query<RoomAccountDataRow>(
    `SELECT room_id AS "roomId", ${piece} FROM room_account_data
     WHERE user_id = ? AND ${db.dialect.anyOf('room_id')}${ofTypes(db, types)}`,
    [userId, roomIds, ...(types ? [types] : [])],
  );
  // Told to put it in order, SQLite goes through what the user has of all rooms.
  return rows.sort((a, b) => a.streamId - b.streamId);
}

/** The contents of some pieces, by their positions; of those that were changed meanwhile none. */
export async function contentsOf(
  db: Db,
  table: AccountDataTable,
  userId: string,
  streamIds: readonly number[],
): Promise<Map<number, string>> {
  const rows = await db.query<{ streamId: number; content: string }>(
    `SELECT stream_id AS "streamId", content FROM ${table} WHERE user_id = ? AND ${db.dialect.anyOf('stream_id')}`,
    [userId, streamIds],
  );
  return new Map(rows.map(({ streamId, content }) => [streamId, content]));
}

/** How much an account has, of its own and of rooms. Neither database reads a content to tell how long it is. */
export async function sizeOf(db: Db, userId: string): Promise<{ readonly pieces: number; readonly bytes: number }> {
  const sum = (table: AccountDataTable): string =>
    `SELECT COUNT(*) AS pieces, COALESCE(SUM(OCTET_LENGTH(content)), 0) AS bytes FROM ${table} WHERE user_id = ?`;
  const row = await db.get<{ pieces: number; bytes: number }>(
    `SELECT CAST(SUM(pieces) AS BIGINT) AS pieces, CAST(SUM(bytes) AS BIGINT) AS bytes
     FROM (${sum('account_data')} UNION ALL ${sum('room_account_data')}) AS sums`,
    [userId, userId],
  );
  return { pieces: row?.pieces ?? 0, bytes: row?.bytes ?? 0 };
}

/** How many types of its own data an account has. */
export async function globalCount(db: Db, userId: string): Promise<number> {
  return (
    (await db.get<{ count: number }>('SELECT COUNT(*) AS count FROM account_data WHERE user_id = ?', [userId]))
      ?.count ?? 0
  );
}

/**
 * Holds a piece of the account's own for a change that depends on what it is, making it where there is none.
 * @returns its content; `undefined` where it was made
 */
export async function lockGlobal(tx: Tx, userId: string, type: string, initial: string): Promise<string | undefined> {
  const made = await tx.run(
    'INSERT INTO account_data (user_id, account_data_type, stream_id, content) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING',
    [userId, type, initial],
  );
  if (made > 0) return undefined;
  await tx.run('UPDATE account_data SET content = content WHERE user_id = ? AND account_data_type = ?', [userId, type]);
  return findGlobal(tx, userId, type);
}

/** The same for a piece of a room. */
export async function lockForRoom(
  tx: Tx,
  userId: string,
  roomId: string,
  type: string,
  initial: string,
): Promise<string | undefined> {
  const made = await tx.run(
    'INSERT INTO room_account_data (user_id, room_id, account_data_type, stream_id, content) VALUES (?, ?, ?, 0, ?) ON CONFLICT DO NOTHING',
    [userId, roomId, type, initial],
  );
  if (made > 0) return undefined;
  await tx.run(
    'UPDATE room_account_data SET content = content WHERE user_id = ? AND room_id = ? AND account_data_type = ?',
    [userId, roomId, type],
  );
  return findForRoom(tx, userId, roomId, type);
}

/** The furthest position in the stream that the tables hold. */
export async function highestStreamId(db: Db): Promise<number> {
  const row = await db.get<{ global: number | null; rooms: number | null }>(
    'SELECT (SELECT MAX(stream_id) FROM account_data) AS global, (SELECT MAX(stream_id) FROM room_account_data) AS rooms',
  );
  return Math.max(row?.global ?? 0, row?.rooms ?? 0);
}

/** How many pieces of data a room has for a user. */
export async function roomCount(db: Db, userId: string, roomId: string): Promise<number> {
  return (
    (
      await db.get<{ count: number }>(
        'SELECT COUNT(*) AS count FROM room_account_data WHERE user_id = ? AND room_id = ?',
        [userId, roomId],
      )
    )?.count ?? 0
  );
}

/** Forgets what some users keep about a room. */
export async function deleteAccountDataOfRoom(tx: Tx, roomId: string, userIds: readonly string[]): Promise<void> {
  if (userIds.length === 0) return;
  await tx.run(`DELETE FROM room_account_data WHERE ${tx.dialect.anyOf('user_id')} AND room_id = ?`, [userIds, roomId]);
}

/** Forgets all account data, filters and ignored users of a user. */
export async function deleteAccountDataOf(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM account_data WHERE user_id = ?', [userId]);
  await tx.run('DELETE FROM room_account_data WHERE user_id = ?', [userId]);
  await tx.run('DELETE FROM ignored_users WHERE ignorer_user_id = ?', [userId]);
  await tx.run('DELETE FROM user_filters WHERE user_id = ?', [userId]);
}

/** Replaces the list of users whom somebody ignores. */
export async function replaceIgnored(tx: Tx, userId: string, ignored: readonly string[]): Promise<void> {
  await tx.run('DELETE FROM ignored_users WHERE ignorer_user_id = ?', [userId]);
  await tx.insertMany(
    'ignored_users',
    ['ignorer_user_id', 'ignored_user_id'],
    ignored.map((one) => [userId, one]),
    'ON CONFLICT DO NOTHING',
  );
}

/** The users whom somebody ignores. */
export async function ignoredBy(db: Db, userId: string): Promise<string[]> {
  const rows = await db.query<{ ignored_user_id: string }>(
    'SELECT ignored_user_id FROM ignored_users WHERE ignorer_user_id = ?',
    [userId],
  );
  return rows.map((row) => row.ignored_user_id);
}

/** Who of `among` ignores a user. */
export async function ignorersOf(db: Db, userId: string, among: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ ignorer_user_id: string }>(
    `SELECT ignorer_user_id FROM ignored_users WHERE ignored_user_id = ? AND ${db.dialect.anyOf('ignorer_user_id')}`,
    [userId, among],
  );
  return rows.map((row) => row.ignorer_user_id);
}

/** Users of this server who ignore a user. */
export async function allIgnorersOf(db: Db, userId: string): Promise<string[]> {
  const rows = await db.query<{ ignorer_user_id: string }>(
    'SELECT ignorer_user_id FROM ignored_users WHERE ignored_user_id = ?',
    [userId],
  );
  return rows.map((row) => row.ignorer_user_id);
}
