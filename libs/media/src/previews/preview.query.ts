import type { Db, Tx } from '@rookery/database';

/** A page as it was seen. */
export interface PreviewRow {
  /** JSON of its OpenGraph properties. */
  readonly og: string | null;
  readonly download_ts: number;
  readonly expires_ts: number | null;
}

/** What is kept of a page that was looked at. */
export interface NewPreview {
  readonly url: string;
  readonly responseCode: number;
  readonly etag: string | undefined;
  readonly expiresTs: number;
  readonly og: string;
  readonly mediaId: string | undefined;
  readonly downloadTs: number;
}

/** The page as it was at a time; where nothing older is known, as it was soon after. */
export async function findPreview(db: Db, url: string, ts: number): Promise<PreviewRow | undefined> {
  const columns = 'og, download_ts, expires_ts';
  return (
    (await db.get<PreviewRow>(
      `SELECT ${columns} FROM local_media_repository_url_cache WHERE url = ? AND download_ts <= ?
       ORDER BY download_ts DESC LIMIT 1`,
      [url, ts],
    )) ??
    (await db.get<PreviewRow>(
      `SELECT ${columns} FROM local_media_repository_url_cache WHERE url = ? AND download_ts > ?
       ORDER BY download_ts ASC LIMIT 1`,
      [url, ts],
    ))
  );
}

export async function insertPreview(tx: Tx, page: NewPreview): Promise<void> {
  await tx.run(
    `INSERT INTO local_media_repository_url_cache (url, response_code, etag, expires_ts, og, media_id, download_ts)
     VALUES (?, ?, ?, ?, ?, ?, ?)`,
    [page.url, page.responseCode, page.etag ?? null, page.expiresTs, page.og, page.mediaId ?? null, page.downloadTs],
  );
}

/** Deletes pages that expired before a time. */
export async function deleteExpiredPreviews(tx: Tx, beforeTs: number): Promise<void> {
  await tx.run('DELETE FROM local_media_repository_url_cache WHERE expires_ts < ?', [beforeTs]);
}
