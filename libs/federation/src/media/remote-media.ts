import { Injectable } from '@nestjs/common';
import { FederationMedia, FederationRequestError, type RemoteContent } from '@rookery/federation-client';
import { MatrixError } from '@rookery/matrix-types';
import { MediaPorts, type RemoteFile, RemoteMediaFetcher, type RemoteMediaRequest } from '@rookery/media';

/** For the transfer itself, beyond the time that the other server may wait for an upload. */
const transferMs = 120_000;

/** Brings media from the servers that have them. */
@Injectable()
export class FederationMediaFetcher extends RemoteMediaFetcher {
  constructor(
    private readonly media: FederationMedia,
    ports: MediaPorts,
  ) {
    super();
    ports.remoteMedia.give(this);
  }

  async fetch({ origin, mediaId, maxBytes, timeoutMs }: RemoteMediaRequest): Promise<RemoteFile | undefined> {
    try {
      const content = await this.media.download({
        ...{ destination: origin, mediaId, maxBytes },
        ...{ uploadWaitMs: timeoutMs, timeoutMs: timeoutMs + transferMs },
      });
      return {
        mediaType: content.contentType,
        uploadName: fileNameOf(content.contentDisposition),
        sizeBytes: content.sizeBytes,
        body: readable(content),
      };
    } catch (error) {
      if (error instanceof FederationRequestError && error.status === 404) return undefined;
      throw told(error);
    }
  }
}

async function* readable({ body }: RemoteContent): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of body) yield chunk as Uint8Array;
  } catch (error) {
    throw told(error);
  } finally {
    body.destroy();
  }
}

function told(error: unknown): unknown {
  if (!(error instanceof FederationRequestError)) return error;
  if (error.reason === 'too_large') return MatrixError.remoteTooLarge();
  if (error.errcode === 'M_NOT_YET_UPLOADED') return MatrixError.notYetUploaded();
  return error.toMatrixError();
}

/** The name that a `Content-Disposition` gives; the form with an encoding wins. RFC 6266 */
export function fileNameOf(disposition: string | undefined): string | undefined {
  if (disposition === undefined || disposition.length > 4_096) return undefined;
  const encoded = /;\s*filename\*\s*=\s*utf-8'[^']*'([^\s;]+)/i.exec(disposition)?.[1];
  if (encoded !== undefined) {
    try {
      return decodeURIComponent(encoded);
    } catch {
      // The other form may do.
    }
  }
  const match = /;\s*filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))/i.exec(disposition);
  const name = match?.[1]?.replace(/\\(.)/g, '$1') ?? match?.[2];
  // Header fields arrive byte by byte; many servers write UTF-8 into them.
  return name === undefined ? undefined : Buffer.from(name, 'latin1').toString('utf8');
}
