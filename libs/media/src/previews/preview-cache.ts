import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import { pageImagesBefore } from '../records/media.query.js';

/** A page as it was seen. */
export interface CachedPreview {
  /** OpenGraph properties, as clients get them. */
  readonly og: JsonObject;
  readonly downloadTs: number;
  readonly expiresTs: number;
}

/** How long the images of previews are kept. */
const imageLifetimeMs = 2 * 86_400_000;
const batchSize = 500;

interface Row {
  readonly og: string | null;
  readonly download_ts: number;
  readonly expires_ts: number | null;
}

/** Pages that were looked at, until they expire. */
@Injectable()
export class PreviewCache {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly removal: MediaRemoval,
  ) {}

  /** The page as it was at a time, or soon after; `undefined` when it was not seen, or has expired since. */
  async find(url: string, ts: number): Promise<CachedPreview | undefined> {
    const columns = 'og, download_ts, expires_ts';
    const row =
      (await this.database.get<Row>(
        `SELECT ${columns} FROM local_media_repository_url_cache WHERE url = ? AND download_ts <= ?
         ORDER BY download_ts DESC LIMIT 1`,
        [url, ts],
      )) ??
      (await this.database.get<Row>(
        `SELECT ${columns} FROM local_media_repository_url_cache WHERE url = ? AND download_ts > ?
         ORDER BY download_ts ASC LIMIT 1`,
        [url, ts],
      ));
    if (row?.og == null || (row.expires_ts ?? 0) <= this.clock.nowMs()) return undefined;
    const og = JSON.parse(row.og) as JsonObject;
    return { og, downloadTs: row.download_ts, expiresTs: row.expires_ts ?? 0 };
  }

  /** Keeps what was seen. */
  async store(
    url: string,
    page: CachedPreview & {
      readonly responseCode: number;
      readonly etag: string | undefined;
      readonly mediaId: string | undefined;
    },
  ): Promise<void> {
    await this.database.write(
      (tx) =>
        tx.run(
          `INSERT INTO local_media_repository_url_cache (url, response_code, etag, expires_ts, og, media_id, download_ts)
           VALUES (?, ?, ?, ?, ?, ?, ?)`,
          [
            url,
            page.responseCode,
            page.etag ?? null,
            page.expiresTs,
            JSON.stringify(page.og),
            page.mediaId ?? null,
            page.downloadTs,
          ],
        ),
      { name: 'store_preview' },
    );
  }

  /** Forgets pages that have expired, and images two days after they were fetched. */
  async expire(signal?: AbortSignal): Promise<void> {
    const now = this.clock.nowMs();
    await this.database.write(
      (tx) => tx.run('DELETE FROM local_media_repository_url_cache WHERE expires_ts < ?', [now]),
      { name: 'expire_previews' },
    );
    while (signal?.aborted !== true) {
      const images = await pageImagesBefore(this.database, now - imageLifetimeMs, batchSize);
      if (images.length === 0) return;
      await this.removal.delete(images);
    }
  }
}
