import { Controller, Get, Param } from '@nestjs/common';
import { HttpReply, Inbound, type InboundRequest, type InferQuery, param, Query, queryOf } from '@rookery/http';
import { Downloads, type DownloadRequest, type OpenFile, Thumbnails } from '@rookery/media';
import { Config, Ids } from '@rookery/platform';
import { Readable } from 'node:stream';
import { FederationAccess } from '../inbound/federation-access.js';

const uploadWaitMs = 20_000;
const longestUploadWaitMs = 60_000;
const largestPx = 8_192;

const downloadParams = {
  timeout_ms: param.integer('How long to wait for a file that is still to come, milliseconds.', {
    max: longestUploadWaitMs,
    clamp: true,
    otherwise: uploadWaitMs,
  }),
};
const downloadQuery = queryOf(downloadParams);

const thumbnailQuery = queryOf({
  ...downloadParams,
  width: param.integer('How wide it should be, pixels.', { min: 1, required: true }),
  height: param.integer('How high it should be, pixels.', { min: 1, required: true }),
  method: param.choice('Whether the picture may be cropped.', ['crop', 'scale'], { otherwise: 'scale' }),
  animated: param.boolean('Whether it may move.', { otherwise: false }),
});

/** Media of this server for other servers: a description, then the content. */
@Controller()
export class MediaForServersController {
  constructor(
    private readonly config: Config,
    private readonly ids: Ids,
    private readonly downloads: Downloads,
    private readonly thumbnails: Thumbnails,
  ) {}

  /** GET /_matrix/federation/v1/media/download/{mediaId} */
  @Get('/_matrix/federation/v1/media/download/:mediaId')
  @FederationAccess()
  async download(
    @Inbound() request: InboundRequest,
    @Query(downloadQuery) query: InferQuery<typeof downloadQuery>,
    @Param('mediaId') mediaId: string,
  ): Promise<HttpReply> {
    const download = this.#download(request, mediaId, query.timeout_ms);
    const media = await this.downloads.find(download);
    return this.#reply(await this.downloads.open(media, download), media.mediaType, media.uploadName);
  }

  /** GET /_matrix/federation/v1/media/thumbnail/{mediaId} */
  @Get('/_matrix/federation/v1/media/thumbnail/:mediaId')
  @FederationAccess()
  async thumbnail(
    @Inbound() request: InboundRequest,
    @Query(thumbnailQuery) query: InferQuery<typeof thumbnailQuery>,
    @Param('mediaId') mediaId: string,
  ): Promise<HttpReply> {
    const wanted = {
      ...{ widthPx: Math.min(query.width, largestPx), heightPx: Math.min(query.height, largestPx) },
      method: query.method,
      animated: query.animated,
    };
    const media = await this.downloads.find(this.#download(request, mediaId, query.timeout_ms));
    const { thumbnail, file } = await this.thumbnails.open(media, wanted);
    return this.#reply(file, thumbnail.type, undefined);
  }

  #download(request: InboundRequest, mediaId: string, timeoutMs: number): DownloadRequest {
    return {
      ...{ server: this.config.serverName, mediaId, authenticated: true, ip: request.ip },
      timeoutMs,
      // Made only for those who have to wait.
      get signal() {
        return request.signal;
      },
    };
  }

  #reply(file: OpenFile, mediaType: string, name: string | undefined): HttpReply {
    const boundary = this.ids.letters(32);
    const head = Buffer.from(
      `--${boundary}\r\nContent-Type: application/json\r\n\r\n{}\r\n--${boundary}\r\n` +
        `Content-Type: ${headerText(mediaType)}\r\nContent-Disposition: ${dispositionOf(name)}\r\n` +
        `Content-Length: ${file.sizeBytes}\r\n\r\n`,
    );
    const tail = Buffer.from(`\r\n--${boundary}--\r\n`);
    const body = Readable.from(wrapped(head, file, tail), { objectMode: false });
    // Also when nobody began to read.
    body.once('close', () => void file.close().catch(() => undefined));
    return new HttpReply(
      200,
      {
        'content-type': `multipart/mixed; boundary=${boundary}`,
        'content-length': String(head.length + file.sizeBytes + tail.length),
      },
      body,
    );
  }
}

async function* wrapped(head: Buffer, file: OpenFile, tail: Buffer): AsyncGenerator<Buffer> {
  yield head;
  if (file.sizeBytes > 0) yield* file.stream() as AsyncIterable<Buffer>;
  yield tail;
}

/** No line of a header can be broken by what an uploader claimed. */
const headerText = (text: string): string => text.replace(/[^\x20-\x7e]/g, '');

const dispositionOf = (name: string | undefined): string =>
  name === undefined || name === '' ? 'inline' : `inline; filename*=utf-8''${encodeURIComponent(name.toWellFormed())}`;
