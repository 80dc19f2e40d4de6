import { Controller, Get, Param, Post, Put } from '@nestjs/common';
import { longestStickyMs } from '@rookery/events';
import {
  Access,
  Inbound,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  queryChoice,
  queryInteger,
  stable,
  Who,
} from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { DelayedEvents } from '../delayed/delayed-events.service.js';
import { AliasService } from '../directory/alias.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RelatedRedactions } from '../sending/related-redactions.service.js';

/** How long to wait before sending, milliseconds (MSC4140). */
const delayParameter = 'org.matrix.msc4140.delay';

/** How long the event is to be sticky, milliseconds (MSC4354). */
const stickyParameter = 'org.matrix.msc4354.sticky_duration_ms';

const stickyIn = (request: InboundRequest): number | undefined =>
  queryInteger(request, stickyParameter, { min: 0, max: longestStickyMs });

/** Largest request to redact, bytes. */
const redactionBytes = 65_536;
const redactSchema = json.object({ reason: json.optional(json.string()) });

/** Sending events and reading state. */
@Controller()
export class SendController {
  constructor(
    private readonly creation: EventCreation,
    private readonly reading: RoomReadingService,
    private readonly memberships: MembershipService,
    private readonly state: RoomStateReader,
    private readonly aliases: AliasService,
    private readonly delayed: DelayedEvents,
    private readonly related: RelatedRedactions,
  ) {}

  /** PUT /_matrix/client/v3/rooms/{roomId}/send/{eventType}/{txnId} */
  @Put(stable('/rooms/:roomId/send/:eventType/:txnId'))
  @Access({ auth: 'required', guests: true, suspended: false })
  async send(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @Param('txnId') txnId: string,
    @JsonBody(undefined, { optional: true }) content: JsonObject,
  ): Promise<object> {
    if (request.rawBody !== undefined) return this.#send(requester, request, roomId, type, content, txnId);
    return this.#repeated(requester, roomId, txnId, queryInteger(request, delayParameter) !== undefined);
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/send/{eventType}, of clients from before the specification: never the same twice */
  @Post(stable('/rooms/:roomId/send/:eventType'))
  @Access({ auth: 'required', guests: true, suspended: false })
  sendAnew(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @JsonBody() content: JsonObject,
  ): Promise<object> {
    return this.#send(requester, request, roomId, type, content, undefined);
  }

  /** PUT /_matrix/client/v3/rooms/{roomId}/redact/{eventId}/{txnId} */
  @Put(stable('/rooms/:roomId/redact/:eventId/:txnId'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes: redactionBytes })
  async redact(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('eventId') redacts: string,
    @Param('txnId') txnId: string | undefined,
    @JsonBody(redactSchema, { optional: true }) body: Infer<typeof redactSchema>,
  ): Promise<object> {
    const { types, content } = this.related.optionsIn(body);
    const sent = await this.creation.send(requester, { roomId, type: 'm.room.redaction', content, redacts }, txnId);
    await this.related.redact(requester, roomId, redacts, types, content);
    return { event_id: sent.eventId };
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/redact/{eventId}, of clients from before the specification */
  @Post(stable('/rooms/:roomId/redact/:eventId'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes: redactionBytes })
  redactAnew(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('eventId') redacts: string,
    @JsonBody(redactSchema, { optional: true }) body: Infer<typeof redactSchema>,
  ): Promise<object> {
    return this.redact(requester, roomId, redacts, undefined, body);
  }

  /** PUT /_matrix/client/v3/rooms/{roomId}/state/{eventType}/{stateKey} */
  @Put([...stable('/rooms/:roomId/state/:eventType/:stateKey'), ...stable('/rooms/:roomId/state/:eventType')])
  @Access({ auth: 'required', guests: true, suspended: false })
  async setState(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @Param('stateKey') stateKey: string | undefined,
    @JsonBody() content: JsonObject,
  ): Promise<object> {
    const originServerTs = queryInteger(request, 'ts');
    const stickyDurationMs = stickyIn(request);
    const event = { roomId, type, stateKey: stateKey ?? '', content, originServerTs, stickyDurationMs };
    const delayMs = queryInteger(request, delayParameter, { min: 1 });
    if (delayMs !== undefined) return { delay_id: await this.delayed.schedule(requester, event, delayMs) };
    if (type === 'm.room.member') {
      const target = stateKey ?? '';
      const changed = await this.memberships.byContent(requester, roomId, target, content, originServerTs);
      return { event_id: changed?.eventId ?? (await this.state.currentId(roomId, type, target)) ?? '' };
    }
    if (type === 'm.room.canonical_alias') await this.aliases.checkCanonical(roomId, content);
    const sent = await this.creation.send(requester, event);
    return { event_id: sent.eventId };
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/state */
  @Get(stable('/rooms/:roomId/state'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  allState(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<object> {
    return this.reading.allState(requester, roomId);
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/state/{eventType}/{stateKey} */
  @Get([...stable('/rooms/:roomId/state/:eventType/:stateKey'), ...stable('/rooms/:roomId/state/:eventType')])
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async oneState(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @Param('stateKey') stateKey: string | undefined,
  ): Promise<object> {
    if (type.length > 255 || (stateKey ?? '').length > 255) throw MatrixError.notFound('There is no such state');
    const format = queryChoice(request, 'format', ['content', 'event']);
    const stored = await this.reading.stateEvent(requester, roomId, type, stateKey ?? '');
    return format === 'event' ? this.reading.write(requester, stored) : stored.event.content;
  }

  async #send(
    requester: Requester,
    request: InboundRequest,
    roomId: string,
    type: string,
    content: JsonObject,
    txnId: string | undefined,
  ): Promise<object> {
    const originServerTs = queryInteger(request, 'ts');
    const event = { roomId, type, content, originServerTs, stickyDurationMs: stickyIn(request) };
    const delayMs = queryInteger(request, delayParameter, { min: 1 });
    if (delayMs !== undefined) return { delay_id: await this.delayed.schedule(requester, event, delayMs, txnId) };
    const sent = await this.creation.send(requester, event, txnId);
    return { event_id: sent.eventId };
  }

  /** A request to send without anything to send asks what became of the one before it. @throws MatrixError 400 `M_NOT_JSON` */
  async #repeated(requester: Requester, roomId: string, txnId: string, isLater: boolean): Promise<object> {
    const delayId = isLater ? await this.delayed.scheduled(requester, roomId, txnId) : undefined;
    if (delayId !== undefined) return { delay_id: delayId };
    const sent = isLater ? undefined : await this.creation.sent(requester, roomId, txnId);
    if (sent) return { event_id: sent.eventId };
    throw MatrixError.missingBody();
  }
}
