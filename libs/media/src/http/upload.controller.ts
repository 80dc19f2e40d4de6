import { Controller, Param, Post, Put } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, Who, Query } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { mediaPaths } from './media-paths.js';
import { incomingFile, type UploadQuery, uploadQuery } from './upload-request.js';
import { UploadService } from '../uploads/upload.service.js';

/** Uploads. */
@Controller()
export class UploadController {
  constructor(private readonly uploads: UploadService) {}

  /** POST /_matrix/media/v3/upload */
  @Post(mediaPaths('/upload'))
  @Access({ auth: 'required', suspended: false, streamBody: true, anyProcess: true })
  async upload(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(uploadQuery) query: UploadQuery,
  ): Promise<object> {
    return { content_uri: await this.uploads.upload(requester, incomingFile(request, query)) };
  }

  /** POST /_matrix/media/v1/create */
  @Post('/_matrix/media/v1/create')
  @Access({ auth: 'required', suspended: false })
  async create(@Who() requester: Requester): Promise<object> {
    const { uri, expiresTs } = await this.uploads.reserve(requester);
    return { content_uri: uri, unused_expires_at: expiresTs };
  }

  /** PUT /_matrix/media/v3/upload/{serverName}/{mediaId} */
  @Put(mediaPaths('/upload/:serverName/:mediaId'))
  @Access({ auth: 'required', suspended: false, streamBody: true })
  async fill(
    @Who() requester: Requester,
    @Param('serverName') server: string,
    @Param('mediaId') mediaId: string,
    @Inbound() request: InboundRequest,
    @Query(uploadQuery) query: UploadQuery,
  ): Promise<object> {
    await this.uploads.fill(requester, server, mediaId, incomingFile(request, query));
    return {};
  }
}
