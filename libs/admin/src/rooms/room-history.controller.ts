import { Controller, Get, Param } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventByTime, EventStore, eventFilter, RoomReadingService, SpaceHierarchy } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { RoomTargets } from './room-targets.js';

const maxLimit = 1000;

const dir = param.choice('Forwards (`f`) or backwards (`b`) in time.', ['f', 'b'], { otherwise: 'f' });

const messagesQuery = queryOf({
  limit: param.integer(`How many events at most; never more than ${maxLimit}.`),
  filter: eventFilter,
  from: param.string('Where the page begins: a token of an earlier answer.'),
  to: param.string('Where to stop: a token of an earlier answer.'),
  dir,
  raw: param.string('Whatever it is: events come as other servers get them.'),
});

const contextQuery = queryOf({
  limit: param.integer(`How many events at most; never more than ${maxLimit}.`, { otherwise: 10 }),
  filter: eventFilter,
});

const timestampToEventQuery = queryOf({
  ts: param.integer('The time that is asked about, milliseconds.', { required: true }),
  dir,
});

const walkQuery = queryOf({
  limit: param.integer('How many entries at most.', { min: 1, max: 50, clamp: true, otherwise: 50 }),
  max_depth: param.integer('How many levels deep to go.'),
  from: param.string('Where the page begins: a token of an earlier answer.'),
});

/** What was said in rooms, whether or not the administrator was there. */
@Controller()
@AdminAccess()
export class RoomHistoryController {
  constructor(
    private readonly targets: RoomTargets,
    private readonly reading: RoomReadingService,
    private readonly byTime: EventByTime,
    private readonly hierarchy: SpaceHierarchy,
    private readonly events: EventStore,
  ) {}

  /** GET /_synapse/admin/v1/rooms/{roomId}/messages */
  @Get(admin('v1', '/rooms/:roomId/messages'))
  async messages(
    @Who() requester: Requester,
    @Query(messagesQuery) query: InferQuery<typeof messagesQuery>,
    @Param('roomId') text: string,
  ): Promise<object> {
    const roomId = await this.targets.known(text);
    const { filter } = query;
    return this.reading.messages(requester, roomId, {
      from: query.from,
      to: query.to,
      direction: query.dir,
      limit: Math.min(query.limit ?? filter.limit ?? 10, maxLimit),
      filter,
      scope: 'everything',
      asPdus: query.raw !== undefined,
    });
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/context/{eventId} */
  @Get(admin('v1', '/rooms/:roomId/context/:eventId'))
  context(
    @Who() requester: Requester,
    @Query(contextQuery) query: InferQuery<typeof contextQuery>,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<object> {
    const limit = Math.min(query.limit, maxLimit);
    return this.reading.context(requester, roomId, eventId, limit, query.filter, 'everything');
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/timestamp_to_event */
  @Get(admin('v1', '/rooms/:roomId/timestamp_to_event'))
  async timestampToEvent(
    @Who() requester: Requester,
    @Query(timestampToEventQuery) query: InferQuery<typeof timestampToEventQuery>,
    @Param('roomId') text: string,
  ): Promise<object> {
    const { ts, dir: direction } = query;
    const roomId = await this.targets.known(text);
    const found = await this.byTime.find(requester, roomId, ts, direction, 'everything');
    return { event_id: found.eventId, origin_server_ts: found.ts };
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/hierarchy */
  @Get(admin('v1', '/rooms/:roomId/hierarchy'))
  walk(
    @Who() requester: Requester,
    @Query(walkQuery) query: InferQuery<typeof walkQuery>,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.hierarchy.walk(requester.userId, {
      roomId,
      suggestedOnly: false,
      limit: query.limit,
      maxDepth: query.max_depth,
      from: query.from,
      everything: true,
    });
  }

  /** GET /_synapse/admin/v1/fetch_event/{eventId} */
  @Get(admin('v1', '/fetch_event/:eventId'))
  async fetch(@Param('eventId') eventId: string): Promise<object> {
    const event = await this.events.unredacted(eventId);
    if (!event) throw MatrixError.notFound('Event not found');
    return { event: { ...event.pdu, event_id: event.eventId } };
  }
}
