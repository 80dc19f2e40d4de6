import { type Db, givenRows, type SqlBool, type SqlValue, type Tx } from '@rookery/database';

/** A key backup of a user. */
export interface BackupVersion {
  readonly version: number;
  readonly algorithm: string;
  /** JSON text. */
  readonly authData: string;
  readonly deleted: boolean;
  readonly etag: number;
  readonly count: number;
}

/** A session in a backup. */
export interface BackedUpSession {
  readonly roomId: string;
  readonly sessionId: string;
  readonly firstMessageIndex: number;
  readonly forwardedCount: number;
  readonly isVerified: boolean;
  /** JSON text. */
  readonly sessionData: string;
}

/** Which sessions of a backup are meant: all, of one room, or one. */
export interface SessionSelector {
  readonly roomId?: string | undefined;
  readonly sessionId?: string | undefined;
}

interface VersionRow {
  readonly version: number;
  readonly algorithm: string;
  readonly auth_data: string;
  readonly deleted: number;
  readonly etag: number;
  readonly key_count: number;
}

interface SessionRow {
  readonly room_id: string;
  readonly session_id: string;
  readonly first_message_index: number;
  readonly forwarded_count: number;
  readonly is_verified: SqlBool;
  readonly session_data: string;
}

const versionColumns = 'version, algorithm, auth_data, deleted, etag, key_count';
const sessionColumns = [
  'room_id',
  'session_id',
  'first_message_index',
  'forwarded_count',
  'is_verified',
  'session_data',
];

const versionOf = (row: VersionRow): BackupVersion => ({
  version: row.version,
  algorithm: row.algorithm,
  authData: row.auth_data,
  deleted: row.deleted !== 0,
  etag: row.etag,
  count: row.key_count,
});

const sessionOf = (row: SessionRow): BackedUpSession => ({
  roomId: row.room_id,
  sessionId: row.session_id,
  firstMessageIndex: row.first_message_index,
  forwardedCount: row.forwarded_count,
  isVerified: Boolean(row.is_verified),
  sessionData: row.session_data,
});

/** The newest backup that was not deleted. */
export async function currentVersion(db: Db, userId: string): Promise<BackupVersion | undefined> {
  const row = await db.get<VersionRow>(
    `SELECT ${versionColumns} FROM e2e_room_keys_versions WHERE user_id = ? AND deleted = 0 ORDER BY version DESC LIMIT 1`,
    [userId],
  );
  return row && versionOf(row);
}

/** A backup, deleted or not. */
export async function findVersion(db: Db, userId: string, version: number): Promise<BackupVersion | undefined> {
  const row = await db.get<VersionRow>(
    `SELECT ${versionColumns} FROM e2e_room_keys_versions WHERE user_id = ? AND version = ?`,
    [userId, version],
  );
  return row && versionOf(row);
}

/** Holds a backup against other writers until the transaction ends. @returns whether it is there and not deleted */
export async function lockVersion(tx: Tx, userId: string, version: number): Promise<boolean> {
  const held = await tx.run(
    'UPDATE e2e_room_keys_versions SET etag = etag WHERE user_id = ? AND version = ? AND deleted = 0',
    [userId, version],
  );
  return held > 0;
}

/** Makes a backup with the next number. @returns the number; `taken` when another one took it, `full` when there are too many */
export async function insertVersion(
  tx: Tx,
  userId: string,
  algorithm: string,
  authData: string,
  maxVersions: number,
): Promise<number | 'taken' | 'full'> {
  const row = await tx.get<{ top: number | null }>(
    'SELECT MAX(version) AS top FROM e2e_room_keys_versions WHERE user_id = ?',
    [userId],
  );
  const version = (row?.top ?? 0) + 1;
  if (version > maxVersions) return 'full';
  const inserted = await tx.run(
    `INSERT INTO e2e_room_keys_versions (user_id, version, algorithm, auth_data) VALUES (?, ?, ?, ?)
     ON CONFLICT (user_id, version) DO NOTHING`,
    [userId, version, algorithm, authData],
  );
  return inserted > 0 ? version : 'taken';
}

export async function setAuthData(tx: Tx, userId: string, version: number, authData: string): Promise<void> {
  await tx.run('UPDATE e2e_room_keys_versions SET auth_data = ? WHERE user_id = ? AND version = ?', [
    authData,
    userId,
    version,
  ]);
}

/** Marks a backup as deleted: nothing is stored in it from then on, and whoever is just storing something is waited for. */
export async function deleteVersion(tx: Tx, userId: string, version: number): Promise<void> {
  await tx.run('UPDATE e2e_room_keys_versions SET deleted = 1, key_count = 0 WHERE user_id = ? AND version = ?', [
    userId,
    version,
  ]);
}

/** Notes that a backup's sessions changed: a new etag, and how many more there are. */
export async function noteChange(tx: Tx, userId: string, version: number, added: number): Promise<void> {
  await tx.run(
    'UPDATE e2e_room_keys_versions SET etag = etag + 1, key_count = key_count + ? WHERE user_id = ? AND version = ?',
    [added, userId, version],
  );
}

/** One session of a backup. */
export async function findSession(
  db: Db,
  userId: string,
  version: number,
  roomId: string,
  sessionId: string,
): Promise<BackedUpSession | undefined> {
  const row = await db.get<SessionRow>(
    `SELECT ${sessionColumns.join(', ')} FROM e2e_room_keys
     WHERE user_id = ? AND version = ? AND room_id = ? AND session_id = ?`,
    [userId, version, roomId, sessionId],
  );
  return row && sessionOf(row);
}

/** The next sessions of a backup, or of a room in it, by room and id. @param after the last one that is known */
export async function selectNextSessions(
  db: Db,
  userId: string,
  version: number,
  { roomId, after }: { readonly roomId: string | undefined; readonly after: BackedUpSession | undefined },
  limit: number,
): Promise<BackedUpSession[]> {
  const conditions = ['user_id = ?', 'version = ?'];
  const params: SqlValue[] = [userId, version];
  if (roomId !== undefined) {
    conditions.push('room_id = ?', 'session_id > ?');
    params.push(roomId, after?.sessionId ?? '');
  } else if (after !== undefined) {
    conditions.push('(room_id, session_id) > (?, ?)');
    params.push(after.roomId, after.sessionId);
  }
  const rows = await db.query<SessionRow>(
    `SELECT ${sessionColumns.join(', ')} FROM e2e_room_keys WHERE ${conditions.join(' AND ')}
     ORDER BY room_id, session_id LIMIT ${Math.trunc(limit)}`,
    params,
  );
  return rows.map(sessionOf);
}

/** Those of some sessions that a backup has, without their data. */
export async function existingSessions(
  db: Db,
  userId: string,
  version: number,
  sessions: readonly Pick<BackedUpSession, 'roomId' | 'sessionId'>[],
): Promise<Omit<BackedUpSession, 'sessionData'>[]> {
  const pairs = sessions.map(({ roomId, sessionId }) => [roomId, sessionId]);
  const wanted = givenRows(db, ['room_id', 'session_id'], pairs);
  const rows = await db.query<SessionRow>(
    `SELECT k.room_id, k.session_id, k.first_message_index, k.forwarded_count, k.is_verified, '' AS session_data
     FROM ${wanted.sql} CROSS JOIN e2e_room_keys k
     WHERE k.user_id = ? AND k.version = ? AND k.room_id = w.room_id AND k.session_id = w.session_id`,
    [wanted.value, userId, version],
  );
  return rows.map(sessionOf);
}

/** Stores sessions in place of those that are there; none twice. */
export async function writeSessions(
  tx: Tx,
  userId: string,
  version: number,
  sessions: readonly BackedUpSession[],
): Promise<void> {
  await tx.insertMany(
    'e2e_room_keys',
    ['user_id', 'version', ...sessionColumns],
    sessions.map((one) => [
      userId,
      version,
      one.roomId,
      one.sessionId,
      one.firstMessageIndex,
      one.forwardedCount,
      one.isVerified,
      one.sessionData,
    ]),
    `ON CONFLICT (user_id, version, room_id, session_id) DO UPDATE SET
       first_message_index = excluded.first_message_index, forwarded_count = excluded.forwarded_count,
       is_verified = excluded.is_verified, session_data = excluded.session_data`,
  );
}

/** Deletes some sessions. @returns how many; fewer than `limit` where none is left */
export async function deleteSomeSessions(
  tx: Tx,
  userId: string,
  version: number,
  { roomId, sessionId }: SessionSelector,
  limit: number,
): Promise<number> {
  return tx.run(
    `DELETE FROM e2e_room_keys WHERE (user_id, version, room_id, session_id) IN (
       SELECT user_id, version, room_id, session_id FROM e2e_room_keys WHERE user_id = ? AND version = ?
       ${roomId === undefined ? '' : 'AND room_id = ?'} ${sessionId === undefined ? '' : 'AND session_id = ?'}
       LIMIT ${Math.trunc(limit)})`,
    [userId, version, ...(roomId === undefined ? [] : [roomId]), ...(sessionId === undefined ? [] : [sessionId])],
  );
}

/** Marks all backups of a user as deleted; whoever holds one is waited for. Their sessions stay until they are deleted. */
export async function closeBackupsOf(tx: Tx, userId: string): Promise<void> {
  await tx.run('UPDATE e2e_room_keys_versions SET deleted = 1, key_count = 0 WHERE user_id = ? AND deleted = 0', [
    userId,
  ]);
}

/** Those of a user's backups that are marked as deleted and have sessions still. */
export async function closedVersionsWithSessions(db: Db, userId: string): Promise<number[]> {
  const rows = await db.query<{ version: number }>(
    `SELECT v.version FROM e2e_room_keys_versions v WHERE v.user_id = ? AND v.deleted = 1 AND EXISTS (
       SELECT 1 FROM e2e_room_keys k WHERE k.user_id = v.user_id AND k.version = v.version)`,
    [userId],
  );
  return rows.map((row) => row.version);
}

/** Forgets those of a user's backups that are marked as deleted and have no sessions. */
export async function deleteClosedVersions(tx: Tx, userId: string): Promise<void> {
  await tx.run(
    `DELETE FROM e2e_room_keys_versions WHERE user_id = ? AND deleted = 1 AND NOT EXISTS (
       SELECT 1 FROM e2e_room_keys k
       WHERE k.user_id = e2e_room_keys_versions.user_id AND k.version = e2e_room_keys_versions.version)`,
    [userId],
  );
}
