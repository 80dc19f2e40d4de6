/** What a file in the media repository is. */
export interface MediaFileInfo {
  /** The server whose media it is; `undefined` for our own. */
  readonly serverName: string | undefined;
  /** The server's own id of the file: the media id for our own, another one for remote media. */
  readonly fileId: string;
  /** Whether it belongs to a URL preview. */
  readonly urlCache: boolean;
  /** Set when it is a thumbnail. */
  readonly thumbnail?: ThumbnailInfo | undefined;
}

/** Sizes and type of a thumbnail. */
export interface ThumbnailInfo {
  readonly widthPx: number;
  readonly heightPx: number;
  readonly method: 'crop' | 'scale';
  /** Media type, for example `image/png`. */
  readonly type: string;
  readonly sizeBytes: number;
}

/** A file that can be read, as often as wanted, while the callback runs. */
export interface MediaFile {
  readonly sizeBytes: number;
  /** As the uploader claims. */
  readonly mediaType: string | undefined;
  /** The contents in pieces. */
  stream(): AsyncIterable<Uint8Array>;
}

/**
 * Another place where media is kept, beside the local disk. Look-up order: local disk, then the providers in the order of
 * the settings; a hit is copied to the local disk.
 */
export interface MediaStorageProvider {
  /**
   * Keeps a file.
   * @param path relative to the media store; unique for the file, `/` between segments
   * @param localPath absolute path of the file on the local disk, readable until the promise settles
   */
  storeFile(path: string, info: MediaFileInfo, localPath: string): Promise<void>;
  /** The contents, or `undefined` when this provider does not have the file: the next one is asked. */
  fetch(path: string, info: MediaFileInfo): Promise<AsyncIterable<Uint8Array> | undefined>;
  /** Forgets a file; one that is not there is no error. Providers that cannot delete leave it out. */
  remove?(path: string, info: MediaFileInfo): Promise<void>;
  /**
   * Where a client can get a file by itself for a while: it is sent there in place of being given the contents. `undefined` when this
   * provider does not have the file, or wants the server to give it. Asked for files that the local disk does not have; thumbnails, and
   * what other servers ask for, are always given by the server. Providers that only the server reaches leave it out.
   * @returns an `http` or `https` URL that answers with `headers`
   * @spec client-server-api#get_matrixclientv1mediadownloadservernamemediaid
   */
  downloadUrl?(path: string, info: MediaFileInfo, headers: MediaDownloadHeaders): Promise<string | undefined>;
}

/** What has to go out with the contents of a file, so that nothing in it runs in a browser that shows it. */
export interface MediaDownloadHeaders {
  readonly contentType: string;
  readonly contentDisposition: string;
}

/** What the server's settings say that concerns storage providers, as they were when it started. Plain data. */
export interface MediaServerSettings {
  /** `server_name` */
  readonly serverName: string;
  /** `public_baseurl`, with a slash at its end; `undefined` where the settings do not say. */
  readonly publicBaseurl: string | undefined;
  /** Folder of the settings: relative paths in a provider's configuration are best read from there, as the server's own are. */
  readonly configDir: string;
  /** `media_store_path`, absolute: the local disk's place of a file is its `path` below this. */
  readonly mediaStorePath: string;
  /** `enable_local_media_storage`: otherwise files lie there only on their way to and from the providers. */
  readonly keepsLocalFiles: boolean;
  /** `max_upload_size` */
  readonly maxUploadBytes: number;
  /** `max_image_pixels` */
  readonly maxImagePixels: number;
  /** `dynamic_thumbnails`: thumbnails come in any size, not in these only. */
  readonly dynamicThumbnails: boolean;
  /** `thumbnail_sizes` */
  readonly thumbnailSizes: readonly Pick<ThumbnailInfo, 'widthPx' | 'heightPx' | 'method'>[];
  /** `media_upload_limits` */
  readonly uploadLimits: readonly MediaUploadLimit[];
  /** `media_retention.local_media_lifetime`; `undefined` for ever. */
  readonly localMediaLifetimeMs: number | undefined;
  /** `media_retention.remote_media_lifetime`; `undefined` for ever. */
  readonly remoteMediaLifetimeMs: number | undefined;
}

/** How many bytes a user may upload in a period. */
export interface MediaUploadLimit {
  readonly maxBytes: number;
  readonly timePeriodMs: number;
  /** Page that tells users more, at an http or https address of at most 1,000 characters; the server's own when absent. */
  readonly infoUri?: string | undefined;
  /** Whether users can have a higher limit. */
  readonly canUpgrade?: boolean | undefined;
}
