import { Controller, Get, Param } from '@nestjs/common';
import { Access, client, type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { RelationsService } from '../relations/relations.service.js';

const base = '/rooms/:roomId/relations/:eventId';

const listQuery = queryOf({
  from: param.string('Where the page begins: a token of an earlier answer.'),
  to: param.string('Where to stop: a token of an earlier answer.'),
  dir: param.choice('Forwards (`f`) or backwards (`b`) in time.', ['f', 'b'], { otherwise: 'b' }),
  limit: param.integer('How many entries at most.', { min: 1, max: 100, clamp: true, otherwise: 5 }),
  recurse: param.boolean('Whether what relates to related events counts, too.', {
    also: ['org.matrix.msc3981.recurse'],
  }),
});

const threadsQuery = queryOf({
  include: param.choice('Whether only threads count that the user takes part in.', ['all', 'participated']),
  from: param.string('Where the page begins: a token of an earlier answer.'),
  limit: param.integer('How many entries at most.', { min: 1, max: 100, clamp: true, otherwise: 20 }),
});

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
    @Query(listQuery) query: InferQuery<typeof listQuery>,
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
      from: query.from,
      to: query.to,
      direction: query.dir,
      limit: query.limit,
      recurse: query.recurse,
    });
  }

  /** GET /_matrix/client/v1/rooms/{roomId}/threads */
  @Get(client(['v1'], '/rooms/:roomId/threads'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  async threads(
    @Who() requester: Requester,
    @Query(threadsQuery) query: InferQuery<typeof threadsQuery>,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.relations.threads(requester, roomId, {
      participated: query.include === 'participated',
      from: query.from,
      limit: query.limit,
    });
  }
}
