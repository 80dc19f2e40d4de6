import type { Db, Tx } from '@rookery/database';
import type { Media, MediaKey } from '../records/media.js';
import type { ThumbnailMethod, ThumbnailSize } from './thumbnail-choice.js';

/** A thumbnail that was made. */
export interface StoredThumbnail extends ThumbnailSize {
  /** Media type. */
  readonly type: string;
  readonly sizeBytes: number;
}

interface Row {
  readonly thumbnail_width: number;
  readonly thumbnail_height: number;
  readonly thumbnail_type: string;
  readonly thumbnail_method: string;
  readonly thumbnail_length: number;
}

/** The thumbnails of a file; may be empty. */
export async function thumbnailsOf(db: Db, { origin, mediaId }: MediaKey): Promise<StoredThumbnail[]> {
  const columns = 'thumbnail_width, thumbnail_height, thumbnail_type, thumbnail_method, thumbnail_length';
  const rows =
    origin === undefined
      ? await db.query<Row>(`SELECT ${columns} FROM local_media_repository_thumbnails WHERE media_id = ?`, [mediaId])
      : await db.query<Row>(
          `SELECT ${columns} FROM remote_media_cache_thumbnails WHERE media_origin = ? AND media_id = ?`,
          [origin, mediaId],
        );
  return rows.map((row) => ({
    widthPx: row.thumbnail_width,
    heightPx: row.thumbnail_height,
    type: row.thumbnail_type,
    method: row.thumbnail_method as ThumbnailMethod,
    sizeBytes: row.thumbnail_length,
  }));
}

/** Records thumbnails of a file; those that are recorded already stay. */
export async function insertThumbnails(tx: Tx, media: Media, thumbnails: readonly StoredThumbnail[]): Promise<void> {
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
    return;
  }
  const { origin, fileId } = media;
  await tx.insertMany(
    'remote_media_cache_thumbnails',
    [...columns, 'media_origin', 'filesystem_id'],
    rows.map((row) => [...row, origin, fileId]),
    'ON CONFLICT DO NOTHING',
  );
}
