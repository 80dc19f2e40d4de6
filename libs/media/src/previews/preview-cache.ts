import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import type { Media } from '../records/media.js';
import { pageImagesBefore } from '../records/media.query.js';
import { deleteExpiredPreviews, findPreview, insertPreview } from './preview.query.js';

/** A page as it was seen. */
export interface CachedPreview {
  /** OpenGraph properties, as clients get them. */
  readonly og: JsonObject;
  readonly downloadTs: number;
  readonly expiresTs: number;
}

/** How long the images of previews are kept. */
const imageLifetimeMs = 2 * 86_400_000;
const batchSize = 100;

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
    const row = await findPreview(this.database, url, ts, this.clock.nowMs());
    if (row?.og == null) return undefined;
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
    await this.database.write((tx) => insertPreview(tx, { ...page, url, og: JSON.stringify(page.og) }), {
      name: 'store_preview',
    });
  }

  /** Forgets pages that have expired, and images two days after they were fetched. */
  async expire(signal?: AbortSignal): Promise<void> {
    const now = this.clock.nowMs();
    const options = { name: 'expire_previews', anyProcess: true };
    await this.database.write((tx) => deleteExpiredPreviews(tx, now), options);
    // Behind what was looked at: an image that cannot be removed stays.
    let last: Media | undefined;
    while (signal?.aborted !== true) {
      const images: Media[] = await pageImagesBefore(this.database, now - imageLifetimeMs, last, batchSize);
      if (images.length === 0) return;
      await this.removal.delete(images);
      last = images.at(-1);
    }
  }
}
