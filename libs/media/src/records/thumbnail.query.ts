import type { Db, Tx } from '@rookery/database';
import type { Media, MediaKey } from './media.js';
import type { ThumbnailMethod, ThumbnailSize } from './thumbnail-choice.js';

/** A thumbnail that was made. */
export interface StoredThumbnail extends ThumbnailSize {
  /** Media type. */
  readonly type: string;
  readonly sizeBytes: number;
}

/** A row of a thumbnail. */
export interface ThumbnailRow {
  readonly thumbnail_width: number;
  readonly thumbnail_height: number;
  readonly thumbnail_type: string;
  readonly thumbnail_method: string;
  readonly thumbnail_length: number;
}

/** The columns of a {@link ThumbnailRow}. */
export const thumbnailColumns = 'thumbnail_width, thumbnail_height, thumbnail_type, thumbnail_method, thumbnail_length';

/** The thumbnails of a file; may be empty. */
export async function thumbnailsOf(db: Db, { origin, mediaId }: MediaKey): Promise<StoredThumbnail[]> {
  const rows =
    origin === undefined
      ? await db.query<ThumbnailRow>(
          `SELECT ${thumbnailColumns} FROM local_media_repository_thumbnails WHERE media_id = ?`,
          [mediaId],
        )
      : await db.query<ThumbnailRow>(
          `SELECT ${thumbnailColumns} FROM remote_media_cache_thumbnails WHERE media_origin = ? AND media_id = ?`,
          [origin, mediaId],
        );
  return rows.map(thumbnailOf);
}

/** A thumbnail as its row has it. */
export const thumbnailOf = (row: ThumbnailRow): StoredThumbnail => ({
  widthPx: row.thumbnail_width,
  heightPx: row.thumbnail_height,
  type: row.thumbnail_type,
  method: row.thumbnail_method as ThumbnailMethod,
  sizeBytes: row.thumbnail_length,
});

/**
 * Records thumbnails of a file; those that are recorded already stay.
 * @returns whether the file is still there; it is held against its deletion until the transaction ends
 */
export async function insertThumbnails(tx: Tx, media: Media, thumbnails: readonly StoredThumbnail[]): Promise<boolean> {
  const held =
    media.origin === undefined
      ? await tx.run('UPDATE local_media_repository SET media_id = media_id WHERE media_id = ?', [media.mediaId])
      : await tx.run(
          'UPDATE remote_media_cache SET media_id = media_id WHERE media_origin = ? AND media_id = ? AND filesystem_id = ?',
          [media.origin, media.mediaId, media.fileId],
        );
  if (held === 0) return false;
  const columns = [
    'media_id',
    'thumbnail_width',
    'thumbnail_height',
    'thumbnail_type',
    'thumbnail_method',
    'thumbnail_length',
  ];
  const rows = thumbnails.map((one) => [media.mediaId, one.widthPx, one.heightPx, one.type, one.method, one.sizeBytes]);
  if (media.origin === undefined) {
    await tx.insertMany('local_media_repository_thumbnails', columns, rows, 'ON CONFLICT DO NOTHING');
    return true;
  }
  const { origin, fileId } = media;
  await tx.insertMany(
    'remote_media_cache_thumbnails',
    [...columns, 'media_origin', 'filesystem_id'],
    rows.map((row) => [...row, origin, fileId]),
    'ON CONFLICT DO NOTHING',
  );
  return true;
}
