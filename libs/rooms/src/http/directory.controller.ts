import { Controller, Get, Param, Post, Put } from '@nestjs/common';
import {
  Access,
  Inbound,
  type InboundRequest,
  type Infer,
  type InferQuery,
  json,
  JsonBody,
  param,
  Query,
  queryOf,
  stable,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { publicRoomsSchema, RoomDirectory } from '../directory/directory.service.js';
import { RemoteLookups } from '../directory/remote-lookups.js';

const visibility = json.enum('public', 'private');
const visibilitySchema = json.object({
  visibility: json.optional('Whether the room is listed; it is unless this says `private`.', visibility),
});
const networkListingSchema = json.object({ visibility: json.required('Whether the room is listed.', visibility) });

const listQuery = queryOf({
  limit: param.integer('How many entries at most.'),
  since: param.string('Where the page begins: a token of an earlier answer.'),
  server: param.string('The server whose directory it is.'),
});

const searchQuery = queryOf({
  server: param.string('The server whose directory it is.'),
});

/** The directory of published rooms. */
@Controller()
export class DirectoryController {
  constructor(
    private readonly directory: RoomDirectory,
    private readonly config: Config,
    private readonly lookups: RemoteLookups,
  ) {}

  /** GET /_matrix/client/v3/publicRooms */
  @Get(stable('/publicRooms'))
  @Access({ auth: 'optional', guests: true })
  async list(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Query(listQuery) query: InferQuery<typeof listQuery>,
  ): Promise<object> {
    if (!requester && !this.config.get('allow_public_rooms_without_auth')) {
      throw MatrixError.missingToken();
    }
    await this.lookups.count([query.server], requester ?? request);
    return this.directory.search({ limit: query.limit, since: query.since }, query.server);
  }

  /** POST /_matrix/client/v3/publicRooms */
  @Post(stable('/publicRooms'))
  @Access({ auth: 'required', guests: true })
  async search(
    @Who() requester: Requester,
    @Query(searchQuery) query: InferQuery<typeof searchQuery>,
    @JsonBody(publicRoomsSchema, { optional: true }) body: Infer<typeof publicRoomsSchema>,
  ): Promise<object> {
    await this.lookups.count([query.server], requester);
    return this.directory.search(body, query.server);
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
    @JsonBody(visibilitySchema, { optional: true }) body: Infer<typeof visibilitySchema>,
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
    @JsonBody(networkListingSchema) body: Infer<typeof networkListingSchema>,
  ): Promise<object> {
    await this.directory.setNetworkListing(requester, networkId, roomId, body.visibility === 'public');
    return {};
  }
}
