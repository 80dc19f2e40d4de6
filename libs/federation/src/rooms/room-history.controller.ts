import { Controller, Get, Param, Post } from '@nestjs/common';
import { type HttpReply, type Infer, type InferQuery, json, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { SpaceHierarchy } from '@rookery/rooms';
import { FederationAccess, Origin, SignedContent } from '../inbound/federation-access.js';
import { PduReplies } from './pdu-replies.js';
import { RoomHistory } from './room-history.js';

const path = '/_matrix/federation/v1';
/** Most events in one answer, and most that one request may name. */
const maxEvents = 100;
const maxNamed = 1_000;
const usualMissing = 10;

const ids = json.array(json.string({ maxLength: 255, pattern: '^[^\\u0000]*$' }), { maxItems: maxNamed });
const rangeBody = json.object({
  earliest_events: json.required('Events that the server has: none before these is wanted.', ids),
  latest_events: json.required('Events that the server has seen: what is wanted comes before these.', ids),
  limit: json.optional('How many events at most; 10 unless given.', json.integer()),
  min_depth: json.optional('Events of a lower depth are not wanted.', json.integer()),
});

const stateQuery = queryOf({
  event_id: param.string('The event before which the state is asked for.', { required: true }),
});

const backfillQuery = queryOf({
  v: param.strings('The events to go back from.'),
  limit: param.integer('How many entries at most.', { min: 1, max: maxEvents, clamp: true, required: true }),
});

const atTimeQuery = queryOf({
  ts: param.integer('The time that is asked about, milliseconds.', { required: true }),
  dir: param.choice('Forwards (`f`) or backwards (`b`) in time.', ['f', 'b'], { required: true }),
});

const spaceQuery = queryOf({
  suggested_only: param.boolean('Only children that the space suggests.', { otherwise: false }),
});

/** What a server may read of the rooms it is in. */
@Controller()
export class RoomHistoryForServersController {
  constructor(
    private readonly history: RoomHistory,
    private readonly hierarchy: SpaceHierarchy,
    private readonly replies: PduReplies,
  ) {}

  /** GET /_matrix/federation/v1/event/{eventId} */
  @Get(`${path}/event/:eventId`)
  @FederationAccess()
  async event(@Origin() origin: string, @Param('eventId') eventId: string): Promise<object> {
    return this.replies.transaction({ origin, method: '/event' }, await this.history.event(origin, eventId));
  }

  /** GET /_matrix/federation/v1/state/{roomId} */
  @Get(`${path}/state/:roomId`)
  @FederationAccess({ largeAnswer: true })
  async state(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Query(stateQuery) query: InferQuery<typeof stateQuery>,
  ): Promise<HttpReply> {
    const { state, authChain } = await this.history.stateAt(origin, roomId, query.event_id);
    return this.replies.lists({ origin, method: '/state' }, { pdus: state, auth_chain: authChain });
  }

  /** GET /_matrix/federation/v1/state_ids/{roomId} */
  @Get(`${path}/state_ids/:roomId`)
  @FederationAccess({ largeAnswer: true })
  async stateIds(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Query(stateQuery) query: InferQuery<typeof stateQuery>,
  ): Promise<object> {
    const { state, authChain } = await this.history.stateAt(origin, roomId, query.event_id);
    return { pdu_ids: state, auth_chain_ids: [...authChain] };
  }

  /** GET /_matrix/federation/v1/event_auth/{roomId}/{eventId} */
  @Get(`${path}/event_auth/:roomId/:eventId`)
  @FederationAccess({ largeAnswer: true })
  async eventAuth(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<HttpReply> {
    const authChain = await this.history.authChain(origin, roomId, eventId);
    return this.replies.lists({ origin, method: '/event_auth' }, { auth_chain: authChain });
  }

  /** GET /_matrix/federation/v1/backfill/{roomId} */
  @Get(`${path}/backfill/:roomId`)
  @FederationAccess()
  async backfill(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Query(backfillQuery) query: InferQuery<typeof backfillQuery>,
  ): Promise<object> {
    const from = query.v.slice(0, maxEvents);
    if (from.length === 0) throw MatrixError.missingParam("Missing query parameter 'v'");
    const events = await this.history.backfill(origin, roomId, from, query.limit);
    return this.replies.transaction({ origin, method: '/backfill' }, events);
  }

  /** POST /_matrix/federation/v1/get_missing_events/{roomId} */
  @Post(`${path}/get_missing_events/:roomId`)
  @FederationAccess()
  async missing(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @SignedContent(rangeBody) content: Infer<typeof rangeBody>,
  ): Promise<object> {
    const { earliest_events: earliest, latest_events: latest, limit = usualMissing, min_depth: minDepth = 0 } = content;
    const events = await this.history.missing(origin, roomId, {
      earliest,
      latest: latest.slice(0, maxEvents),
      limit: Math.max(0, Math.min(limit, maxEvents)),
      minDepth,
    });
    return { events: this.replies.wire({ origin, method: '/get_missing_events' }, events) };
  }

  /** GET /_matrix/federation/v1/timestamp_to_event/{roomId} */
  @Get(`${path}/timestamp_to_event/:roomId`)
  @FederationAccess()
  async atTime(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Query(atTimeQuery) query: InferQuery<typeof atTimeQuery>,
  ): Promise<object> {
    const event = await this.history.atTime(origin, roomId, query.ts, query.dir);
    return { event_id: event.eventId, origin_server_ts: event.originServerTs };
  }

  /** GET /_matrix/federation/v1/hierarchy/{roomId} */
  @Get(`${path}/hierarchy/:roomId`)
  @FederationAccess()
  space(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Query(spaceQuery) query: InferQuery<typeof spaceQuery>,
  ): Promise<object> {
    return this.hierarchy.forServer(origin, roomId, query.suggested_only);
  }
}
