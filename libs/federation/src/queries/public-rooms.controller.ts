import { Controller, Get, Post } from '@nestjs/common';
import { type Infer, type InferQuery, param, Query, queryOf } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { RoomDirectory } from '@rookery/rooms';
import { FederationAccess, SignedContent } from '../inbound/federation-access.js';

const searchBody = RoomDirectory.request;

const listQuery = queryOf({
  limit: param.integer('How many entries at most.'),
  since: param.string('Where the page begins: a token of an earlier answer.'),
  include_all_networks: param.boolean('Whether rooms of all networks are listed.'),
  third_party_instance_id: param.string('Only rooms of this network.'),
});

/** The directory of published rooms, for other servers. */
@Controller()
export class PublicRoomsForServersController {
  constructor(
    private readonly config: Config,
    private readonly directory: RoomDirectory,
  ) {}

  /** GET /_matrix/federation/v1/publicRooms */
  @Get('/_matrix/federation/v1/publicRooms')
  @FederationAccess()
  list(@Query(listQuery) query: InferQuery<typeof listQuery>): Promise<JsonObject> {
    return this.#answer({
      limit: query.limit,
      since: query.since,
      include_all_networks: query.include_all_networks,
      third_party_instance_id: query.third_party_instance_id,
    });
  }

  /** POST /_matrix/federation/v1/publicRooms */
  @Post('/_matrix/federation/v1/publicRooms')
  @FederationAccess()
  search(@SignedContent(searchBody) body: Infer<typeof searchBody>): Promise<JsonObject> {
    return this.#answer(body);
  }

  #answer(wanted: Parameters<RoomDirectory['search']>[0]): Promise<JsonObject> {
    if (!this.config.get('allow_public_rooms_over_federation'))
      throw MatrixError.forbidden('The room directory is not shown to other servers');
    return this.directory.search(wanted, undefined, true);
  }
}
