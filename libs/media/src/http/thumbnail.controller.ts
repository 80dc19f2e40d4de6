import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  type HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { downloadParams, downloadRequest, openDownloadParams } from './download-request.js';
import { Downloads } from '../downloads/downloads.service.js';
import { fileReply } from './file-reply.js';
import { clientMediaPath, mediaPaths } from './media-paths.js';
import { type ThumbnailRequest, Thumbnails } from '../thumbnails/thumbnails.service.js';

const largestPx = 8_192;
const extensions: Readonly<Record<string, string>> = { 'image/png': 'png', 'image/webp': 'webp', 'image/gif': 'gif' };

const thumbnailParams = {
  width: param.integer('How wide it should be, pixels.', { min: 1, required: true }),
  height: param.integer('How high it should be, pixels.', { min: 1, required: true }),
  method: param.choice('Whether the picture may be cropped.', ['crop', 'scale'], { otherwise: 'scale' }),
  animated: param.boolean('Whether it may move.', { otherwise: false }),
};
const thumbnailQuery = queryOf({ ...thumbnailParams, ...downloadParams });
const openThumbnailQuery = queryOf({ ...thumbnailParams, ...openDownloadParams });

/** Thumbnails, with a token and without. */
@Controller()
export class ThumbnailController {
  constructor(
    private readonly downloads: Downloads,
    private readonly thumbnails: Thumbnails,
  ) {}

  /** GET /_matrix/client/v1/media/thumbnail/{serverName}/{mediaId} */
  @Get(clientMediaPath('/thumbnail/:serverName/:mediaId'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  thumbnail(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(thumbnailQuery) query: InferQuery<typeof thumbnailQuery>,
    @Param('serverName') server: string,
    @Param('mediaId') mediaId: string,
  ): Promise<HttpReply> {
    return this.#answer(request, query, server, mediaId, requester);
  }

  /** GET /_matrix/media/v3/thumbnail/{serverName}/{mediaId}: only of what was stored before media needed a token */
  @Get(mediaPaths('/thumbnail/:serverName/:mediaId'))
  @Access({ auth: 'none', anyProcess: true })
  thumbnailWithoutToken(
    @Inbound() request: InboundRequest,
    @Query(openThumbnailQuery) query: InferQuery<typeof openThumbnailQuery>,
    @Param('serverName') server: string,
    @Param('mediaId') mediaId: string,
  ): Promise<HttpReply> {
    return this.#answer(request, query, server, mediaId, undefined);
  }

  async #answer(
    request: InboundRequest,
    query: InferQuery<typeof thumbnailQuery> | InferQuery<typeof openThumbnailQuery>,
    server: string,
    mediaId: string,
    requester: Requester | undefined,
  ): Promise<HttpReply> {
    const wanted: ThumbnailRequest = {
      widthPx: Math.min(query.width, largestPx),
      heightPx: Math.min(query.height, largestPx),
      method: query.method,
      animated: query.animated,
    };
    const download = downloadRequest(request, query, server, mediaId, requester);
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
