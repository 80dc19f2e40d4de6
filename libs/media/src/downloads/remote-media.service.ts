import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { LeakyBucketRateLimiter, networkOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { callbackContext } from '@rookery/module-host';
import { Clock, Config, Ids, Logger, SingleFlight } from '@rookery/platform';
import type { Media } from '../records/media.js';
import { findMedia, isRemoteMediaStored, upsertRemoteMedia } from '../records/media.query.js';
import { placeOf } from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import { MediaIntake } from '../storage/media-intake.js';
import type { StagedFile } from '../storage/staged-file.js';
import { Thumbnails } from '../thumbnails/thumbnails.service.js';
import { claimedType, cleanName } from '../uploads/incoming-file.js';
import { MediaPorts, type RemoteFile } from '../ports.js';
import { FetchPlaces } from './fetch-places.js';

/** Who asks for a file of another server. */
export interface RemoteDownload {
  readonly origin: string;
  readonly mediaId: string;
  readonly timeoutMs: number;
  /** Address of the client, whose share of the downloads it is. */
  readonly ip: string;
  /** Who is logged in. */
  readonly userId?: string | undefined;
  /** The client found nothing of it here; what another one has fetched since is good. */
  readonly isNew: boolean;
}

const limiterName = 'remote_media_download';
/** What part of what an address may fetch at once a file costs that could not be had. */
const failureShare = 1 / 2_000;
const longestName = 1_000;

/** Fetches files from other servers into the cache. */
@Injectable()
export class RemoteMedia {
  readonly #limiter: LeakyBucketRateLimiter;
  readonly #fetching = new SingleFlight<Media>();
  readonly #places: FetchPlaces;

  // Nine parameters: a file is asked for, staged, inspected, kept and shrunk, and a failure at any step takes it all
  // back.
  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly files: MediaFiles,
    private readonly intake: MediaIntake,
    private readonly ports: MediaPorts,
    private readonly thumbnails: Thumbnails,
    private readonly logger: Logger,
  ) {
    this.#limiter = new LeakyBucketRateLimiter(clock, () => ({
      perSecond: config.get('remote_media_download_per_second'),
      burstCount: config.get('remote_media_download_burst_count'),
    }));
    this.#places = new FetchPlaces(clock, {
      perServer: config.get('remote_media_downloads_per_server'),
      perUserAtServer: config.get('remote_media_downloads_per_user'),
    });
  }

  /**
   * Fetches a file and keeps it. Several who want the same file fetch it once.
   * @throws MatrixError 404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED`, 502 `M_TOO_LARGE`, 502 `M_UNKNOWN` when the other server
   *   cannot be reached, 504 `M_NOT_YET_UPLOADED`, and what a module refuses with
   */
  async fetch(download: RemoteDownload): Promise<Media> {
    const key = `${download.origin}/${download.mediaId}`;
    const fetching = this.#fetching.get(key);
    if (fetching !== undefined) return fetching;
    if (!(await this.#limiter.mayTake(limiterName, download.ip))) await this.#limiter.take(limiterName, download.ip);
    const place = { server: download.origin, holder: download.userId ?? networkOf(download.ip) };
    return this.#fetching.run(key, () => this.#places.run(place, () => this.#fetch(download)));
  }

  async #fetch(download: RemoteDownload): Promise<Media> {
    const kept = download.isNew ? await findMedia(this.database, download) : undefined;
    if (kept?.sizeBytes !== undefined) return kept;
    const maxBytes = this.config.get('max_upload_size');
    const file = await this.#ask(download, maxBytes);
    const tooLarge = (): MatrixError => MatrixError.remoteTooLarge();
    const staged = await this.files.stage();
    let chargedBytes = 0;
    // What came beyond what was announced is paid for afterwards, also where it was read for nothing: the next one will have to wait.
    const chargeRest = async (): Promise<void> => {
      const restBytes = staged.sizeBytes - chargedBytes;
      if (restBytes > 0) await this.#charge(download.ip, restBytes).catch(() => undefined);
    };
    try {
      if ((file.sizeBytes ?? 0) > maxBytes) throw tooLarge();
      if (file.sizeBytes !== undefined) {
        await this.#charge(download.ip, file.sizeBytes);
        chargedBytes = file.sizeBytes;
      }
      await this.#read(staged, file, download.origin, maxBytes, tooLarge).finally(chargeRest);
      return await this.#keep(download, file, staged);
    } catch (error) {
      endOf(file.body);
      await staged.discard();
      throw error;
    }
  }

  async #ask(download: RemoteDownload, maxBytes: number): Promise<RemoteFile> {
    const { origin, mediaId, timeoutMs } = download;
    const { given: fetcher } = this.ports.remoteMedia;
    if (fetcher === undefined) throw MatrixError.notFound('This server cannot reach other servers');
    let file: RemoteFile | undefined;
    try {
      file = await fetcher.fetch({ origin, mediaId, maxBytes, timeoutMs });
    } catch (error) {
      await this.#chargeFailure(download.ip);
      if (MatrixError.is(error)) throw error;
      throw this.#unreachable(origin, error);
    }
    if (file !== undefined) return file;
    await this.#chargeFailure(download.ip);
    throw MatrixError.notFound('The other server has no such file');
  }

  async #read(
    staged: StagedFile,
    file: RemoteFile,
    origin: string,
    maxBytes: number,
    tooLarge: () => MatrixError,
  ): Promise<void> {
    try {
      await staged.writeAll(file.body, this.clock, { maxBytes, tooLarge });
    } catch (error) {
      const cause = error as NodeJS.ErrnoException;
      // A disk that is full is not the other server's fault.
      if (MatrixError.is(error) || cause.syscall === 'write') throw error;
      throw this.#unreachable(origin, error);
    }
    await staged.finish();
  }

  async #keep(download: RemoteDownload, file: RemoteFile, staged: StagedFile): Promise<Media> {
    const { origin, mediaId } = download;
    const fileId = this.ids.letters(24);
    const place = placeOf({ origin, fileId, urlCache: undefined });
    const mediaType = claimedType(file.mediaType);
    const context = callbackContext(undefined, { source: 'federation', origin });
    const now = this.clock.nowMs();
    await this.intake.inspect(staged, place.info, mediaType, context);
    const media: Media = {
      origin,
      mediaId,
      fileId,
      mediaType,
      // Whether it is withheld is found out when it is recorded.
      quarantinedBy: undefined,
      sizeBytes: staged.sizeBytes,
      uploadName: cleanName(file.uploadName)?.slice(0, longestName),
      createdTs: now,
      lastAccessTs: now,
      uploader: undefined,
      safeFromQuarantine: false,
      authenticated: this.config.get('enable_authenticated_media'),
      sha256: staged.sha256,
      urlCache: undefined,
    };
    await this.files.keep(staged, place);
    let stored: Media | undefined;
    let mayBeThere = false;
    try {
      stored = await this.database.write(
        async (tx) => {
          await upsertRemoteMedia(tx, media);
          tx.unlessRolledBack(() => (mayBeThere = true));
          return findMedia(tx, media);
        },
        { name: 'store_remote_media', happened: (db) => isRemoteMediaStored(db, media) },
      );
    } catch (error) {
      if (!mayBeThere) await this.files.remove(place);
      throw error;
    }
    this.intake.stored(place.info, undefined, staged.sizeBytes, context);
    this.thumbnails.prepare(media);
    return stored ?? media;
  }

  /** Asking costs this server and others something, whatever comes of it: names of servers and files can be made up. */
  #chargeFailure(ip: string): Promise<void> {
    const cost = this.config.get('remote_media_download_burst_count') * failureShare;
    return this.#limiter.take(limiterName, ip, undefined, Math.max(1, cost)).catch(() => undefined);
  }

  /** A file larger than the whole bucket costs all of it. */
  #charge(ip: string, sizeBytes: number): Promise<void> {
    const burst = this.config.get('remote_media_download_burst_count');
    return this.#limiter.take(limiterName, ip, undefined, Math.min(sizeBytes, burst));
  }

  #unreachable(origin: string, error: unknown): MatrixError {
    this.logger.info('Media could not be fetched', { origin, err: error });
    return MatrixError.badGateway('The file could not be fetched from its server');
  }
}

/** Frees the connection that a body comes from. */
function endOf(body: AsyncIterable<Uint8Array>): void {
  const stream = body as { destroy?: () => void };
  if (typeof stream.destroy === 'function') return stream.destroy();
  // A generator that never began has nothing to end: it begins first.
  const pieces = body[Symbol.asyncIterator]();
  void pieces
    .next()
    .then(() => pieces.return?.())
    .catch(() => undefined);
}
