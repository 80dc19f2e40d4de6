import { Controller, Delete, Get, Param, Post } from '@nestjs/common';
import { Inbound, type InboundRequest, queryBoolean, queryInteger, requiredQueryString } from '@rookery/http';
import { type MediaKey, MediaLibrary, MediaRemoval } from '@rookery/media';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

/** Times before this one, in 1970, are seconds that were meant to be milliseconds. */
const earliestTs = 30_000_000_000;

/** Files: what is known of them, and deleting them. */
@Controller()
@AdminAccess()
export class MediaFilesController {
  constructor(
    private readonly library: MediaLibrary,
    private readonly removal: MediaRemoval,
    private readonly config: Config,
  ) {}

  /** GET /_synapse/admin/v1/media/{serverName}/{mediaId} */
  @Get(admin('v1', '/media/:serverName/:mediaId'))
  async info(@Param('serverName') serverName: string, @Param('mediaId') mediaId: string): Promise<object> {
    const media = await this.library.find(this.#key(serverName, mediaId));
    if (!media) throw MatrixError.noSuchMedia();
    return {
      media_info: {
        media_origin: media.origin ?? null,
        user_id: media.uploader ?? null,
        media_id: media.mediaId,
        media_type: media.mediaType,
        media_length: media.sizeBytes ?? null,
        upload_name: media.uploadName ?? null,
        created_ts: media.createdTs,
        filesystem_id: media.origin === undefined ? null : media.fileId,
        url_cache: media.urlCache ?? null,
        last_access_ts: media.lastAccessTs ?? null,
        quarantined_by: media.quarantinedBy ?? null,
        authenticated: media.authenticated,
        safe_from_quarantine: media.safeFromQuarantine,
        sha256: media.sha256 ?? null,
      },
    };
  }

  /** DELETE /_synapse/admin/v1/media/{serverName}/{mediaId} */
  @Delete(admin('v1', '/media/:serverName/:mediaId'))
  async deleteOne(@Param('serverName') serverName: string, @Param('mediaId') mediaId: string): Promise<object> {
    this.#assertOurs(serverName);
    const deleted = await this.removal.deleteLocal([mediaId]);
    if (deleted.length === 0) throw MatrixError.noSuchMedia();
    return { deleted_media: deleted, total: deleted.length };
  }

  /** POST /_synapse/admin/v1/media/delete */
  @Post(admin('v1', '/media/delete'))
  async deleteOld(@Inbound() request: InboundRequest): Promise<object> {
    const deleted = await this.removal.deleteUnusedLocal({
      unusedSinceTs: timeBefore(request),
      largerThanBytes: queryInteger(request, 'size_gt') ?? 0,
      keepAvatars: queryBoolean(request, 'keep_profiles') ?? true,
      includeQuarantined: false,
      includeProtected: false,
    });
    return { deleted_media: deleted, total: deleted.length };
  }

  /** POST /_synapse/admin/v1/media/{serverName}/delete, the older form */
  @Post(admin('v1', '/media/:serverName/delete'))
  deleteOldOf(@Inbound() request: InboundRequest, @Param('serverName') serverName: string): Promise<object> {
    this.#assertOurs(serverName);
    return this.deleteOld(request);
  }

  /** POST /_synapse/admin/v1/purge_media_cache */
  @Post(admin('v1', '/purge_media_cache'))
  async purgeCache(@Inbound() request: InboundRequest): Promise<object> {
    return { deleted: await this.removal.deleteUnusedRemote(timeBefore(request), { includeQuarantined: false }) };
  }

  #key(serverName: string, mediaId: string): MediaKey {
    return { origin: serverName === this.config.serverName ? undefined : serverName, mediaId };
  }

  #assertOurs(serverName: string): void {
    if (serverName !== this.config.serverName) throw MatrixError.badRequest('Only media of this server can be deleted');
  }
}

function timeBefore(request: InboundRequest): number {
  requiredQueryString(request, 'before_ts');
  const ts = queryInteger(request, 'before_ts') ?? 0;
  if (ts < earliestTs) throw MatrixError.invalidParam("Query parameter 'before_ts' must be a time in milliseconds");
  return ts;
}
