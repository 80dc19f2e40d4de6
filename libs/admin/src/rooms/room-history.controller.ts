import { Controller, Get, Param } from '@nestjs/common';
import {
  Inbound,
  type InboundRequest,
  queryChoice,
  queryInteger,
  queryString,
  requiredQueryString,
  Who,
} from '@rookery/http';
import { type EventFilter, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventByTime, EventStore, filterIn, RoomReadingService, SpaceHierarchy } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { RoomTargets } from './room-targets.js';

const maxLimit = 1000;

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
    @Inbound() request: InboundRequest,
    @Param('roomId') text: string,
  ): Promise<object> {
    const roomId = await this.targets.known(text);
    const filter = filterIn(request);
    return this.reading.messages(requester, roomId, {
      from: queryString(request, 'from'),
      to: queryString(request, 'to'),
      direction: queryChoice(request, 'dir', ['f', 'b']) ?? 'f',
      limit: pageSize(request, filter),
      filter,
      scope: 'everything',
      asPdus: queryString(request, 'raw') !== undefined,
    });
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/context/{eventId} */
  @Get(admin('v1', '/rooms/:roomId/context/:eventId'))
  context(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<object> {
    const limit = pageSize(request);
    return this.reading.context(requester, roomId, eventId, limit, filterIn(request), 'everything');
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/timestamp_to_event */
  @Get(admin('v1', '/rooms/:roomId/timestamp_to_event'))
  async timestampToEvent(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') text: string,
  ): Promise<object> {
    requiredQueryString(request, 'ts');
    const ts = queryInteger(request, 'ts') ?? 0;
    const direction = queryChoice(request, 'dir', ['f', 'b']) ?? 'f';
    const roomId = await this.targets.known(text);
    const found = await this.byTime.find(requester, roomId, ts, direction, 'everything');
    return { event_id: found.eventId, origin_server_ts: found.ts };
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/hierarchy */
  @Get(admin('v1', '/rooms/:roomId/hierarchy'))
  walk(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.hierarchy.walk(requester.userId, {
      roomId,
      suggestedOnly: false,
      limit: queryInteger(request, 'limit', { min: 1, max: 50, clamp: true }) ?? 50,
      maxDepth: queryInteger(request, 'max_depth'),
      from: queryString(request, 'from'),
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

const pageSize = (request: InboundRequest, filter?: EventFilter): number =>
  Math.min(queryInteger(request, 'limit') ?? filter?.limit ?? 10, maxLimit);
