import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, Clock, eachLimit, Logger } from '@rookery/platform';
import { localMediaPart, type MediaPart } from '../records/media.query.js';
import {
  deleteStrayThumbnails,
  filesWithThumbnails,
  knownFiles,
  knownMedia,
  knownThumbnails,
} from '../records/stray.query.js';
import {
  type FilePlace,
  placeOf,
  type StoreTree,
  storeTrees,
  thumbnailFolder,
  thumbnailNamed,
  thumbnailPlace,
} from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import type { StoreEntry } from '../storage/store-walk.js';

const lookEveryMs = 3_600_000;
const periodMs = 24 * 3_600_000;
/** What is younger may belong to something that is under way, or to rows that are being restored. */
const strayAfterMs = 7 * 24 * 3_600_000;
const batchSize = 500;
/** Files that are looked at on the disk at a time. */
const maxAtOnce = 8;

/** What one round found. */
export interface StrayReport {
  /** Rows of thumbnails that belonged to no file, and are gone. */
  readonly thumbnailRows: number;
  /** Files that no row knew, and are gone: thumbnails, cached files of other servers, images of previews. */
  readonly files: number;
  /** Uploads that no row knows. They stay. */
  readonly uploads: { readonly files: number; readonly sizeBytes: number; readonly example: string | undefined };
  /** Uploads whose rows are there and whose files are not. */
  readonly missing: { readonly files: number; readonly example: string | undefined };
}

/**
 * Finds files that no row knows and rows that no file belongs to, as a crash or a restored database leave them. What can be
 * made or fetched again goes once it is a week old; uploads stay and are told of, since nobody has another copy.
 */
@Injectable()
export class StrayFiles implements OnModuleInit {
  #dueTs = 0;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly files: MediaFiles,
    private readonly logger: Logger,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    const run = (signal: AbortSignal): Promise<void> => this.#runWhenDue(signal);
    this.tasks.add({ name: 'remove_stray_media', role: 'media', everyMs: lookEveryMs, run }).start();
  }

  /** One round; one that is stopped reports what it came to. */
  async run(signal?: AbortSignal): Promise<StrayReport> {
    const thumbnailRows = (await this.#thumbnailRows('local', signal)) + (await this.#thumbnailRows('remote', signal));
    let files = 0;
    const uploads = { files: 0, sizeBytes: 0, example: undefined as string | undefined };
    for (const tree of storeTrees) {
      for await (const batch of this.#batches(tree, signal)) {
        if (tree.thumbnails) files += await this.#strayThumbnails(batch);
        else if (tree.of === 'uploads') await this.#countStrayUploads(batch, uploads);
        else files += await this.#strayFiles(batch);
      }
    }
    return { thumbnailRows, files, uploads, missing: await this.#missing(signal) };
  }

  /** Not only once a day: a server that is started anew each night would never come to it. */
  async #runWhenDue(signal: AbortSignal): Promise<void> {
    if (this.clock.nowMs() < this.#dueTs) return;
    this.#dueTs = this.clock.nowMs() + periodMs;
    const { thumbnailRows, files, uploads, missing } = await this.run(signal);
    if (files + thumbnailRows > 0)
      this.logger.info('Removed what belonged to no media', { files, rows: thumbnailRows });
    if (uploads.files > 0)
      this.logger.warn('Uploads lie in the media store that the database does not know; they stay', {
        ...{ files: uploads.files, bytes: uploads.sizeBytes, example: uploads.example },
      });
    if (missing.files > 0)
      this.logger.warn('Uploads are missing in the media store', { files: missing.files, example: missing.example });
  }

  async #thumbnailRows(which: 'local' | 'remote', signal: AbortSignal | undefined): Promise<number> {
    let gone = 0;
    for (let after = { origin: '', mediaId: '' }; signal?.aborted !== true;) {
      const page = await filesWithThumbnails(this.database, which, after, batchSize);
      const last = page.at(-1);
      if (last === undefined) break;
      for (const [name, list] of Map.groupBy(page, (one) => one.origin)) {
        const origin = which === 'local' ? undefined : name;
        const ids = list.map((one) => one.mediaId);
        const known = await knownMedia(this.database, origin, ids);
        const strays = ids.filter((id) => !known.has(id));
        if (strays.length > 0) gone += await this.#forgetThumbnails(origin, strays);
      }
      after = last;
    }
    return gone;
  }

  async #forgetThumbnails(origin: string | undefined, mediaIds: readonly string[]): Promise<number> {
    const rows = await this.database.write((tx) => deleteStrayThumbnails(tx, origin, mediaIds), {
      ...{ name: 'forget_stray_thumbnails', anyProcess: true },
    });
    for (const [folder, list] of Map.groupBy(rows, ({ owner }) => thumbnailFolder(owner))) {
      const places = list.map(({ owner, thumbnail }) => thumbnailPlace(owner, thumbnail));
      await this.#unlessRefused(folder, () => this.files.removeThumbnails(folder, places));
    }
    return rows.length;
  }

  /** Entries of a tree in pieces, each of one server. */
  async *#batches(tree: StoreTree, signal: AbortSignal | undefined): AsyncGenerator<readonly StoreEntry[]> {
    let batch: StoreEntry[] = [];
    for await (const entry of this.files.entries(tree)) {
      if (signal?.aborted === true) return;
      if (batch.length === batchSize || (batch[0] && batch[0].owner.origin !== entry.owner.origin)) {
        yield batch;
        batch = [];
      }
      batch.push(entry);
    }
    if (batch.length > 0) yield batch;
  }

  async #unknown(batch: readonly StoreEntry[]): Promise<StoreEntry[]> {
    const known = await knownFiles(
      this.database,
      batch[0]?.owner.origin,
      batch.map(({ owner }) => owner.fileId),
    );
    return batch.filter(({ owner }) => !known.has(owner.fileId));
  }

  async #countStrayUploads(
    batch: readonly StoreEntry[],
    found: { files: number; sizeBytes: number; example: string | undefined },
  ): Promise<void> {
    for (const { path } of await this.#unknown(batch)) {
      const sizeBytes = await this.#agedSize(path);
      if (sizeBytes === undefined) continue;
      found.files++;
      found.sizeBytes += sizeBytes;
      found.example ??= path;
    }
  }

  async #strayFiles(batch: readonly StoreEntry[]): Promise<number> {
    let gone = 0;
    for (const { owner, path } of await this.#unknown(batch)) {
      if ((await this.#agedSize(path)) === undefined) continue;
      if (await this.#unlessRefused(path, () => this.files.remove(placeOf(owner)))) gone++;
    }
    return gone;
  }

  /** Thumbnails of files that no row knows, and of files that rows know but not with these thumbnails. */
  async #strayThumbnails(batch: readonly StoreEntry[]): Promise<number> {
    const unknown = new Set(await this.#unknown(batch));
    const recorded = await knownThumbnails(
      this.database,
      batch[0]?.owner.origin,
      batch.map(({ owner }) => owner.fileId),
    );
    let gone = 0;
    for (const entry of batch) {
      const { owner } = entry;
      const known = new Set((recorded.get(owner.fileId) ?? []).map((one) => thumbnailPlace(owner, one).path));
      const strays: FilePlace[] = [];
      let left = 0;
      for await (const name of this.files.names(entry.path)) {
        const path = `${entry.path}/${name}`;
        const sizeBytes = known.has(path) ? undefined : await this.#agedSize(path);
        const thumbnail = sizeBytes === undefined ? undefined : thumbnailNamed(name, sizeBytes);
        if (thumbnail === undefined) left++;
        else strays.push(thumbnailPlace(owner, thumbnail));
      }
      if (unknown.has(entry) && left === 0) {
        if (await this.#unlessRefused(entry.path, () => this.files.removeThumbnails(entry.path, strays)))
          gone += strays.length;
      } else
        for (const place of strays) if (await this.#unlessRefused(place.path, () => this.files.remove(place))) gone++;
    }
    return gone;
  }

  async #missing(signal: AbortSignal | undefined): Promise<{ files: number; example: string | undefined }> {
    const missing = { files: 0, example: undefined as string | undefined };
    if (!this.files.isOnlyPlaceOfUploads) return missing;
    const all = { largerThanBytes: -1, includeQuarantined: true, includeProtected: true };
    const filter = { ...all, unusedSinceTs: this.clock.nowMs() };
    for (let after: string | undefined = ''; after !== undefined && signal?.aborted !== true;) {
      const part: MediaPart<string> = await localMediaPart(this.database, filter, after, batchSize);
      await eachLimit(part.media, maxAtOnce, async (media) => {
        if (await this.files.isLocal(placeOf(media))) return;
        missing.files++;
        missing.example ??= media.mediaId;
      });
      after = part.last;
    }
    return missing;
  }

  /** @returns `false` where the disk refused that: what else is stray goes all the same */
  async #unlessRefused(path: string, work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      this.logger.error('A stray file could not be removed', { path, err: error });
      return false;
    }
  }

  /** The size of a file that is old enough to be taken for a stray. */
  async #agedSize(path: string): Promise<number | undefined> {
    const facts = await this.files.facts(path);
    return facts !== undefined && facts.writtenTs < this.clock.nowMs() - strayAfterMs ? facts.sizeBytes : undefined;
  }
}
