import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { callbackContext } from '@rookery/module-host';
import { Clock, Config, Ids, KeyedCounter, KeyedMutex, type Requester } from '@rookery/platform';
import { formatMxc, isValidMediaId, type Media } from '../records/media.js';
import { fillLocalMedia, findMedia, insertLocalMedia, pendingOf } from '../records/media.query.js';
import { placeOf } from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import { MediaIntake } from '../storage/media-intake.js';
import type { StagedFile } from '../storage/staged-file.js';
import { Thumbnails } from '../thumbnails/thumbnails.service.js';
import { Arrivals } from './arrivals.js';
import type { IncomingFile } from './incoming-file.js';
import { UploadLimits } from './upload-limits.js';

/** Uploads that one user may have under way. */
const maxAtOnce = 50;
const retryWhenBusyMs = 1_000;

/** A media id without a file. */
export interface ReservedMedia {
  readonly uri: string;
  /** Until when the file may be uploaded, milliseconds since the epoch. */
  readonly expiresTs: number;
}

/** Takes files from the users of this server. */
@Injectable()
export class UploadService {
  readonly #turns = new KeyedMutex();
  readonly #underWay = new KeyedCounter();
  readonly #filling = new Set<string>();

  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly rateLimiter: RateLimiter,
    private readonly limits: UploadLimits,
    private readonly files: MediaFiles,
    private readonly intake: MediaIntake,
    private readonly thumbnails: Thumbnails,
    private readonly arrivals: Arrivals,
  ) {}

  /**
   * Stores a file.
   * @returns its `mxc:` URI
   * @throws MatrixError 413 `M_TOO_LARGE`, 403 `M_USER_LIMIT_EXCEEDED`, 429 `M_LIMIT_EXCEEDED`, 408 `M_UNKNOWN` for a
   *   body that trickles, and what a module refuses with
   */
  async upload(requester: Requester, file: IncomingFile): Promise<string> {
    const mediaId = this.ids.letters(24);
    await this.#receive(requester, mediaId, file, async (media) => {
      await this.database.write((tx) => insertLocalMedia(tx, media), { name: 'store_media' });
      return true;
    });
    return formatMxc(this.config.serverName, mediaId);
  }

  /**
   * Reserves a media id for a file that comes later.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`: too often, or too many that got no file yet
   * @spec client-server-api#post_matrixmediav1create
   */
  async reserve(requester: Requester): Promise<ReservedMedia> {
    const { userId } = requester;
    await this.rateLimiter.take('rc_media_create', userId, requester);
    const lifetimeMs = this.config.get('unused_expiration_time');
    const maxPending = this.config.get('max_pending_media_uploads');
    const mediaId = this.ids.letters(24);
    const createdTs = this.clock.nowMs();
    await this.#turns.run(userId, () =>
      this.database.write(
        async (tx) => {
          const { count, oldestTs } = await pendingOf(tx, userId, createdTs - lifetimeMs);
          if (count >= maxPending)
            throw MatrixError.limitExceeded(Math.max(1, (oldestTs ?? createdTs) + lifetimeMs - createdTs));
          await insertLocalMedia(tx, {
            mediaId,
            createdTs,
            uploader: userId,
            authenticated: this.config.get('enable_authenticated_media'),
            mediaType: '',
            sizeBytes: undefined,
            uploadName: undefined,
            sha256: undefined,
            urlCache: undefined,
            quarantinedBy: undefined,
          });
        },
        { name: 'reserve_media' },
      ),
    );
    return { uri: formatMxc(this.config.serverName, mediaId), expiresTs: createdTs + lifetimeMs };
  }

  /**
   * Stores the file of a reserved id.
   * @throws MatrixError as {@link upload}; 404 `M_NOT_FOUND`, 403 `M_FORBIDDEN`, 409 `M_CANNOT_OVERWRITE_MEDIA`
   * @spec client-server-api#put_matrixmediav3uploadservernamemediaid
   */
  async fill(requester: Requester, server: string, mediaId: string, file: IncomingFile): Promise<void> {
    if (server !== this.config.serverName || !isValidMediaId(mediaId)) throw MatrixError.noSuchMedia();
    const reserved = await findMedia(this.database, { origin: undefined, mediaId });
    if (reserved === undefined) throw MatrixError.noSuchMedia();
    if (reserved.uploader !== requester.userId) throw MatrixError.forbidden('Somebody else reserved this media id');
    if (reserved.sizeBytes !== undefined || this.#filling.has(mediaId)) throw cannotOverwrite();
    if (reserved.createdTs + this.config.get('unused_expiration_time') <= this.clock.nowMs())
      throw MatrixError.notFound('The media id was not used in time');
    this.#filling.add(mediaId);
    try {
      // What was read before may be older than a file that another upload has put there meanwhile.
      if ((await findMedia(this.database, { origin: undefined, mediaId }))?.sizeBytes !== undefined)
        throw cannotOverwrite();
      await this.#receive(requester, mediaId, file, (media) =>
        this.database.write((tx) => fillLocalMedia(tx, media), { name: 'store_media' }),
      );
    } finally {
      this.#filling.delete(mediaId);
    }
    this.arrivals.arrived(mediaId);
  }

  async #receive(
    requester: Requester,
    mediaId: string,
    file: IncomingFile,
    record: (media: Media) => Promise<boolean>,
  ): Promise<void> {
    const { userId } = requester;
    if (this.#underWay.of(userId) >= maxAtOnce) throw MatrixError.limitExceeded(retryWhenBusyMs);
    this.#underWay.add(userId);
    try {
      if (file.sizeBytes !== undefined) await this.limits.check(requester, file.sizeBytes);
      const staged = await this.files.stage();
      try {
        await this.#read(staged, file);
        if (file.sizeBytes === undefined) await this.limits.check(requester, staged.sizeBytes);
        await this.#store(requester, mediaId, file, staged, record);
      } catch (error) {
        await staged.discard();
        throw error;
      }
    } finally {
      this.#underWay.remove(userId);
    }
  }

  async #read(staged: StagedFile, file: IncomingFile): Promise<void> {
    try {
      await staged.writeAll(file.body, this.clock, {
        maxBytes: this.limits.maxBytes,
        tooLarge: () => this.limits.tooLarge(),
      });
    } catch (error) {
      // What is left of the body flows by, so that the client can read the answer.
      file.body.on('error', () => undefined).resume();
      if (MatrixError.is(error) || !isBodyError(error)) throw error;
      throw MatrixError.bodyCutOff();
    }
    await staged.finish();
  }

  async #store(
    requester: Requester,
    mediaId: string,
    file: IncomingFile,
    staged: StagedFile,
    record: (media: Media) => Promise<boolean>,
  ): Promise<void> {
    const context = callbackContext(requester);
    const { userId: uploader } = requester;
    const place = placeOf({ origin: undefined, fileId: mediaId, urlCache: undefined });
    const quarantinedBy = await this.intake.inspect(staged, place.info, file.mediaType, context);
    const periods = await this.limits.periodsFor(requester);
    const now = this.clock.nowMs();
    const media: Media = {
      origin: undefined,
      mediaId,
      fileId: mediaId,
      sizeBytes: staged.sizeBytes,
      mediaType: file.mediaType,
      uploadName: file.uploadName,
      createdTs: now,
      lastAccessTs: now,
      uploader,
      quarantinedBy,
      safeFromQuarantine: false,
      authenticated: this.config.get('enable_authenticated_media'),
      sha256: staged.sha256,
      urlCache: undefined,
    };
    const store = async (): Promise<void> => {
      // Others of the same user may have arrived while this one did.
      await this.limits.checkPeriods(requester, staged.sizeBytes, periods);
      await this.files.keep(staged, place);
      try {
        if (!(await record(media))) throw cannotOverwrite();
      } catch (error) {
        await this.files.remove(place);
        throw error;
      }
    };
    await (periods.length === 0 ? store() : this.#turns.run(uploader, store));
    this.intake.stored(place.info, uploader, staged.sizeBytes, context);
    this.thumbnails.prepare(media);
  }
}

const cannotOverwrite = (): MatrixError => MatrixError.cannotOverwriteMedia();

/** Whether reading the request failed, as opposed to writing the file. */
const isBodyError = (error: unknown): boolean =>
  ['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ABORT_ERR', 'ERR_STREAM_DESTROYED'].includes(
    (error as NodeJS.ErrnoException | undefined)?.code ?? '',
  );
