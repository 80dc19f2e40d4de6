import { Injectable } from '@nestjs/common';
import { Port } from '@rookery/platform';

/** What is asked of another server. */
export interface RemoteMediaRequest {
  readonly origin: string;
  readonly mediaId: string;
  /** Larger files are refused, by their announced or their real size. */
  readonly maxBytes: number;
  /** How long the other server should wait for a file that was not uploaded yet. */
  readonly timeoutMs: number;
}

/** A file of another server, as it arrives. */
export interface RemoteFile {
  /** As the other server claims; checked by whoever stores it. */
  readonly mediaType: string | undefined;
  readonly uploadName: string | undefined;
  /** As announced; `undefined` where the other server does not say. */
  readonly sizeBytes: number | undefined;
  /** Must be read to its end or destroyed. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** Fetches files from other servers. Implemented where federation is known. */
export abstract class RemoteMediaFetcher {
  /**
   * @returns `undefined` when the other server has no such file
   * @throws MatrixError 504 `M_NOT_YET_UPLOADED`, 502 `M_TOO_LARGE`; any other error means that it cannot be reached
   */
  abstract fetch(request: RemoteMediaRequest): Promise<RemoteFile | undefined>;
}

/** What this lib needs of those above it. */
@Injectable()
export class MediaPorts {
  readonly remoteMedia = new Port<RemoteMediaFetcher>('remote_media', 'required');
}
