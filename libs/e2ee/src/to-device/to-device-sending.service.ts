import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { LeakyBucketRateLimiter, RateLimiter } from '@rookery/http';
import { domainOf, isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, Logger, type Requester } from '@rookery/platform';
import { byServer, isName } from '../common/limits.js';
import { eduText, everyDevice, type MessageTexts, parseMessages, spread } from './messages.js';
import { inboxKey, ToDeviceService } from './to-device.service.js';
import {
  devicesOf,
  insertMessages,
  insertOutbox,
  isNoted,
  noteMessage,
  noteRequest,
  type OutboxMessage,
} from './to-device.query.js';

/**
 * What another server may make this one write that it has not sent, since its messages go to all devices of a user: bytes, in a burst and
 * for good. With more its messages of that kind have to come again, up to five times.
 */
const copiedBurstBytes = 33_554_432;
const copiedBytesPerSecond = 262_144;
/** In which that is counted. */
const pieceBytes = 65_536;

/**
 * Sends messages from device to device, of clients here and of other servers.
 * @spec client-server-api#send-to-device-messaging
 */
@Injectable()
export class ToDeviceSending {
  readonly #queuedListeners: ((destinations: readonly string[], position: number) => void)[] = [];
  /** By server. */
  readonly #copied: LeakyBucketRateLimiter;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly rateLimiter: RateLimiter,
    private readonly inboxes: ToDeviceService,
  ) {
    const limit = { perSecond: copiedBytesPerSecond / pieceBytes, burstCount: copiedBurstBytes / pieceBytes };
    this.#copied = new LeakyBucketRateLimiter(clock, () => limit);
  }

  /**
   * Sends a client's messages; the same request once more sends nothing. Devices that do not exist are passed over.
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED` (requests for room keys)
   */
  async sendByClient(requester: Requester, type: string, txnId: string, messages: JsonObject): Promise<void> {
    const { userId, deviceId = `as:${requester.appserviceId ?? ''}` } = requester;
    if (!isName(type) || !isName(txnId)) throw MatrixError.invalidParam('Not a valid event type or transaction id');
    const texts = parseMessages(messages);
    // What goes to other servers is found out where events are written.
    if ([...texts.keys()].some((to) => !this.#isHere(to))) this.database.onlyAtWriter('messages for other servers');
    // Before the limit, from which whoever takes the request then takes once more.
    if (!this.inboxes.stream.isWrittenHere) this.database.onlyAtWriter('messages that others could not be told of');
    if (type === 'm.room_key_request')
      await this.rateLimiter.take('rc_key_requests', `${userId}\n${deviceId}`, requester);
    await this.#send(type, userId, texts, (tx) =>
      noteRequest(tx, { userId, deviceId, type, txnId }, this.clock.nowMs()),
    );
  }

  /**
   * Messages of another server: the content of an `m.direct_to_device` EDU. One that came before is passed over, as is what
   * has the wrong shape or size, is from somebody else's user, or is for users of other servers.
   * @returns whether a device gets something
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`: it is to come again
   */
  async receive(origin: string, content: JsonObject): Promise<boolean> {
    const { sender, type, message_id: messageId, messages } = content;
    if (!isName(sender) || !isName(type) || !isName(messageId) || !isJsonObject(messages)) return false;
    if (domainOf(sender) !== origin) return false;
    if (type === 'm.room_key_request' && !(await this.rateLimiter.mayTake('rc_key_requests', sender))) return false;
    const here = Object.fromEntries(Object.entries(messages).filter(([userId]) => this.#isHere(userId)));
    if (Object.values(here).some((devices) => isJsonObject(devices) && Object.hasOwn(devices, everyDevice))) {
      // What has arrived is not refused where it comes again with what has not.
      if (await isNoted(this.database, origin, messageId)) return false;
      await this.#checkCopied(origin);
    }
    let dropped: MatrixError | undefined;
    let copied: number | undefined;
    try {
      const texts = parseMessages(here, (error) => (dropped ??= error));
      if (type === 'm.room_key_request') await this.rateLimiter.take('rc_key_requests', sender);
      const note = (tx: Tx): Promise<boolean> => noteMessage(tx, origin, messageId, this.clock.nowMs());
      if (texts.size > 0) copied = await this.#send(type, sender, texts, note);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      dropped = error;
    }
    if (dropped)
      this.logger.info('To-device messages of another server were dropped', { origin, reason: dropped.message });
    if (copied === undefined) return false;
    await this.#noteCopied(origin, copied);
    return true;
  }

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` where a server has made this one write too much that it has not sent */
  async #checkCopied(origin: string): Promise<void> {
    // Asked for the refusal with its time only: what it comes to is known afterwards.
    if (!(await this.#copied.mayTake('', origin))) await this.#copied.take('', origin);
  }

  async #noteCopied(origin: string, bytes: number): Promise<void> {
    // Piece by piece: what does not fit fills the bucket.
    for (let left = bytes / pieceBytes; left > 0 && (await this.#copied.mayTake('', origin)); left--)
      await this.#copied.take('', origin, undefined, Math.min(left, 1));
  }

  /**
   * Calls `listener` with the servers for which messages were queued, once that is durable, and with their place in the stream, up to which
   * it may not be readable yet. It must not throw or block.
   */
  onQueued(listener: (destinations: readonly string[], position: number) => void): void {
    this.#queuedListeners.push(listener);
  }

  /**
   * @param note writes that it was sent; false when it was sent before
   * @returns bytes that were written and not sent ({@link spread}); `undefined` where nobody gets anything, which is not noted
   * @throws MatrixError 413 `M_TOO_LARGE`
   */
  async #send(
    type: string,
    sender: string,
    texts: MessageTexts,
    note: (tx: Tx) => Promise<boolean>,
  ): Promise<number | undefined> {
    const local = [...texts.keys()].filter((userId) => this.#isHere(userId));
    const servers = byServer(
      [...texts].filter(([userId]) => !this.#isHere(userId)),
      domainOf,
    );
    return this.database.write(
      async (tx) => {
        const devices = local.length > 0 ? await devicesOf(tx, local) : new Map<string, string[]>();
        const { inbox, copiedBytes } = spread(type, sender, texts, devices);
        if (inbox.length === 0 && servers.size === 0) return undefined;
        if (!(await note(tx))) return undefined;
        const [position = 0] = await this.inboxes.stream.allocateIn(tx);
        if (inbox.length > 0) await insertMessages(tx, position, inbox);
        if (servers.size > 0) {
          const outbox = [...servers].map(([destination, users]): OutboxMessage => {
            const json = eduText(type, sender, this.ids.letters(24), users);
            return { destination, position, json };
          });
          await insertOutbox(tx, outbox, this.clock.nowMs());
        }
        this.inboxes.stream.announceIn(tx, position, {
          changed: { device: inbox.map(({ userId, deviceId }) => inboxKey(userId, deviceId)) },
          users: new Set(inbox.map(({ userId }) => userId)),
        });
        if (servers.size > 0) {
          tx.unlessRolledBack(() => {
            for (const listener of this.#queuedListeners) listener([...servers.keys()], position);
          });
        }
        return copiedBytes;
      },
      { name: 'to_device_send', anyProcess: this.inboxes.stream.isWrittenHere },
    );
  }

  #isHere(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
  }
}
