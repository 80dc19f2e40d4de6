import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { batchesOf, Config, Logger, ownTurn } from '@rookery/platform';
import { formatMxc, type Media } from '../records/media.js';
import {
  deleteMediaRows,
  findMedia,
  type LocalMediaFilter,
  localMediaPart,
  type MediaPart,
  type RemoteFile,
  unusedRemoteMedia,
} from '../records/media.query.js';
import { placeOf, thumbnailFolder, thumbnailPlace } from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import { thumbnailOf, thumbnailsOf } from '../records/thumbnail.query.js';
import { byOrigin } from './quarantine.query.js';

/** What is begun comes to its end, where another process is to go on. */
const batchSize = 100;
/** Files of which it is asked at once whether they may go: of a million nearly all may stay. */
const lookedAtOnce = 2_000;
/** Files named one by one whose rows go in one transaction. */
const smallBatchSize = 20;

/** Which files of ours to delete. */
export interface LocalDeletion extends LocalMediaFilter {
  /** Leave what is in use as somebody's or some room's avatar. */
  readonly keepAvatars: boolean;
}

/** Says which of some `mxc:` URIs are in use as avatars. */
export type AvatarUses = (uris: readonly string[]) => Promise<ReadonlySet<string>>;

/** Deletes files for good: rows, files, thumbnails, and the copies of storage providers that can delete. */
@Injectable()
export class MediaRemoval {
  readonly #avatarUses: AvatarUses[] = [];

  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly files: MediaFiles,
    private readonly logger: Logger,
  ) {}

  /** Where libs that keep avatars say so. */
  addAvatarUses(uses: AvatarUses): void {
    this.#avatarUses.push(uses);
  }

  /**
   * Deletes files of ours by id. @returns the ids of those that there were
   * @throws MatrixError 500 `M_UNKNOWN` where a file cannot be removed, once all others are
   */
  async deleteLocal(mediaIds: readonly string[]): Promise<string[]> {
    const deleted: string[] = [];
    let kept = 0;
    const wanted = [...new Set(mediaIds)];
    for (let start = 0; start < wanted.length; start += smallBatchSize) {
      const found = await Promise.all(
        wanted
          .slice(start, start + smallBatchSize)
          .map((mediaId) => findMedia(this.database, { origin: undefined, mediaId })),
      );
      const list = found.filter((media) => media !== undefined);
      const gone = await this.delete(list);
      deleted.push(...gone.map(({ mediaId }) => mediaId));
      kept += list.length - gone.length;
    }
    if (kept > 0) throw MatrixError.internal('Files could not be removed; the log of the server says why');
    return deleted;
  }

  /**
   * Deletes what nobody has used for long.
   * @returns ids of what was deleted
   */
  async deleteUnusedLocal(which: LocalDeletion, signal?: AbortSignal): Promise<string[]> {
    const deleted: string[] = [];
    for (let after: string | undefined = ''; after !== undefined && signal?.aborted !== true;) {
      const part: MediaPart<string> = await localMediaPart(this.database, which, after, lookedAtOnce);
      for (const page of batchesOf(part.media, batchSize)) {
        if (signal?.aborted) return deleted;
        const inUse = which.keepAvatars ? await this.#avatarsAmong(page) : new Set<string>();
        const gone = await this.delete(page.filter((media) => !inUse.has(media.mediaId)));
        deleted.push(...gone.map(({ mediaId }) => mediaId));
      }
      after = part.last;
      await ownTurn();
    }
    return deleted;
  }

  /**
   * Empties the cache of other servers' files of what nobody has used for long. It is fetched again when asked for.
   * @param includeQuarantined withheld files go, too, and are not withheld any more when they come again
   * @returns how many files were deleted
   */
  async deleteUnusedRemote(
    unusedSinceTs: number,
    options: { readonly includeQuarantined: boolean; readonly signal?: AbortSignal },
  ): Promise<number> {
    let deleted = 0;
    const { includeQuarantined, signal } = options;
    let after: RemoteFile | undefined = { origin: '', mediaId: '' };
    while (after !== undefined && signal?.aborted !== true) {
      const part: MediaPart<RemoteFile> = await unusedRemoteMedia(
        this.database,
        unusedSinceTs,
        includeQuarantined,
        after,
        lookedAtOnce,
      );
      for (const page of batchesOf(part.media, batchSize)) {
        if (signal?.aborted) return deleted;
        deleted += (await this.delete(page)).length;
      }
      after = part.last;
      await ownTurn();
    }
    return deleted;
  }

  /**
   * Deletes files whose rows are given: files first, so that nothing is left that no row knows. One that cannot be removed keeps its row, and
   * holds up no other.
   * @returns those that are gone
   */
  async delete(list: readonly Media[]): Promise<readonly Media[]> {
    const known = new Set<string>();
    const gone: Media[] = [];
    for (const media of list) {
      const places = (await thumbnailsOf(this.database, media)).map((one) => thumbnailPlace(media, one));
      for (const { path } of places) known.add(path);
      const isGone = await this.#unlessRefused(media, async () => {
        if (media.fileId === '' || media.sizeBytes === undefined) return;
        // A file that stays keeps its thumbnails.
        await this.files.remove(placeOf(media));
        await this.files.removeThumbnails(thumbnailFolder(media), places);
      });
      if (isGone) gone.push(media);
    }
    if (gone.length === 0) return gone;
    const deleted = await this.database.write(
      async (tx) => {
        const thumbnails = [];
        for (const [origin, ids] of byOrigin(gone))
          thumbnails.push(...(await deleteMediaRows(tx, origin, ids)).map((row) => ({ origin, row })));
        return thumbnails;
      },
      { name: 'delete_media', anyProcess: true },
    );
    // Thumbnails that were made while the files were being removed.
    for (const { origin, row } of deleted) {
      const media = gone.find((one) => one.origin === origin && one.mediaId === row.media_id);
      const place = media && thumbnailPlace(media, thumbnailOf(row));
      if (place && !known.has(place.path))
        await this.#unlessRefused(media, () => this.files.removeThumbnails(thumbnailFolder(media), [place]));
    }
    return gone;
  }

  /** @returns `false` where the disk refused that */
  async #unlessRefused({ origin, mediaId }: Media, work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      this.logger.error('A file could not be removed', { origin, media_id: mediaId, err: error });
      return false;
    }
  }

  async #avatarsAmong(page: readonly Media[]): Promise<Set<string>> {
    const uris = page.map(({ mediaId }) => formatMxc(this.config.serverName, mediaId));
    const used = await Promise.all(this.#avatarUses.map((uses) => uses(uris)));
    return new Set(
      page.filter((_, index) => used.some((set) => set.has(uris[index] ?? ''))).map(({ mediaId }) => mediaId),
    );
  }
}
