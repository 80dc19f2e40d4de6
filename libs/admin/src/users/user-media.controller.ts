import { Controller, Delete, Get, Param } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { type Media, MediaLibrary, type MediaPage, MediaRemoval, userMediaOrders } from '@rookery/media';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { nextFrom, type Page, pageOf, pageParams } from '../http/paging.js';

const listQuery = queryOf({
  ...pageParams,
  order_by: param.choice('What the list is ordered by; the newest come first where nothing is said.', userMediaOrders),
  dir: param.choice('Forwards (`f`) or backwards (`b`).', ['f', 'b']),
});
type ListQuery = InferQuery<typeof listQuery>;

/** The files that a user has uploaded. */
@Controller()
@AdminAccess()
export class UserMediaController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly library: MediaLibrary,
    private readonly removal: MediaRemoval,
  ) {}

  /** GET /_synapse/admin/v1/users/{userId}/media */
  @Get(admin('v1', '/users/:userId/media'))
  async list(@Query(listQuery) query: ListQuery, @Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const page = pageOf(query);
    const { media, total } = await this.library.ofUser(userId, selectionOf(query, page));
    const next = nextFrom(page, total);
    return { media: media.map(toWire), total, ...(next !== undefined && { next_token: next }) };
  }

  /** DELETE /_synapse/admin/v1/users/{userId}/media */
  @Delete(admin('v1', '/users/:userId/media'))
  async delete(@Query(listQuery) query: ListQuery, @Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const { media } = await this.library.ofUser(userId, selectionOf(query, pageOf(query)));
    const deleted = await this.removal.deleteLocal(media.map(({ mediaId }) => mediaId));
    return { deleted_media: deleted, total: deleted.length };
  }
}

/** Who asks for no order gets the newest files first. */
function selectionOf({ order_by: orderBy, dir }: ListQuery, page: Page): MediaPage {
  const direction = dir ?? (orderBy === undefined ? 'b' : 'f');
  return { offset: page.from, limit: page.limit, orderBy: orderBy ?? 'created_ts', descending: direction === 'b' };
}

const toWire = (media: Media): object => ({
  media_id: media.mediaId,
  media_type: media.mediaType,
  media_length: media.sizeBytes ?? null,
  upload_name: media.uploadName ?? null,
  created_ts: media.createdTs,
  url_cache: media.urlCache ?? null,
  last_access_ts: media.lastAccessTs ?? null,
  quarantined_by: media.quarantinedBy ?? null,
  safe_from_quarantine: media.safeFromQuarantine,
  user_id: media.uploader ?? null,
  authenticated: media.authenticated,
  sha256: media.sha256 ?? null,
});
