import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  type HttpReply,
  Inbound,
  type InboundRequest,
  queryBoolean,
  queryChoice,
  queryInteger,
  requiredQueryString,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { downloadRequest } from './download-request.js';
import { Downloads } from '../downloads/downloads.service.js';
import { fileReply } from './file-reply.js';
import { clientMediaPath, mediaPaths } from './media-paths.js';
import { Thumbnails, type ThumbnailRequest } from '../thumbnails/thumbnails.service.js';

const largestPx = 8_192;
const extensions: Readonly<Record<string, string>> = { 'image/png': 'png', 'image/webp': 'webp', 'image/gif': 'gif' };

/** Thumbnails, with a token and without. */
@Controller()
export class ThumbnailController {
  constructor(
    private readonly downloads: Downloads,
    private readonly thumbnails: Thumbnails,
  ) {}

  /** GET /_matrix/client/v1/media/thumbnail/{serverName}/{mediaId} */
  @Get(clientMediaPath('/thumbnail/:serverName/:mediaId'))
  @Access({ auth: 'required', guests: true })
  thumbnail(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('serverName') server: string,
    @Param('mediaId') mediaId: string,
  ): Promise<HttpReply> {
    return this.#answer(request, server, mediaId, requester);
  }

  /** GET /_matrix/media/v3/thumbnail/{serverName}/{mediaId}: only of what was stored before media needed a token */
  @Get(mediaPaths('/thumbnail/:serverName/:mediaId'))
  @Access({ auth: 'none' })
  thumbnailWithoutToken(
    @Inbound() request: InboundRequest,
    @Param('serverName') server: string,
    @Param('mediaId') mediaId: string,
  ): Promise<HttpReply> {
    return this.#answer(request, server, mediaId, undefined);
  }

  async #answer(
    request: InboundRequest,
    server: string,
    mediaId: string,
    requester: Requester | undefined,
  ): Promise<HttpReply> {
    const wanted = thumbnailRequest(request);
    const download = downloadRequest(request, server, mediaId, requester);
    const media = await this.downloads.find(download);
    const { thumbnail, file } = await this.thumbnails.open(media, wanted).catch(async (error: unknown) => {
      if (media.origin === undefined || !MatrixError.is(error) || error.status !== 404) throw error;
      return this.thumbnails.open(await this.downloads.refetch(download), wanted);
    });
    const { widthPx, heightPx, method, type } = thumbnail;
    return fileReply(request, file, {
      mediaType: type,
      name: `thumbnail.${extensions[type] ?? 'jpg'}`,
      etag: `${media.sha256 ?? media.fileId}-${widthPx}-${heightPx}-${method}-${type.replace('/', '-')}`,
      authenticated: requester !== undefined,
    });
  }
}

/** @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM` */
function thumbnailRequest(request: InboundRequest): ThumbnailRequest {
  const pixels = (name: string): number => {
    requiredQueryString(request, name);
    return Math.min(queryInteger(request, name, { min: 1 }) ?? 1, largestPx);
  };
  return {
    widthPx: pixels('width'),
    heightPx: pixels('height'),
    method: queryChoice(request, 'method', ['crop', 'scale']) ?? 'scale',
    animated: queryBoolean(request, 'animated') ?? false,
  };
}
