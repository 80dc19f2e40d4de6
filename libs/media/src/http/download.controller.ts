import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  type HttpReply,
  Inbound,
  type InboundRequest,
  Who,
  type InferQuery,
  Query,
  param,
  queryOf,
} from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { clientMediaPath, mediaPaths } from './media-paths.js';
import { cleanName } from '../uploads/incoming-file.js';
import { downloadParams, type DownloadParams, downloadRequest, openDownloadParams } from './download-request.js';
import { Downloads } from '../downloads/downloads.service.js';
import { fileReply, headersOf, redirectReply } from './file-reply.js';

const downloadQuery = queryOf(downloadParams);
const openDownloadQuery = queryOf({
  ...openDownloadParams,
  allow_redirect: param.boolean('Whether the client may be sent to where the file is stored.', { otherwise: false }),
});

/** Downloads, with a token and without. */
@Controller()
export class DownloadController {
  constructor(private readonly downloads: Downloads) {}

  /** GET /_matrix/client/v1/media/download/{serverName}/{mediaId}[/{fileName}] */
  @Get([clientMediaPath('/download/:serverName/:mediaId'), clientMediaPath('/download/:serverName/:mediaId/:fileName')])
  @Access({ auth: 'required', guests: true, anyProcess: true })
  download(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(downloadQuery) query: InferQuery<typeof downloadQuery>,
    @Param() params: Record<string, string>,
  ): Promise<HttpReply> {
    return this.#answer(request, query, params, requester);
  }

  /** GET /_matrix/media/v3/download/{serverName}/{mediaId}[/{fileName}]: only what was stored before media needed a token */
  @Get([...mediaPaths('/download/:serverName/:mediaId'), ...mediaPaths('/download/:serverName/:mediaId/:fileName')])
  @Access({ auth: 'none', anyProcess: true })
  downloadWithoutToken(
    @Inbound() request: InboundRequest,
    @Query(openDownloadQuery) query: InferQuery<typeof openDownloadQuery>,
    @Param() params: Record<string, string>,
  ): Promise<HttpReply> {
    return this.#answer(request, query, params, undefined);
  }

  async #answer(
    request: InboundRequest,
    query: DownloadParams & { readonly allow_redirect?: boolean },
    { serverName = '', mediaId = '', fileName }: Record<string, string>,
    requester: Requester | undefined,
  ): Promise<HttpReply> {
    const download = downloadRequest(request, query, serverName, mediaId, requester);
    const media = await this.downloads.find(download);
    const name = cleanName(fileName) ?? media.uploadName;
    // Who needs no token is sent elsewhere by consent only; with a token clients have to expect it.
    if (requester !== undefined || query.allow_redirect === true) {
      const elsewhere = await this.downloads.elsewhere(media, headersOf(media.mediaType, name));
      if (elsewhere !== undefined) return redirectReply(elsewhere);
    }
    const file = await this.downloads.open(media, download);
    return fileReply(request, file, {
      mediaType: media.mediaType,
      name,
      etag: media.sha256 ?? media.fileId,
      authenticated: requester !== undefined,
    });
  }
}
