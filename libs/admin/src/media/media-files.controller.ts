import { Controller, Delete, Get, Param, Post } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { type MediaKey, MediaLibrary, MediaRemoval } from '@rookery/media';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

/** Times before this one, in 1970, are seconds that were meant to be milliseconds. */
const earliestTs = 30_000_000_000;

const beforeTs = param.integer('Only files that nobody has asked for since then, milliseconds.', {
  required: true,
});
const purgeQuery = queryOf({ before_ts: beforeTs });
const deleteOldQuery = queryOf({
  before_ts: beforeTs,
  size_gt: param.integer('Only files of more bytes.', { otherwise: 0 }),
  keep_profiles: param.boolean('Whether files stay that are pictures of people or rooms.', { otherwise: true }),
});

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
  async deleteOld(@Query(deleteOldQuery) query: InferQuery<typeof deleteOldQuery>): Promise<object> {
    const deleted = await this.removal.deleteUnusedLocal({
      unusedSinceTs: timeBefore(query.before_ts),
      largerThanBytes: query.size_gt,
      keepAvatars: query.keep_profiles,
      includeQuarantined: false,
      includeProtected: false,
    });
    return { deleted_media: deleted, total: deleted.length };
  }

  /** POST /_synapse/admin/v1/media/{serverName}/delete, the older form */
  @Post(admin('v1', '/media/:serverName/delete'))
  deleteOldOf(
    @Query(deleteOldQuery) query: InferQuery<typeof deleteOldQuery>,
    @Param('serverName') serverName: string,
  ): Promise<object> {
    this.#assertOurs(serverName);
    return this.deleteOld(query);
  }

  /** POST /_synapse/admin/v1/purge_media_cache */
  @Post(admin('v1', '/purge_media_cache'))
  async purgeCache(@Query(purgeQuery) query: InferQuery<typeof purgeQuery>): Promise<object> {
    return {
      deleted: await this.removal.deleteUnusedRemote(timeBefore(query.before_ts), { includeQuarantined: false }),
    };
  }

  #key(serverName: string, mediaId: string): MediaKey {
    return { origin: serverName === this.config.serverName ? undefined : serverName, mediaId };
  }

  #assertOurs(serverName: string): void {
    if (serverName !== this.config.serverName) throw MatrixError.badRequest('Only media of this server can be deleted');
  }
}

function timeBefore(ts: number): number {
  if (ts < earliestTs) throw MatrixError.invalidParam("Query parameter 'before_ts' must be a time in milliseconds");
  return ts;
}
