import type { Db, Tx } from '@rookery/database';
import { createHash } from 'node:crypto';

/** Longest address that is looked for as it is. PostgreSQL takes no entry of an index that is longer than 2,704 bytes. */
const longestKey = 2_000;

/** What a page is found by: its address, which is ASCII, or the hash of one that is too long for an index. */
const keyOf = (url: string): string =>
  url.length <= longestKey ? url : `sha256:${createHash('sha256').update(url).digest('base64url')}`;

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

/** The page as it was at a time; where nothing older is known, as it was soon after. What has expired by `nowMs` is not there any more. */
export async function findPreview(db: Db, url: string, ts: number, nowMs: number): Promise<PreviewRow | undefined> {
  const columns = 'og, download_ts, expires_ts';
  const key = keyOf(url);
  return (
    (await db.get<PreviewRow>(
      `SELECT ${columns} FROM local_media_repository_url_cache WHERE url = ? AND download_ts <= ? AND expires_ts > ?
       ORDER BY download_ts DESC LIMIT 1`,
      [key, ts, nowMs],
    )) ??
    (await db.get<PreviewRow>(
      `SELECT ${columns} FROM local_media_repository_url_cache WHERE url = ? AND download_ts > ? AND expires_ts > ?
       ORDER BY download_ts ASC LIMIT 1`,
      [key, ts, nowMs],
    ))
  );
}

export async function insertPreview(tx: Tx, page: NewPreview): Promise<void> {
  await tx.run(
    `INSERT INTO local_media_repository_url_cache (url, response_code, etag, expires_ts, og, media_id, download_ts)
     VALUES (?, ?, ?, ?, ?, ?, ?)`,
    [
      ...[keyOf(page.url), page.responseCode, page.etag ?? null, page.expiresTs],
      ...[page.og, page.mediaId ?? null, page.downloadTs],
    ],
  );
}

/** Deletes pages that expired before a time. */
export async function deleteExpiredPreviews(tx: Tx, beforeTs: number): Promise<void> {
  await tx.run('DELETE FROM local_media_repository_url_cache WHERE expires_ts < ?', [beforeTs]);
}
