import { Controller, Get, Param } from '@nestjs/common';
import {
  HttpReply,
  Inbound,
  type InboundRequest,
  queryBoolean,
  queryChoice,
  queryInteger,
  requiredQueryString,
} from '@rookery/http';
import { Downloads, type DownloadRequest, type OpenFile, Thumbnails } from '@rookery/media';
import { Config, Ids } from '@rookery/platform';
import { Readable } from 'node:stream';
import { FederationAccess } from '../inbound/federation-access.js';

const uploadWaitMs = 20_000;
const longestUploadWaitMs = 60_000;
const largestPx = 8_192;

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
  async download(@Inbound() request: InboundRequest, @Param('mediaId') mediaId: string): Promise<HttpReply> {
    const download = this.#download(request, mediaId);
    const media = await this.downloads.find(download);
    return this.#reply(await this.downloads.open(media, download), media.mediaType, media.uploadName);
  }

  /** GET /_matrix/federation/v1/media/thumbnail/{mediaId} */
  @Get('/_matrix/federation/v1/media/thumbnail/:mediaId')
  @FederationAccess()
  async thumbnail(@Inbound() request: InboundRequest, @Param('mediaId') mediaId: string): Promise<HttpReply> {
    const pixels = (name: string): number => {
      requiredQueryString(request, name);
      return Math.min(queryInteger(request, name, { min: 1 }) ?? 1, largestPx);
    };
    const wanted = {
      ...{ widthPx: pixels('width'), heightPx: pixels('height') },
      method: queryChoice(request, 'method', ['crop', 'scale']) ?? 'scale',
      animated: queryBoolean(request, 'animated') ?? false,
    };
    const media = await this.downloads.find(this.#download(request, mediaId));
    const { thumbnail, file } = await this.thumbnails.open(media, wanted);
    return this.#reply(file, thumbnail.type, undefined);
  }

  #download(request: InboundRequest, mediaId: string): DownloadRequest {
    const bounds = { max: longestUploadWaitMs, clamp: true };
    return {
      ...{ server: this.config.serverName, mediaId, authenticated: true, ip: request.ip },
      timeoutMs: queryInteger(request, 'timeout_ms', bounds) ?? uploadWaitMs,
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
