import { Controller, Param, Post, Put } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, type Infer, json, JsonBody, Query, stable, Who } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { DelayedEvents } from '../delayed/delayed-events.service.js';
import { AnsweredTransactions } from '../sending/answered-transactions.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RelatedRedactions } from '../sending/related-redactions.service.js';
import { type SendQuery, sendQuery } from './send-options.js';

/** Largest request to redact, bytes. */
const redactionBytes = 65_536;
const contentBody = json.described('The content of the event; its type says what is in it.', json.anyObject());
const redactSchema = json.object({ reason: json.optional('The reason; part of the event.', json.string()) });

/** Sending events that are no state, and redactions. */
@Controller()
export class SendController {
  constructor(
    private readonly creation: EventCreation,
    private readonly delayed: DelayedEvents,
    private readonly related: RelatedRedactions,
    private readonly transactions: AnsweredTransactions,
  ) {}

  /** PUT /_matrix/client/v3/rooms/{roomId}/send/{eventType}/{txnId} */
  @Put(stable('/rooms/:roomId/send/:eventType/:txnId'))
  @Access({ auth: 'required', guests: true })
  async send(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(sendQuery) query: SendQuery,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @Param('txnId') txnId: string,
    @JsonBody(contentBody, { optional: true }) content: Infer<typeof contentBody>,
  ): Promise<object> {
    if (request.rawBody !== undefined) return this.#send(requester, query, roomId, type, content, txnId);
    return this.#repeated(requester, roomId, txnId, query['org.matrix.msc4140.delay'] !== undefined);
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/send/{eventType}, of clients from before the specification: never the same twice */
  @Post(stable('/rooms/:roomId/send/:eventType'))
  @Access({ auth: 'required', guests: true })
  sendAnew(
    @Who() requester: Requester,
    @Query(sendQuery) query: SendQuery,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @JsonBody(contentBody) content: Infer<typeof contentBody>,
  ): Promise<object> {
    return this.#send(requester, query, roomId, type, content, undefined);
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

  async #send(
    requester: Requester,
    query: SendQuery,
    roomId: string,
    type: string,
    content: JsonObject,
    txnId: string | undefined,
  ): Promise<object> {
    const { ts: originServerTs, 'org.matrix.msc4140.delay': delayMs } = query;
    const stickyDurationMs = query['org.matrix.msc4354.sticky_duration_ms'];
    const event = { roomId, type, content, originServerTs, stickyDurationMs };
    if (delayMs !== undefined) {
      const schedule = async (): Promise<object> => ({
        delay_id: await this.delayed.schedule(requester, event, delayMs, txnId),
      });
      // Its row says so as well, but only until the event is sent or canceled.
      return txnId === undefined ? schedule() : this.transactions.once(requester, later(roomId, txnId), schedule);
    }
    const sent = await this.creation.send(requester, event, txnId);
    return { event_id: sent.eventId };
  }

  /** A request to send without anything to send asks what became of the one before it. @throws MatrixError 400 `M_NOT_JSON` */
  async #repeated(requester: Requester, roomId: string, txnId: string, isLater: boolean): Promise<object> {
    const known = isLater ? this.transactions.known(requester, later(roomId, txnId)) : undefined;
    if (known !== undefined) return known;
    const delayId = isLater ? await this.delayed.scheduled(requester, roomId, txnId) : undefined;
    if (delayId !== undefined) return { delay_id: delayId };
    const sent = isLater ? undefined : await this.creation.sent(requester, roomId, txnId);
    if (sent) return { event_id: sent.eventId };
    throw MatrixError.missingBody();
  }
}

/** As what a request to send later is remembered; whatever the type, as those that send at once. */
const later = (roomId: string, txnId: string): string[] => ['delay', roomId, txnId];
