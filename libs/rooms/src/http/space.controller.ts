import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  Who,
} from '@rookery/http';
import { Config, type Requester } from '@rookery/platform';
import { AliasService } from '../directory/alias.service.js';
import { RemoteLookups } from '../directory/remote-lookups.js';
import { RoomSummaries } from '../directory/room-summaries.service.js';
import { SpaceHierarchy } from '../directory/space-hierarchy.service.js';

const walkQuery = queryOf({
  via: param.strings('Servers that may know the space (MSC4235).', { also: ['org.matrix.msc4235.via'] }),
  suggested_only: param.boolean('Only children that the space suggests.', { otherwise: false }),
  limit: param.integer('How many entries at most.', { min: 1, max: 50, clamp: true, otherwise: 50 }),
  max_depth: param.integer('How many levels deep to go.', { min: 0 }),
  from: param.string('Where the page begins: a token of an earlier answer.'),
});

const summaryQuery = queryOf({
  via: param.strings('Servers that may know the room.'),
});

/** Rooms seen from outside: summaries and spaces. */
@Controller()
export class SpaceController {
  constructor(
    private readonly hierarchy: SpaceHierarchy,
    private readonly summaries: RoomSummaries,
    private readonly aliases: AliasService,
    private readonly config: Config,
    private readonly lookups: RemoteLookups,
  ) {}

  /** GET /_matrix/client/v1/rooms/{roomId}/hierarchy */
  @Get([
    ...client(['v1'], '/rooms/:roomId/hierarchy'),
    ...client(['unstable'], '/org.matrix.msc2946/rooms/:roomId/hierarchy'),
  ])
  @Access({ auth: 'required', guests: true, largeAnswer: true })
  walk(
    @Who() requester: Requester,
    @Query(walkQuery) query: InferQuery<typeof walkQuery>,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.hierarchy.walk(requester.userId, {
      roomId,
      suggestedOnly: query.suggested_only,
      limit: query.limit,
      maxDepth: query.max_depth,
      from: query.from,
      via: this.#via(query.via),
    });
  }

  /** GET /_matrix/client/v1/room_summary/{roomIdOrAlias} */
  @Get([
    ...client(['v1'], '/room_summary/:roomIdOrAlias'),
    ...client(['unstable'], '/im.nheko.summary/summary/:roomIdOrAlias'),
    ...client(['unstable'], '/im.nheko.summary/rooms/:roomIdOrAlias/summary'),
  ])
  @Access({ auth: 'optional', guests: true })
  async summary(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Query(summaryQuery) query: InferQuery<typeof summaryQuery>,
    @Param('roomIdOrAlias') roomIdOrAlias: string,
  ): Promise<object> {
    if (!roomIdOrAlias.startsWith('!'))
      await this.lookups.count([this.aliases.serverOf(roomIdOrAlias)], requester ?? request);
    const { roomId, servers } = await this.aliases.resolveRoom(roomIdOrAlias, query.via);
    return this.summaries.one(requester, roomId, servers);
  }

  /** Servers that may know a space of which this one knows nothing (MSC4235): behind a switch. */
  #via(servers: readonly string[]): readonly string[] {
    return this.config.get('experimental_features.msc4235_enabled') ? servers : [];
  }
}
