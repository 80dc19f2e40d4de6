import type { Db, Tx } from '@rookery/database';
import type { Media } from './media.js';
import { thumbnailColumns, thumbnailOf, type StoredThumbnail, type ThumbnailRow } from './thumbnail.query.js';

/** Which of some files of a server (`undefined`: ours) a row knows, by what they are called on disk. */
export async function knownFiles(
  db: Db,
  origin: string | undefined,
  fileIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows =
    origin === undefined
      ? await db.query<{ file_id: string }>(
          `SELECT media_id AS file_id FROM local_media_repository WHERE ${db.dialect.anyOf('media_id')}`,
          [fileIds],
        )
      : await db.query<{ file_id: string }>(
          `SELECT filesystem_id AS file_id FROM remote_media_cache
           WHERE media_origin = ? AND ${db.dialect.anyOf('filesystem_id')}`,
          [origin, fileIds],
        );
  return new Set(rows.map((row) => row.file_id));
}

/** The thumbnails that rows know of some files of a server (`undefined`: ours), by what the files are called on disk. */
export async function knownThumbnails(
  db: Db,
  origin: string | undefined,
  fileIds: readonly string[],
): Promise<ReadonlyMap<string, readonly StoredThumbnail[]>> {
  const rows =
    origin === undefined
      ? await db.query<ThumbnailRow & { readonly file_id: string }>(
          `SELECT media_id AS file_id, ${thumbnailColumns} FROM local_media_repository_thumbnails
           WHERE ${db.dialect.anyOf('media_id')}`,
          [fileIds],
        )
      : await db.query<ThumbnailRow & { readonly file_id: string }>(
          `SELECT file.filesystem_id AS file_id, ${thumbnailColumns} FROM remote_media_cache file
           JOIN remote_media_cache_thumbnails thumbnail USING (media_origin, media_id)
           WHERE file.media_origin = ? AND ${db.dialect.anyOf('file.filesystem_id')}`,
          [origin, fileIds],
        );
  const known = new Map<string, StoredThumbnail[]>();
  for (const row of rows) {
    const list = known.get(row.file_id);
    if (list === undefined) known.set(row.file_id, [thumbnailOf(row)]);
    else list.push(thumbnailOf(row));
  }
  return known;
}

/** Files of which thumbnails are recorded, in order, after one of the page before; the origin of ours is the empty text. */
export async function filesWithThumbnails(
  db: Db,
  which: 'local' | 'remote',
  after: { readonly origin: string; readonly mediaId: string },
  limit: number,
): Promise<{ readonly origin: string; readonly mediaId: string }[]> {
  const count = Math.trunc(limit);
  const rows =
    which === 'local'
      ? await db.query<{ origin: string; media_id: string }>(
          `SELECT DISTINCT '' AS origin, media_id FROM local_media_repository_thumbnails
           WHERE media_id > ? ORDER BY media_id LIMIT ${count}`,
          [after.mediaId],
        )
      : await db.query<{ origin: string; media_id: string }>(
          `SELECT DISTINCT media_origin AS origin, media_id FROM remote_media_cache_thumbnails
           WHERE (media_origin, media_id) > (?, ?) ORDER BY media_origin, media_id LIMIT ${count}`,
          [after.origin, after.mediaId],
        );
  return rows.map((row) => ({ origin: row.origin, mediaId: row.media_id }));
}

/** Which of some files of a server (`undefined`: ours) have a row. */
export async function knownMedia(
  db: Db,
  origin: string | undefined,
  mediaIds: readonly string[],
): Promise<ReadonlySet<string>> {
  if (origin === undefined) return knownFiles(db, origin, mediaIds);
  const rows = await db.query<{ media_id: string }>(
    `SELECT media_id FROM remote_media_cache WHERE media_origin = ? AND ${db.dialect.anyOf('media_id')}`,
    [origin, mediaIds],
  );
  return new Set(rows.map((row) => row.media_id));
}

/** Forgets thumbnails of files that have no row. @returns them, with what their file was called on disk */
export async function deleteStrayThumbnails(
  tx: Tx,
  origin: string | undefined,
  mediaIds: readonly string[],
): Promise<{ readonly owner: Pick<Media, 'origin' | 'fileId' | 'urlCache'>; readonly thumbnail: StoredThumbnail }[]> {
  const rows =
    origin === undefined
      ? await tx.query<ThumbnailRow & { readonly file_id: string }>(
          `DELETE FROM local_media_repository_thumbnails WHERE ${tx.dialect.anyOf('media_id')} AND NOT EXISTS (
             SELECT 1 FROM local_media_repository file WHERE file.media_id = local_media_repository_thumbnails.media_id)
           RETURNING media_id AS file_id, ${thumbnailColumns}`,
          [mediaIds],
        )
      : await tx.query<ThumbnailRow & { readonly file_id: string }>(
          `DELETE FROM remote_media_cache_thumbnails WHERE media_origin = ? AND ${tx.dialect.anyOf('media_id')}
             AND NOT EXISTS (SELECT 1 FROM remote_media_cache file
               WHERE file.media_origin = remote_media_cache_thumbnails.media_origin
                 AND file.media_id = remote_media_cache_thumbnails.media_id)
           RETURNING filesystem_id AS file_id, ${thumbnailColumns}`,
          [origin, mediaIds],
        );
  return rows.map((row) => ({
    owner: { origin, fileId: row.file_id, urlCache: undefined },
    thumbnail: thumbnailOf(row),
  }));
}
