import type { Db, SqlBool, SqlValue, Tx } from '@rookery/database';
import type { ThumbnailRow } from './thumbnail.query.js';
import type { Media, MediaKey } from './media.js';

interface Row {
  readonly media_id: string;
  readonly media_origin: string | null;
  readonly filesystem_id: string | null;
  readonly media_type: string | null;
  readonly media_length: number | null;
  readonly created_ts: number | null;
  readonly upload_name: string | null;
  readonly user_id: string | null;
  readonly quarantined_by: string | null;
  readonly url_cache: string | null;
  readonly last_access_ts: number | null;
  readonly safe_from_quarantine: SqlBool;
  readonly authenticated: SqlBool;
  readonly sha256: string | null;
}

const localColumns = `media_id, NULL AS media_origin, NULL AS filesystem_id, media_type, media_length, created_ts, upload_name,
  user_id, quarantined_by, url_cache, last_access_ts, safe_from_quarantine, authenticated, sha256`;
const remoteColumns = `media_id, media_origin, filesystem_id, media_type, media_length, created_ts, upload_name,
  NULL AS user_id, quarantined_by, NULL AS url_cache, last_access_ts, FALSE AS safe_from_quarantine, authenticated, sha256`;

const mediaOf = (row: Row): Media => ({
  origin: row.media_origin ?? undefined,
  mediaId: row.media_id,
  fileId: row.filesystem_id ?? row.media_id,
  sizeBytes: row.media_length ?? undefined,
  mediaType: row.media_type ?? 'application/octet-stream',
  uploadName: row.upload_name ?? undefined,
  createdTs: row.created_ts ?? 0,
  lastAccessTs: row.last_access_ts ?? undefined,
  uploader: row.user_id ?? undefined,
  quarantinedBy: row.quarantined_by ?? undefined,
  safeFromQuarantine: !!row.safe_from_quarantine,
  authenticated: !!row.authenticated,
  sha256: row.sha256 ?? undefined,
  urlCache: row.url_cache ?? undefined,
});

/** The row of one file; `undefined` when nothing is known of it. */
export async function findMedia(db: Db, { origin, mediaId }: MediaKey): Promise<Media | undefined> {
  const row =
    origin === undefined
      ? await db.get<Row>(`SELECT ${localColumns} FROM local_media_repository WHERE media_id = ?`, [mediaId])
      : await db.get<Row>(`SELECT ${remoteColumns} FROM remote_media_cache WHERE media_origin = ? AND media_id = ?`, [
          origin,
          mediaId,
        ]);
  return row && mediaOf(row);
}

/** What is known of a new file of ours. */
export type NewLocalMedia = Pick<
  Media,
  | 'mediaId'
  | 'mediaType'
  | 'sizeBytes'
  | 'uploadName'
  | 'createdTs'
  | 'uploader'
  | 'authenticated'
  | 'sha256'
  | 'urlCache'
>;

/** Records a file of ours, or reserves its id where it has no size yet; withheld where an equal one is. */
export async function insertLocalMedia(tx: Tx, media: NewLocalMedia): Promise<void> {
  const quarantinedBy = await quarantineOf(tx, media.sha256);
  await tx.run(
    `INSERT INTO local_media_repository
       (media_id, media_type, media_length, created_ts, upload_name, user_id, url_cache, last_access_ts, authenticated, sha256,
        quarantined_by)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    [
      media.mediaId,
      media.sizeBytes === undefined ? null : media.mediaType,
      media.sizeBytes ?? null,
      media.createdTs,
      media.uploadName ?? null,
      media.uploader ?? null,
      media.urlCache ?? null,
      media.sizeBytes === undefined ? null : media.createdTs,
      media.authenticated,
      media.sha256 ?? null,
      quarantinedBy,
    ],
  );
}

/** Gives a reserved id its file; withheld where an equal one is. @returns false when it has one already, or is not there any more */
export async function fillLocalMedia(
  tx: Tx,
  media: Pick<
    Media,
    'mediaId' | 'mediaType' | 'sizeBytes' | 'uploadName' | 'createdTs' | 'lastAccessTs' | 'authenticated' | 'sha256'
  >,
): Promise<boolean> {
  const quarantinedBy = await quarantineOf(tx, media.sha256);
  const changed = await tx.run(
    `UPDATE local_media_repository SET media_type = ?, media_length = ?, upload_name = ?, created_ts = ?, last_access_ts = ?,
       authenticated = ?, sha256 = ?, quarantined_by = COALESCE(quarantined_by, ?) WHERE media_id = ? AND media_length IS NULL`,
    [
      media.mediaType,
      media.sizeBytes ?? null,
      media.uploadName ?? null,
      media.createdTs,
      media.lastAccessTs ?? null,
      media.authenticated,
      media.sha256 ?? null,
      quarantinedBy,
      media.mediaId,
    ],
  );
  return changed === 1;
}

/** Ids that a user has reserved since a time without giving them a file, and when the oldest of them was. */
export async function pendingOf(
  db: Db,
  userId: string,
  sinceTs: number,
): Promise<{ readonly count: number; readonly oldestTs: number | undefined }> {
  const row = await db.get<{ count: number; oldest: number | null }>(
    `SELECT COUNT(*) AS count, MIN(created_ts) AS oldest FROM local_media_repository
     WHERE user_id = ? AND created_ts > ? AND media_length IS NULL`,
    [userId, sinceTs],
  );
  return { count: Number(row?.count ?? 0), oldestTs: row?.oldest ?? undefined };
}

/** Bytes that a user has uploaded since each of several times, in their order. */
export async function uploadedBytes(db: Db, userId: string, sinceTs: readonly number[]): Promise<number[]> {
  if (sinceTs.length === 0) return [];
  const sums = sinceTs.map((_, i) => `SUM(CASE WHEN created_ts > ? THEN media_length ELSE 0 END) AS s${i}`);
  const row = await db.get<Record<string, number | string | null>>(
    `SELECT ${sums.join(', ')} FROM local_media_repository WHERE user_id = ? AND created_ts > ?`,
    [...sinceTs, userId, Math.min(...sinceTs)],
  );
  return sinceTs.map((_, i) => Number(row?.[`s${i}`] ?? 0));
}

/** Whether a file with these contents is withheld, here or from another server. */
async function isHashQuarantined(db: Db, sha256: string): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM local_media_repository WHERE sha256 = ? AND quarantined_by IS NOT NULL
     UNION ALL SELECT 1 AS found FROM remote_media_cache WHERE sha256 = ? AND quarantined_by IS NOT NULL LIMIT 1`,
    [sha256, sha256],
  );
  return row !== undefined;
}

/** Any number: the lock of PostgreSQL that keeps apart who withholds files and who records them. */
const advisoryLock = 7_246_506;

/**
 * Keeps files and their quarantine apart until the transaction ends: whoever withholds what equals a file finds a file that is just being
 * recorded, or is found by it. SQLite has one transaction at a time.
 */
export async function holdQuarantine(tx: Tx, mode: 'to change' | 'to ask'): Promise<void> {
  if (tx.dialect.name !== 'postgres') return;
  const name = mode === 'to change' ? 'pg_advisory_xact_lock' : 'pg_advisory_xact_lock_shared';
  await tx.query(`SELECT ${name}(?)`, [advisoryLock]);
}

/** Who withheld a file that equals one withheld before. */
const bySystem = 'system';

/** Who withholds a file that is recorded now. It may have become withheld since it was looked at. */
async function quarantineOf(tx: Tx, sha256: string | undefined): Promise<string | null> {
  if (sha256 === undefined) return null;
  await holdQuarantine(tx, 'to ask');
  return (await isHashQuarantined(tx, sha256)) ? bySystem : null;
}

/** Whether a file of ours is recorded with these contents. */
export async function isLocalMediaStored(db: Db, mediaId: string, sha256: string | undefined): Promise<boolean> {
  const row = await db.get('SELECT 1 AS found FROM local_media_repository WHERE media_id = ? AND sha256 = ?', [
    mediaId,
    sha256 ?? '',
  ]);
  return row !== undefined;
}

/** Whether a file of another server is recorded as it was fetched this time. */
export async function isRemoteMediaStored(db: Db, { origin, mediaId, fileId }: Media): Promise<boolean> {
  const row = await db.get(
    'SELECT 1 AS found FROM remote_media_cache WHERE media_origin = ? AND media_id = ? AND filesystem_id = ?',
    [origin ?? '', mediaId, fileId],
  );
  return row !== undefined;
}

/** Forgets reserved ids older than a time that got no file. */
export function deletePending(tx: Tx, beforeTs: number): Promise<number> {
  return tx.run('DELETE FROM local_media_repository WHERE media_length IS NULL AND created_ts < ?', [beforeTs]);
}

/**
 * Records a file of another server, withheld where an equal one is; what was recorded before is replaced, but its quarantine,
 * and to whom it is shown if it was here.
 */
export async function upsertRemoteMedia(tx: Tx, media: Omit<Media, 'quarantinedBy'>): Promise<void> {
  const quarantinedBy = await quarantineOf(tx, media.sha256);
  await tx.run(
    `INSERT INTO remote_media_cache (media_origin, media_id, media_type, created_ts, upload_name, media_length,
       filesystem_id, last_access_ts, authenticated, sha256, quarantined_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (media_origin, media_id) DO UPDATE SET media_type = excluded.media_type, created_ts = excluded.created_ts,
       upload_name = excluded.upload_name, media_length = excluded.media_length, filesystem_id = excluded.filesystem_id,
       last_access_ts = excluded.last_access_ts, sha256 = excluded.sha256,
       authenticated = CASE WHEN remote_media_cache.media_length IS NULL THEN excluded.authenticated
         ELSE remote_media_cache.authenticated END,
       quarantined_by = COALESCE(remote_media_cache.quarantined_by, excluded.quarantined_by)`,
    [
      media.origin ?? '',
      media.mediaId,
      media.mediaType,
      media.createdTs,
      media.uploadName ?? null,
      media.sizeBytes ?? null,
      media.fileId,
      media.lastAccessTs ?? null,
      media.authenticated,
      media.sha256 ?? null,
      quarantinedBy,
    ],
  );
}

/** Notes when files were last asked for. */
export async function touchMedia(
  tx: Tx,
  origin: string | undefined,
  mediaIds: readonly string[],
  ts: number,
): Promise<void> {
  const table = tableOf(origin);
  await tx.run(`UPDATE ${table} SET last_access_ts = ? WHERE ${tx.dialect.anyOf('media_id')}${ofOrigin(origin)}`, [
    ts,
    mediaIds,
    ...originParams(origin),
  ]);
}

/** Forgets files and their thumbnails. @returns the thumbnails that were recorded */
export async function deleteMediaRows(
  tx: Tx,
  origin: string | undefined,
  mediaIds: readonly string[],
): Promise<(ThumbnailRow & { readonly media_id: string })[]> {
  const params = [mediaIds, ...originParams(origin)];
  const which = `${tx.dialect.anyOf('media_id')}${ofOrigin(origin)}`;
  // The files' rows first: no thumbnail can be recorded from then on.
  await tx.run(`DELETE FROM ${tableOf(origin)} WHERE ${which}`, params);
  const thumbnails = origin === undefined ? 'local_media_repository_thumbnails' : 'remote_media_cache_thumbnails';
  return tx.query(
    `DELETE FROM ${thumbnails} WHERE ${which}
     RETURNING media_id, thumbnail_width, thumbnail_height, thumbnail_type, thumbnail_method, thumbnail_length`,
    params,
  );
}

const tableOf = (origin: string | undefined): string =>
  origin === undefined ? 'local_media_repository' : 'remote_media_cache';
const ofOrigin = (origin: string | undefined): string => (origin === undefined ? '' : ' AND media_origin = ?');
const originParams = (origin: string | undefined): readonly SqlValue[] => (origin === undefined ? [] : [origin]);

/** Which files of ours to look for. */
export interface LocalMediaFilter {
  /** Last used before; a file that was never used counts from its upload. */
  readonly unusedSinceTs: number;
  /** Larger than. */
  readonly largerThanBytes: number;
  readonly includeQuarantined: boolean;
  readonly includeProtected: boolean;
}

/** What fits of the next files, and the last of these; none at their end. */
export interface MediaPart<Key> {
  readonly media: Media[];
  readonly last: Key | undefined;
}

/** What fits of the next `count` files of ours behind one, by id; images of previews are none. */
export async function localMediaPart(
  db: Db,
  filter: LocalMediaFilter,
  afterId: string,
  count: number,
): Promise<MediaPart<string>> {
  const next = await db.get<{ media_id: string }>(
    `SELECT media_id FROM local_media_repository WHERE media_id > ? ORDER BY media_id LIMIT 1 OFFSET ${Math.trunc(count) - 1}`,
    [afterId],
  );
  const rows = await db.query<Row>(
    `SELECT ${localColumns} FROM local_media_repository
     WHERE media_id > ? ${next ? 'AND media_id <= ?' : ''}
       AND COALESCE(last_access_ts, created_ts) < ? AND media_length > ? AND url_cache IS NULL
       ${filter.includeQuarantined ? '' : 'AND quarantined_by IS NULL'}
       ${filter.includeProtected ? '' : 'AND safe_from_quarantine = FALSE'}
     ORDER BY media_id`,
    [afterId, ...(next ? [next.media_id] : []), filter.unusedSinceTs, filter.largerThanBytes],
  );
  return { media: rows.map(mediaOf), last: next?.media_id };
}

/** What fits of the next `count` files of other servers behind one, in order: those that were last used before a time. */
export async function unusedRemoteMedia(
  db: Db,
  beforeTs: number,
  includeQuarantined: boolean,
  after: RemoteFile,
  count: number,
): Promise<MediaPart<RemoteFile>> {
  const next = await db.get<{ media_origin: string; media_id: string }>(
    `SELECT media_origin, media_id FROM remote_media_cache WHERE (media_origin, media_id) > (?, ?)
     ORDER BY media_origin, media_id LIMIT 1 OFFSET ${Math.trunc(count) - 1}`,
    [after.origin, after.mediaId],
  );
  const rows = await db.query<Row>(
    `SELECT ${remoteColumns} FROM remote_media_cache
     WHERE (media_origin, media_id) > (?, ?) ${next ? 'AND (media_origin, media_id) <= (?, ?)' : ''}
       AND COALESCE(last_access_ts, created_ts) < ? ${includeQuarantined ? '' : 'AND quarantined_by IS NULL'}
     ORDER BY media_origin, media_id`,
    [after.origin, after.mediaId, ...(next ? [next.media_origin, next.media_id] : []), beforeTs],
  );
  return { media: rows.map(mediaOf), last: next && { origin: next.media_origin, mediaId: next.media_id } };
}

/** A file of another server. */
export interface RemoteFile {
  readonly origin: string;
  readonly mediaId: string;
}

/** Images of previews made before a time, the oldest first, behind one of them. */
export async function pageImagesBefore(
  db: Db,
  beforeTs: number,
  after: Pick<Media, 'createdTs' | 'mediaId'> | undefined,
  limit: number,
): Promise<Media[]> {
  const rows = await db.query<Row>(
    `SELECT ${localColumns} FROM local_media_repository WHERE url_cache IS NOT NULL AND created_ts < ?
       ${after ? 'AND (created_ts, media_id) > (?, ?)' : ''}
     ORDER BY created_ts, media_id LIMIT ${Math.trunc(limit)}`,
    [beforeTs, ...(after ? [after.createdTs, after.mediaId] : [])],
  );
  return rows.map(mediaOf);
}

/** How an administrator's list of a user's files is ordered. */
export const userMediaOrders = [
  'media_id',
  'upload_name',
  'created_ts',
  'last_access_ts',
  'media_length',
  'media_type',
  'quarantined_by',
  'safe_from_quarantine',
] as const;

/** One of {@link userMediaOrders}. */
export type UserMediaOrder = (typeof userMediaOrders)[number];

/**
 * A page of the files that a user uploaded, with the number of all of them. What has no value goes last, or first where the list is
 * turned around.
 */
export async function mediaOfUser(
  db: Db,
  userId: string,
  page: {
    readonly offset: number;
    readonly limit: number;
    readonly orderBy: UserMediaOrder;
    readonly descending: boolean;
  },
): Promise<{ readonly media: Media[]; readonly total: number }> {
  const direction = page.descending ? 'DESC NULLS FIRST' : 'ASC NULLS LAST';
  const [rows, count] = await Promise.all([
    db.query<Row>(
      `SELECT ${localColumns} FROM local_media_repository WHERE user_id = ? AND media_length IS NOT NULL
       ORDER BY ${page.orderBy} ${direction}, media_id ASC LIMIT ? OFFSET ?`,
      [userId, page.limit, page.offset],
    ),
    db.get<{ count: number }>(
      'SELECT COUNT(*) AS count FROM local_media_repository WHERE user_id = ? AND media_length IS NOT NULL',
      [userId],
    ),
  ]);
  return { media: rows.map(mediaOf), total: Number(count?.count ?? 0) };
}
