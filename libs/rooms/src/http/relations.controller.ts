import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  queryBoolean,
  queryChoice,
  queryInteger,
  queryString,
  Who,
} from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { RelationsService } from '../relations/relations.service.js';

const base = '/rooms/:roomId/relations/:eventId';

@Controller()
export class RelationsController {
  constructor(private readonly relations: RelationsService) {}

  /** GET /_matrix/client/v1/rooms/{roomId}/relations/{eventId}/{relType}/{eventType} */
  @Get([
    ...client(['v1', 'unstable'], base),
    ...client(['v1', 'unstable'], `${base}/:relType`),
    ...client(['v1', 'unstable'], `${base}/:relType/:eventType`),
  ])
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  async list(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @Param('relType') relType: string | undefined,
    @Param('eventType') eventType: string | undefined,
  ): Promise<object> {
    return this.relations.relations(requester, {
      roomId,
      eventId,
      relType,
      eventType,
      from: queryString(request, 'from'),
      to: queryString(request, 'to'),
      direction: queryChoice(request, 'dir', ['f', 'b']) ?? 'b',
      limit: queryInteger(request, 'limit', { min: 1, max: 100, clamp: true }) ?? 5,
      recurse: queryBoolean(request, 'recurse') ?? queryBoolean(request, 'org.matrix.msc3981.recurse') ?? false,
    });
  }

  /** GET /_matrix/client/v1/rooms/{roomId}/threads */
  @Get(client(['v1'], '/rooms/:roomId/threads'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  async threads(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.relations.threads(requester, roomId, {
      participated: queryChoice(request, 'include', ['all', 'participated']) === 'participated',
      from: queryString(request, 'from'),
      limit: queryInteger(request, 'limit', { min: 1, max: 100, clamp: true }) ?? 20,
    });
  }
}
