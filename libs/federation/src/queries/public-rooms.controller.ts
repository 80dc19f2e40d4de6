import { Controller, Get, Post } from '@nestjs/common';
import { compileSchema, Inbound, type InboundRequest, queryBoolean, queryInteger, queryString } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type PublicRoomsRequest, publicRoomsSchema, RoomDirectory } from '@rookery/rooms';
import { FederationAccess, SignedContent } from '../inbound/federation-access.js';

const checkSearch = compileSchema(publicRoomsSchema);

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
    return this.#answer(checkSearch(content));
  }

  #answer(wanted: PublicRoomsRequest): Promise<JsonObject> {
    if (!this.config.get('allow_public_rooms_over_federation'))
      throw MatrixError.forbidden('The room directory is not shown to other servers');
    return this.directory.search(wanted, undefined, true);
  }
}
