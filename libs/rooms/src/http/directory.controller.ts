import { Controller, Get, Param, Post, Put } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, JsonBody, queryInteger, queryString, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { type PublicRoomsRequest, RoomDirectory } from '../directory/directory.service.js';

const searchSchema = {
  properties: {
    limit: { type: 'integer', minimum: 0 },
    since: { type: ['string', 'null'] },
    filter: {
      type: ['object', 'null'],
      properties: {
        generic_search_term: { type: ['string', 'null'] },
        room_types: { type: ['array', 'null'], maxItems: 100, items: { type: ['string', 'null'] } },
      },
    },
    include_all_networks: { type: ['boolean', 'null'] },
    third_party_instance_id: { type: ['string', 'null'] },
  },
};
const visibilitySchema = { properties: { visibility: { enum: ['public', 'private'] } } };

interface VisibilityBody {
  readonly visibility?: 'public' | 'private';
}

/** The directory of published rooms. */
@Controller()
export class DirectoryController {
  constructor(
    private readonly directory: RoomDirectory,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/v3/publicRooms */
  @Get(stable('/publicRooms'))
  @Access({ auth: 'optional', guests: true })
  list(@Who() requester: Requester | undefined, @Inbound() request: InboundRequest): Promise<object> {
    if (!requester && !this.config.get('allow_public_rooms_without_auth')) {
      throw MatrixError.missingToken();
    }
    return this.directory.search(
      { limit: queryInteger(request, 'limit'), since: queryString(request, 'since') },
      queryString(request, 'server'),
    );
  }

  /** POST /_matrix/client/v3/publicRooms */
  @Post(stable('/publicRooms'))
  @Access({ auth: 'required', guests: true })
  search(
    @Inbound() request: InboundRequest,
    @JsonBody(searchSchema, { optional: true }) body: PublicRoomsRequest,
  ): Promise<object> {
    return this.directory.search(body, queryString(request, 'server'));
  }

  /** GET /_matrix/client/v3/directory/list/room/{roomId} */
  @Get(stable('/directory/list/room/:roomId'))
  @Access({ auth: 'none' })
  async visibility(@Param('roomId') roomId: string): Promise<object> {
    return { visibility: (await this.directory.isPublished(roomId)) ? 'public' : 'private' };
  }

  /** PUT /_matrix/client/v3/directory/list/room/{roomId} */
  @Put(stable('/directory/list/room/:roomId'))
  @Access({ auth: 'required', suspended: false })
  async setVisibility(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(visibilitySchema, { optional: true }) body: VisibilityBody,
  ): Promise<object> {
    await this.directory.setPublished(requester, roomId, body.visibility !== 'private');
    return {};
  }

  /** PUT /_matrix/client/v3/directory/list/appservice/{networkId}/{roomId} */
  @Put(stable('/directory/list/appservice/:networkId/:roomId'))
  @Access({ auth: 'required' })
  async setNetworkListing(
    @Who() requester: Requester,
    @Param('networkId') networkId: string,
    @Param('roomId') roomId: string,
    @JsonBody({ required: ['visibility'], ...visibilitySchema }) body: VisibilityBody,
  ): Promise<object> {
    await this.directory.setNetworkListing(requester, networkId, roomId, body.visibility === 'public');
    return {};
  }
}
