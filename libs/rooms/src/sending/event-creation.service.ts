import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { isIdLike } from '@rookery/events';
import { RateLimiter } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Cache, Clock, Config, type Requester, SingleFlight } from '@rookery/platform';
import { Participation } from './participation.js';
import { EventStore } from '../store/event-store.js';
import { EventPersister } from '../pipeline/event-persister.js';
import type { ClientTransaction, SentEvent } from '../model/stored-event.js';
import { redactionTxnPrefix } from '../reading/event-serializer.js';
import { checkRelation } from './relation-rules.js';
import { checkContent } from '../model/content-rules.js';
import { deviceKeyOf, originOf } from '../model/requesters.js';
import { findSentEvent } from '../store/transactions.query.js';

/** What a client asks to be sent. */
export interface SendRequest {
  readonly roomId: string;
  readonly type: string;
  /** Absent for a message event. */
  readonly stateKey?: string | undefined;
  readonly content: Readonly<JsonObject>;
  /** What an endpoint for redactions redacts; one that is sent like any event names it in its content. */
  readonly redacts?: string | undefined;
  /** Milliseconds since the epoch; honoured for application services only. */
  readonly originServerTs?: number | undefined;
  /** For how long the event is to be sticky, milliseconds (MSC4354); nothing where the server is not set so. */
  readonly stickyDurationMs?: number | undefined;
}

const maxTxnIdLength = 255;

/** Sends events on behalf of clients: limits, idempotence, what modules and settings say. */
@Injectable()
export class EventCreation {
  readonly #inFlight = new SingleFlight<SentEvent>();
  readonly #sent: Cache<string, SentEvent>;

  // Eight parameters: everything that stands between a client and the pipeline.
  constructor(
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly database: Database,
    private readonly participation: Participation,
  ) {
    this.#sent = new Cache(config, 'sent_events', { invalidation: 'never', max: 40_000 });
  }

  /**
   * Sends an event. With a transaction id the same request may be repeated: it makes one event, over restarts as well.
   * @spec client-server-api#transaction-identifiers
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_USER_SUSPENDED`, `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN`, 400 `M_BAD_JSON`, `M_INVALID_PARAM` and `M_DUPLICATE_ANNOTATION`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED`
   */
  async send(requester: Requester, request: SendRequest, txnId?: string): Promise<SentEvent> {
    if (txnId === undefined) return this.#send(requester, request, undefined);
    if (txnId.length > maxTxnIdLength || txnId.includes('\0')) {
      throw MatrixError.transactionIdTooLong();
    }
    // To redact and to send are two endpoints, each with transaction ids of its own.
    const transaction = transactionOf(
      requester,
      request.redacts === undefined ? txnId : `${redactionTxnPrefix}${txnId}`,
    );
    const key = keyOf(transaction, request.roomId);
    const done = this.#sent.get(key);
    if (done) return done;
    return this.#inFlight.run(key, async () => {
      const sent = await this.#sendOnce(requester, request, transaction);
      this.#sent.set(key, sent);
      return sent;
    });
  }

  /** What a request to send has made already, for one that is repeated without what was to be sent. */
  async sent(requester: Requester, roomId: string, txnId: string): Promise<SentEvent | undefined> {
    if (txnId.length > maxTxnIdLength || txnId.includes('\0')) return undefined;
    const transaction = transactionOf(requester, txnId);
    const key = keyOf(transaction, roomId);
    return this.#sent.get(key) ?? this.#inFlight.get(key) ?? findSentEvent(this.database, roomId, transaction);
  }

  /**
   * Whether modules let somebody send a state event. {@link send} asks; for who sends one by other means.
   * @throws MatrixError as a module says, by default 403 `M_FORBIDDEN`
   */
  async assertMaySetState(
    requester: Requester,
    { roomId, type, stateKey, content }: SendRequest & { readonly stateKey: string },
  ): Promise<void> {
    if (!this.modules.has('userMaySendStateEvent')) return;
    const asked = [requester.userId, roomId, type, stateKey, content] as const;
    assertAllowed(await this.modules.gate('userMaySendStateEvent', callbackContext(requester), ...asked));
  }

  async #sendOnce(requester: Requester, request: SendRequest, transaction: ClientTransaction): Promise<SentEvent> {
    try {
      return await this.#send(requester, request, transaction);
    } catch (error) {
      // A repeated request whose first answer was lost must get that answer, whatever limits and rules say by now.
      const sent = await findSentEvent(this.database, request.roomId, transaction);
      if (sent) return sent;
      throw error;
    }
  }

  async #send(
    requester: Requester,
    request: SendRequest,
    transaction: ClientTransaction | undefined,
  ): Promise<SentEvent> {
    const { content, type, stateKey } = request;
    const redacts = request.redacts ?? (type === 'm.room.redaction' ? textIn(content, 'redacts') : undefined);
    if (redacts !== undefined && !isIdLike(redacts)) throw MatrixError.invalidParam("'redacts' must be an event id");
    if (requester.suspended) await this.#assertIsOwn(requester, redacts);
    await this.participation.assertMaySend(requester);
    await this.#takeLimit(requester, redacts);
    checkContent(type, stateKey, content, this.config.serverName, request.roomId);
    await checkRelation(this.database, this.events, requester.userId, request);
    if (stateKey !== undefined) await this.assertMaySetState(requester, { ...request, stateKey });
    if (requester.shadowBanned) return this.participation.pretend(requester, request.roomId);
    if (redacts !== undefined) await this.#checkTarget(request.roomId, redacts, type);
    const sticky = this.config.get('experimental_features.msc4354_enabled') ? request.stickyDurationMs : undefined;
    return this.persister.send({
      roomId: request.roomId,
      type,
      stateKey,
      sender: requester.userId,
      content,
      redacts,
      originServerTs: requester.appserviceId === undefined ? undefined : request.originServerTs,
      stickyDurationMs: sticky,
      transaction,
      // Sent again, a sticky event is sticky for longer.
      skipUnchanged: stateKey !== undefined && sticky === undefined,
      origin: originOf(requester),
    });
  }

  /**
   * Whoever is suspended may take back what they said themselves, and say nothing new.
   * @param redacts what the event redacts, if it does
   * @throws MatrixError 403 `M_USER_SUSPENDED`
   * @spec client-server-api#account-suspension
   */
  async #assertIsOwn({ userId }: Requester, redacts: string | undefined): Promise<void> {
    const target = redacts === undefined ? undefined : await this.events.one(redacts);
    if (target?.event.sender !== userId) throw MatrixError.userSuspended();
  }

  /**
   * What is not known yet may be of this room.
   * @throws MatrixError 400 `M_INVALID_PARAM` for an event of another room, 403 `M_FORBIDDEN` for a message that is too old
   */
  async #checkTarget(roomId: string, eventId: string, type: string): Promise<void> {
    const target = await this.events.one(eventId);
    if (target && target.event.roomId !== roomId)
      throw MatrixError.invalidParam('Only events of the same room can be redacted');
    const periodMs = this.config.get('redaction_allowed_period');
    if (!target || type !== 'm.room.redaction' || periodMs === undefined || periodMs === null) return;
    const edited = editedBy(target.event.content);
    const original = edited === undefined ? undefined : await this.events.one(edited);
    const { event } = original?.event.roomId === roomId ? original : target;
    if (event.type === 'm.room.message' && event.originServerTs < this.clock.nowMs() - periodMs)
      throw MatrixError.forbidden(`Messages can be redacted within ${periodMs} ms only`);
  }

  async #takeLimit(requester: Requester, redacts: string | undefined): Promise<void> {
    if (redacts !== undefined && this.config.get('rc_admin_redaction') !== undefined) {
      const target = await this.events.one(redacts);
      if (target && target.event.sender !== requester.userId) {
        return this.limiter.take('rc_admin_redaction', requester.userId, requester);
      }
    }
    return this.participation.takeEvent(requester);
  }
}

const transactionOf = (requester: Requester, txnId: string): ClientTransaction => ({
  userId: requester.userId,
  deviceId: deviceKeyOf(requester),
  txnId,
});

const keyOf = ({ userId, deviceId, txnId }: ClientTransaction, roomId: string): string =>
  JSON.stringify([userId, deviceId, roomId, txnId]);

const textIn = (content: Readonly<JsonObject>, key: string): string | undefined =>
  typeof content[key] === 'string' ? content[key] : undefined;

/** The event that an edit replaces. */
function editedBy(content: Readonly<JsonObject>): string | undefined {
  const relation = content['m.relates_to'];
  return isJsonObject(relation) && relation['rel_type'] === 'm.replace' ? textIn(relation, 'event_id') : undefined;
}
