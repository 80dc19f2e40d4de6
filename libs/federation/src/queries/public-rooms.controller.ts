import { Controller, Get, Post } from '@nestjs/common';
import { compileSchema, Inbound, type InboundRequest, queryBoolean, queryInteger, queryString } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type PublicRoomsRequest, RoomDirectory } from '@rookery/rooms';
import { FederationAccess, SignedContent } from '../inbound/federation-access.js';

const checkSearch = compileSchema({
  properties: {
    limit: { type: 'integer', minimum: 0 },
    since: { type: 'string' },
    filter: {
      type: 'object',
      properties: {
        generic_search_term: { type: ['string', 'null'] },
        room_types: { type: ['array', 'null'], maxItems: 100, items: { type: ['string', 'null'] } },
      },
    },
    include_all_networks: { type: 'boolean' },
    third_party_instance_id: { type: 'string' },
  },
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
  list(@Inbound() request: InboundRequest): Promise<JsonObject> {
    return this.#answer({
      limit: queryInteger(request, 'limit'),
      since: queryString(request, 'since'),
      include_all_networks: queryBoolean(request, 'include_all_networks'),
      third_party_instance_id: queryString(request, 'third_party_instance_id'),
    });
  }

  /** POST /_matrix/federation/v1/publicRooms */
  @Post('/_matrix/federation/v1/publicRooms')
  @FederationAccess()
  search(@SignedContent() content: JsonObject): Promise<JsonObject> {
    checkSearch(content);
    return this.#answer(content as PublicRoomsRequest);
  }

  #answer(wanted: PublicRoomsRequest): Promise<JsonObject> {
    if (!this.config.get('allow_public_rooms_over_federation'))
      throw MatrixError.forbidden('The room directory is not shown to other servers');
    return this.directory.search(wanted, undefined, true);
  }
}
