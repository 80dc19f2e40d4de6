import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { Media, MediaKey } from './media.js';
import { type MediaUsageRow, type MediaUsageSearch, selectMediaUsage } from './media-usage.query.js';
import { findMedia, mediaOfUser, type UserMediaOrder } from './media.query.js';

/** A page of a list. */
export interface MediaPage {
  readonly offset: number;
  readonly limit: number;
  /** Default `created_ts`. */
  readonly orderBy?: UserMediaOrder;
  readonly descending?: boolean;
}

/** What is known of files, for administrators. */
@Injectable()
export class MediaLibrary {
  constructor(private readonly database: Database) {}

  /** One file; of other servers only what was fetched, or is withheld. `undefined` when nothing is known of it. */
  find(key: MediaKey): Promise<Media | undefined> {
    return findMedia(this.database, key);
  }

  /** How much users have uploaded: a page of those who have anything, with the number of all of them. */
  usage(search: MediaUsageSearch): Promise<{ readonly users: MediaUsageRow[]; readonly total: number }> {
    return selectMediaUsage(this.database, search);
  }

  /** The files that a user has uploaded, with the number of all of them. */
  ofUser(userId: string, page: MediaPage): Promise<{ readonly media: Media[]; readonly total: number }> {
    const { offset, limit, orderBy = 'created_ts', descending = false } = page;
    return mediaOfUser(this.database, userId, { offset, limit, orderBy, descending });
  }
}
