import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  queryBoolean,
  queryInteger,
  queryStrings,
  queryString,
  Who,
} from '@rookery/http';
import { Config, type Requester } from '@rookery/platform';
import { AliasService } from '../directory/alias.service.js';
import { RoomSummaries } from '../directory/room-summaries.service.js';
import { SpaceHierarchy } from '../directory/space-hierarchy.service.js';

/** Rooms seen from outside: summaries and spaces. */
@Controller()
export class SpaceController {
  constructor(
    private readonly hierarchy: SpaceHierarchy,
    private readonly summaries: RoomSummaries,
    private readonly aliases: AliasService,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/v1/rooms/{roomId}/hierarchy */
  @Get([
    ...client(['v1'], '/rooms/:roomId/hierarchy'),
    ...client(['unstable'], '/org.matrix.msc2946/rooms/:roomId/hierarchy'),
  ])
  @Access({ auth: 'required', largeAnswer: true })
  walk(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.hierarchy.walk(requester.userId, {
      roomId,
      suggestedOnly: queryBoolean(request, 'suggested_only') ?? false,
      limit: queryInteger(request, 'limit', { min: 1, max: 50, clamp: true }) ?? 50,
      maxDepth: queryInteger(request, 'max_depth', { min: 0 }),
      from: queryString(request, 'from'),
      via: this.#via(request),
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
    @Param('roomIdOrAlias') roomIdOrAlias: string,
  ): Promise<object> {
    const { roomId, servers } = await this.aliases.resolveRoom(roomIdOrAlias, queryStrings(request, 'via'));
    return this.summaries.one(requester?.userId, roomId, servers);
  }

  /** Servers that may know a space of which this one knows nothing (MSC4235): behind a switch. */
  #via(request: InboundRequest): readonly string[] {
    if (!this.config.get('experimental_features.msc4235_enabled')) return [];
    return [...queryStrings(request, 'via'), ...queryStrings(request, 'org.matrix.msc4235.via')];
  }
}
