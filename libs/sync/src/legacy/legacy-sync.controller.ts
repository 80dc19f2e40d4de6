import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  client,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  stable,
  Who,
} from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { eventFilter, EventStore, RoomReadingService } from '@rookery/rooms';
import { SessionWatch } from '@rookery/users';
import { timeout } from '../request/sync-params.js';
import { LegacySyncService } from './legacy-sync.service.js';
import { RoomInitialSync } from './room-initial-sync.js';
import { RoomNews } from './room-news.js';

const old = (path: string): string[] => client(['api/v1', 'v3'], path);
const maxLimit = 100;
const limit = param.integer('How many entries at most.', { min: 0, max: maxLimit, clamp: true, otherwise: 10 });

const initialSyncQuery = queryOf({
  limit,
  archived: param.boolean('Whether rooms that were left come, too.', { otherwise: false }),
});

const initialSyncOfRoomQuery = queryOf({
  filter: eventFilter,
  limit,
});

const eventsQuery = queryOf({
  room_id: param.string('Only this room.'),
  from: param.string('Where the page begins: a token of an earlier answer.'),
  timeout,
});

/** Endpoints that `/sync` has taken the place of. */
@Controller()
export class LegacySyncController {
  constructor(
    private readonly service: LegacySyncService,
    private readonly initial: RoomInitialSync,
    private readonly news: RoomNews,
    private readonly reading: RoomReadingService,
    private readonly store: EventStore,
    private readonly sessions: SessionWatch,
  ) {}

  /** GET /_matrix/client/v3/initialSync */
  @Get(old('/initialSync'))
  @Access({ auth: 'required', active: true, largeAnswer: true })
  initialSync(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(initialSyncQuery) query: InferQuery<typeof initialSyncQuery>,
  ): Promise<JsonObject> {
    return this.service.initialSync(requester, query, request.signal);
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/initialSync */
  @Get(stable('/rooms/:roomId/initialSync'))
  @Access({ auth: 'required', guests: true, largeAnswer: true })
  initialSyncOfRoom(
    @Who() requester: Requester,
    @Query(initialSyncOfRoomQuery) query: InferQuery<typeof initialSyncOfRoomQuery>,
    @Param('roomId') roomId: string,
  ): Promise<JsonObject> {
    return this.initial.of(requester, roomId, query);
  }

  /** GET /_matrix/client/v3/events */
  @Get(old('/events'))
  @Access({ auth: 'required', guests: true, active: true })
  async events(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(eventsQuery) query: InferQuery<typeof eventsQuery>,
  ): Promise<HttpReply> {
    const { room_id: roomId, from, timeout: timeoutMs } = query;
    if (roomId === undefined && requester.isGuest)
      throw MatrixError.missingParam("Guests must name a room with 'room_id'");
    const answer = await this.sessions.during(request, requester, (signal) =>
      roomId === undefined
        ? this.service.since(requester, from, timeoutMs, signal)
        : this.news.since(requester, roomId, from, timeoutMs, signal),
    );
    // Account data may come in with any answer, however large.
    return HttpReply.large(answer);
  }

  /** GET /_matrix/client/v3/events/{eventId} */
  @Get(old('/events/:eventId'))
  @Access({ auth: 'required' })
  async event(@Who() requester: Requester, @Param('eventId') eventId: string): Promise<object> {
    const stored = await this.store.one(eventId);
    if (stored === undefined) throw MatrixError.notFound('There is no such event, or it is not for you');
    return this.reading.event(requester, stored.event.roomId, eventId);
  }
}
