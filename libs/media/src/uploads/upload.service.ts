import { Injectable } from '@nestjs/common';
import { Database, type WriteOptions } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, KeyedMutex, type Requester } from '@rookery/platform';
import { formatMxc, isValidMediaId, type Media } from '../records/media.js';
import { fillLocalMedia, findMedia, insertLocalMedia, isLocalMediaStored, pendingOf } from '../records/media.query.js';
import { Arrivals } from './arrivals.js';
import { FileReceiver } from './file-receiver.js';
import type { IncomingFile } from './incoming-file.js';

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
  readonly #filling = new Set<string>();

  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly rateLimiter: RateLimiter,
    private readonly receiving: FileReceiver,
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
    await this.receiving.receive(requester, mediaId, file, (media, mayBeThere) =>
      this.database.write(
        async (tx) => {
          await insertLocalMedia(tx, media);
          tx.unlessRolledBack(mayBeThere);
          return true;
        },
        { ...storing(media), anyProcess: true },
      ),
    );
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
          });
        },
        { name: 'reserve_media' },
      ),
    );
    return { uri: formatMxc(this.config.serverName, mediaId), expiresTs: this.arrivals.endTs({ createdTs }) };
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
    if (this.arrivals.isOver(reserved)) throw MatrixError.notFound('The media id was not used in time');
    this.#filling.add(mediaId);
    try {
      // What was read before may be older than a file that another upload has put there meanwhile.
      if ((await findMedia(this.database, { origin: undefined, mediaId }))?.sizeBytes !== undefined)
        throw cannotOverwrite();
      await this.receiving.receive(requester, mediaId, file, (media, mayBeThere) =>
        this.database.write(async (tx) => {
          const isFilled = await fillLocalMedia(tx, media);
          if (isFilled) tx.unlessRolledBack(mayBeThere);
          return isFilled;
        }, storing(media)),
      );
    } finally {
      this.#filling.delete(mediaId);
    }
    this.arrivals.arrived(mediaId);
  }
}

const storing = ({ mediaId, sha256 }: Media): WriteOptions => ({
  name: 'store_media',
  happened: (db) => isLocalMediaStored(db, mediaId, sha256),
});

const cannotOverwrite = (): MatrixError => MatrixError.cannotOverwriteMedia();
