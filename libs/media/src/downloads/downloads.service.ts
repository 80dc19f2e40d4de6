import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { MediaDownloadHeaders } from '@rookery/module-api';
import { Config, Logger } from '@rookery/platform';
import { isValidMediaId, isValidMediaServer, type Media } from '../records/media.js';
import { findMedia } from '../records/media.query.js';
import { placeOf } from '../storage/file-place.js';
import { MediaFiles, type OpenFile } from '../storage/media-files.js';
import { AccessTimes } from '../records/access-times.js';
import { Arrivals } from '../uploads/arrivals.js';
import { RemoteMedia } from './remote-media.service.js';

/** Who asks for a file, and how. */
export interface DownloadRequest {
  readonly server: string;
  readonly mediaId: string;
  /** The request carried a token: media for logged-in users is shown. */
  readonly authenticated: boolean;
  /** Whether other servers may be asked. Default true. */
  readonly allowRemote?: boolean | undefined;
  /** How long to wait for a file that was not uploaded yet. */
  readonly timeoutMs: number;
  readonly ip: string;
  /** Who is logged in. */
  readonly userId?: string | undefined;
  readonly signal: AbortSignal;
  /** An administrator wants to see what is withheld from all others. */
  readonly evenQuarantined?: boolean;
}

/** Finds files for those who may see them. */
@Injectable()
export class Downloads {
  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly files: MediaFiles,
    private readonly remote: RemoteMedia,
    private readonly arrivals: Arrivals,
    private readonly accessTimes: AccessTimes,
    private readonly logger: Logger,
  ) {}

  /**
   * The row of a file that may be shown, whose contents are here or were just fetched.
   * @throws MatrixError 404 `M_NOT_FOUND`: unknown, withheld or for logged-in users only; 504 `M_NOT_YET_UPLOADED`; and
   *   what {@link RemoteMedia.fetch} throws
   */
  async find(download: DownloadRequest): Promise<Media> {
    const { server, mediaId } = download;
    if (!isValidMediaServer(server) || !isValidMediaId(mediaId)) throw notFound();
    const media = server === this.config.serverName ? await this.#local(download) : await this.#remote(download);
    this.accessTimes.note(media);
    return media;
  }

  /**
   * The contents of a file that {@link find} gave.
   * @throws MatrixError as {@link find}
   */
  async open(media: Media, download: DownloadRequest): Promise<OpenFile> {
    const opened = await this.files.open(placeOf(media));
    if (opened !== undefined) return opened;
    if (media.origin === undefined) {
      this.logger.warn('The file of a medium is missing', { media_id: media.mediaId });
      throw notFound();
    }
    const again = await this.files.open(placeOf(await this.refetch(download)));
    if (again === undefined) throw notFound();
    return again;
  }

  /** Where a client gets the contents of a file that {@link find} gave by itself; `undefined` when it gets them from here. */
  elsewhere(media: Media, headers: MediaDownloadHeaders): Promise<string | undefined> {
    return this.files.elsewhere(placeOf(media), headers);
  }

  /**
   * Fetches a file of another server again: its row is here, but its contents are not.
   * @throws MatrixError as {@link find}
   */
  async refetch(download: DownloadRequest): Promise<Media> {
    if (download.server === this.config.serverName) throw notFound();
    return this.#fetch(download);
  }

  async #local(download: DownloadRequest): Promise<Media> {
    const key = { origin: undefined, mediaId: download.mediaId };
    const found = await findMedia(this.database, key);
    if (found === undefined) throw notFound();
    this.#mayShow(found, download);
    if (found.sizeBytes !== undefined) return found;
    if (this.arrivals.isOver(found)) throw notFound();
    this.database.onlyAtWriter('waiting for an upload');
    const arrived = await this.arrivals.wait(download.mediaId, download.timeoutMs, download.signal, async () => {
      const media = await findMedia(this.database, key);
      return media === undefined || media.sizeBytes !== undefined ? { media } : undefined;
    });
    if (arrived === undefined) throw MatrixError.notYetUploaded();
    if (arrived.media === undefined) throw notFound();
    this.#mayShow(arrived.media, download);
    return arrived.media;
  }

  async #remote(download: DownloadRequest): Promise<Media> {
    if (this.config.get('prevent_media_downloads_from').includes(download.server)) throw notFound();
    const found = await findMedia(this.database, { origin: download.server, mediaId: download.mediaId });
    if (found !== undefined) {
      this.#mayShow(found, download);
      if (found.sizeBytes !== undefined) return found;
    }
    return this.#fetch(download, true);
  }

  /** @param isNew nothing of it was here; otherwise it is fetched whatever is */
  async #fetch(download: DownloadRequest, isNew = false): Promise<Media> {
    if (download.allowRemote === false) throw notFound();
    // What would be kept for logged-in users only is not fetched for others.
    if (!download.authenticated && this.config.get('enable_authenticated_media')) throw notFound();
    this.database.onlyAtWriter('media of other servers');
    const { server: origin, mediaId, timeoutMs, ip, userId } = download;
    const fetched = await this.remote.fetch({ origin, mediaId, timeoutMs, ip, userId, isNew });
    this.#mayShow(fetched, download);
    return fetched;
  }

  #mayShow(media: Media, download: DownloadRequest): void {
    if (media.quarantinedBy !== undefined && download.evenQuarantined !== true) throw notFound();
    if (media.authenticated && !download.authenticated && this.config.get('enable_authenticated_media'))
      throw notFound();
  }
}

/** The same for everything that is not shown, so that nobody learns why. */
const notFound = (): MatrixError => MatrixError.noSuchMedia();
