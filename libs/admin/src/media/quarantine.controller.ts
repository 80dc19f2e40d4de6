import { Controller, Get, Param, Post } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import { isValidMediaId, isValidMediaServer, type MediaKey, Quarantine } from '@rookery/media';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { RoomMedia } from './room-media.js';

const changesPerPage = 100;

const changesQuery = queryOf({
  from: param.integer('Only changes behind this number.', { otherwise: 0 }),
});

/** Withholds files, and gives them back. */
@Controller()
@AdminAccess({ anyProcess: true })
export class QuarantineController {
  constructor(
    private readonly quarantine: Quarantine,
    private readonly rooms: RoomMedia,
    private readonly users: AdminTargets,
    private readonly config: Config,
  ) {}

  /** POST /_synapse/admin/v1/media/quarantine/{serverName}/{mediaId} */
  @Post(admin('v1', '/media/quarantine/:serverName/:mediaId'))
  async add(
    @Who() requester: Requester,
    @Param('serverName') serverName: string,
    @Param('mediaId') mediaId: string,
  ): Promise<object> {
    await this.quarantine.add([this.#key(serverName, mediaId)], requester.userId);
    return {};
  }

  /** POST /_synapse/admin/v1/media/unquarantine/{serverName}/{mediaId} */
  @Post(admin('v1', '/media/unquarantine/:serverName/:mediaId'))
  async remove(@Param('serverName') serverName: string, @Param('mediaId') mediaId: string): Promise<object> {
    await this.quarantine.remove([this.#key(serverName, mediaId)]);
    return {};
  }

  /** POST /_synapse/admin/v1/room/{roomId}/media/quarantine, and its older name /quarantine_media/{roomId} */
  @Post([admin('v1', '/room/:roomId/media/quarantine'), admin('v1', '/quarantine_media/:roomId')])
  async addOfRoom(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<object> {
    let changed = 0;
    for await (const keys of this.rooms.of(roomId)) changed += await this.quarantine.add(keys, requester.userId);
    return { num_quarantined: changed };
  }

  /** POST /_synapse/admin/v1/user/{userId}/media/quarantine */
  @Post(admin('v1', '/user/:userId/media/quarantine'))
  async addOfUser(@Who() requester: Requester, @Param('userId') userId: string): Promise<object> {
    const changed = await this.quarantine.addOfUser(this.users.localUserId(userId), requester.userId);
    return { num_quarantined: changed };
  }

  /** POST /_synapse/admin/v1/media/protect/{mediaId} */
  @Post(admin('v1', '/media/protect/:mediaId'))
  async protect(@Param('mediaId') mediaId: string): Promise<object> {
    await this.quarantine.protect(mediaId, true);
    return {};
  }

  /** POST /_synapse/admin/v1/media/unprotect/{mediaId} */
  @Post(admin('v1', '/media/unprotect/:mediaId'))
  async unprotect(@Param('mediaId') mediaId: string): Promise<object> {
    await this.quarantine.protect(mediaId, false);
    return {};
  }

  /** GET /_synapse/admin/v1/media/quarantine_changes */
  @Get(admin('v1', '/media/quarantine_changes'))
  async changes(@Query(changesQuery) query: InferQuery<typeof changesQuery>): Promise<object> {
    const { from } = query;
    if (from > (await this.quarantine.position())) throw MatrixError.invalidParam("'from' lies in the future");
    const changes = await this.quarantine.changesAfter(from, changesPerPage);
    return {
      next_batch: changes.at(-1)?.streamId ?? from,
      changes: changes.map(({ origin, mediaId, quarantined }) => ({
        origin: origin ?? this.config.serverName,
        media_id: mediaId,
        quarantined,
      })),
    };
  }

  #key(serverName: string, mediaId: string): MediaKey {
    if (!isValidMediaServer(serverName) || !isValidMediaId(mediaId)) throw MatrixError.noSuchMedia();
    return { origin: serverName === this.config.serverName ? undefined : serverName, mediaId };
  }
}
