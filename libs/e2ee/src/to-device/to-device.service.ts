import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Cache, BackgroundTasks, Clock, Config, Ids, Logger, type Requester } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { UserHooks } from '@rookery/users';
import { byServer, isName } from '../common/limits.js';
import { eduText, everyDevice, inboxText, type MessageTexts, parseMessages } from './messages.js';
import {
  deleteInboxes,
  deleteMessages,
  deleteOutbox,
  devicesOf,
  forgetNoted,
  hasMessages,
  highestToDeviceId,
  type InboxMessage,
  insertMessages,
  insertOutbox,
  messagesOf,
  noteMessage,
  noteRequest,
  outboxDestinations,
  type OutboxMessage,
  outboxOf,
} from './to-device.query.js';

/**
 * To-device messages by device (`device`), and changes of how many one-time keys a device has left (`counts`), which have no
 * stream of their own.
 */
export const toDeviceStream = defineStream({
  name: 'to_device',
  takenUpTo: highestToDeviceId,
  keys: { device: {}, counts: {} },
});

/** How long a repeated request is recognised. */
const rememberMs = 7 * 24 * 3_600_000;
const forgetEveryMs = 3_600_000;
const maxAcknowledged = 100_000;

/** Messages for one device, and up to where the answer goes. */
export interface ToDevicePage {
  /** Events `{type, sender, content}`, oldest first. */
  readonly events: readonly JsonObject[];
  /** Where the device stands once it has them: short of `upTo` when there are more. */
  readonly position: number;
}

/** A device among those of all users, in {@link toDeviceStream}. */
export const inboxKey = (userId: string, deviceId: string): string => `${userId}\n${deviceId}`;

/**
 * Messages from device to device. A message stays in the inbox until the device comes back with a token from behind it, so
 * that it arrives once: neither lost with an answer, nor given again after a restart.
 * @spec client-server-api#send-to-device-messaging
 */
@Injectable()
export class ToDeviceService implements OnModuleInit {
  readonly stream: Stream<'device' | 'counts'>;
  readonly #arrived: ChangedKeys;
  // Up to where messages of a device were deleted.
  readonly #acknowledged: Cache<string, number>;
  readonly #queuedListeners: ((destinations: readonly string[]) => void)[] = [];

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly rateLimiter: RateLimiter,
    private readonly tasks: BackgroundTasks,
    streams: Streams,
    userHooks: UserHooks,
  ) {
    this.#acknowledged = new Cache(config, 'to_device_acknowledged', {
      ...{ invalidation: 'stream to_device', elsewhere: 'checked', max: 2 * maxAcknowledged },
    });
    this.stream = streams.of(toDeviceStream);
    this.#arrived = this.stream.changes('device');
    userHooks.devicesDeleted.subscribe({
      inTransaction: (tx, { userId, deviceIds }) => deleteInboxes(tx, userId, deviceIds),
    });
  }

  onModuleInit(): void {
    const run = (): Promise<void> => this.#forget();
    this.tasks.add({ name: 'forget_to_device_requests', role: 'background', everyMs: forgetEveryMs, run }).start();
  }

  /**
   * Sends a client's messages; the same request once more sends nothing. Devices that do not exist are passed over.
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED` (requests for room keys)
   */
  async sendByClient(requester: Requester, type: string, txnId: string, messages: JsonObject): Promise<void> {
    const { userId, deviceId = `as:${requester.appserviceId ?? ''}` } = requester;
    if (!isName(type) || !isName(txnId)) throw MatrixError.invalidParam('Not a valid event type or transaction id');
    const texts = parseMessages(messages);
    if (type === 'm.room_key_request')
      await this.rateLimiter.take('rc_key_requests', `${userId}\n${deviceId}`, requester);
    await this.#send(type, userId, texts, (tx) =>
      noteRequest(tx, { userId, deviceId, type, txnId }, this.clock.nowMs()),
    );
  }

  /**
   * Messages of another server: the content of an `m.direct_to_device` EDU. One that came before is passed over, as is what
   * has the wrong shape, is from somebody else's user, or is for users of other servers.
   */
  async receive(origin: string, content: JsonObject): Promise<void> {
    const { sender, type, message_id: messageId, messages } = content;
    if (!isName(sender) || !isName(type) || !isName(messageId) || !isJsonObject(messages)) return;
    if (domainOf(sender) !== origin) return;
    if (type === 'm.room_key_request' && !(await this.rateLimiter.mayTake('rc_key_requests', sender))) return;
    let texts;
    try {
      texts = parseMessages(messages);
      if (type === 'm.room_key_request') await this.rateLimiter.take('rc_key_requests', sender);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      this.logger.info('To-device messages of another server were dropped', { origin, reason: error.message });
      return;
    }
    const here = new Map([...texts].filter(([userId]) => domainOf(userId) === this.config.serverName));
    await this.#send(type, sender, here, (tx) => noteMessage(tx, origin, messageId, this.clock.nowMs()));
  }

  /** Whether a device may have messages from behind a position; `false` is certain. Costs no query. */
  mayHaveMessages(userId: string, deviceId: string, after: number): boolean {
    return this.#arrived.hasChanged(inboxKey(userId, deviceId), after);
  }

  /**
   * Messages of a device with `after < position <= upTo`, at most `limit`. No query while none arrived. Who says to have got
   * what there has not been yet gets all that there is.
   */
  async messages(userId: string, deviceId: string, from: number, upTo: number, limit = 100): Promise<ToDevicePage> {
    const after = this.#isPast(from) ? from : 0;
    if (!this.mayHaveMessages(userId, deviceId, after)) return { events: [], position: upTo };
    const found = await messagesOf(this.database, userId, deviceId, after, upTo, limit);
    const last = found.at(-1);
    return {
      events: found.map((message) => JSON.parse(message.json) as JsonObject),
      position: last !== undefined && found.length >= limit ? last.position : upTo,
    };
  }

  /**
   * A device came back with a token from this position: it has got everything up to there, which is deleted. A position that
   * has not been yet, as of before a backup was put back, says nothing. No query while there is nothing to delete.
   */
  async acknowledge(userId: string, deviceId: string, upTo: number): Promise<void> {
    if (!this.#isPast(upTo)) return;
    const key = inboxKey(userId, deviceId);
    const before = this.#acknowledged.get(key);
    if (before !== undefined && (before >= upTo || !this.#arrived.hasChanged(key, before))) return;
    if (await hasMessages(this.database, userId, deviceId, upTo))
      await this.database.write((tx) => deleteMessages(tx, userId, deviceId, upTo), {
        name: 'to_device_acknowledge',
        anyProcess: true,
      });
    this.#acknowledged.set(key, upTo);
  }

  #isPast(position: number): boolean {
    return position <= this.stream.current();
  }

  /** Calls `listener` with the servers for which messages were queued, once that is durable. It must not throw or block. */
  onQueued(listener: (destinations: readonly string[]) => void): void {
    this.#queuedListeners.push(listener);
  }

  /** What waits for another server in `(after, upTo]`, oldest first. */
  outbox(destination: string, after: number, upTo: number, limit: number): Promise<OutboxMessage[]> {
    return outboxOf(this.database, destination, after, upTo, limit);
  }

  /** Servers for which something was queued in `(after, upTo]`. */
  outboxDestinations(after: number, upTo: number): Promise<string[]> {
    return outboxDestinations(this.database, after, upTo);
  }

  /** Another server has got everything up to a position. */
  async delivered(destination: string, upTo: number): Promise<void> {
    await this.database.write((tx) => deleteOutbox(tx, destination, upTo), { name: 'to_device_delivered' });
  }

  /** @param note writes that it was sent; false when it was sent before */
  async #send(type: string, sender: string, texts: MessageTexts, note: (tx: Tx) => Promise<boolean>): Promise<void> {
    const isHere = (userId: string): boolean => domainOf(userId) === this.config.serverName;
    const local = [...texts.keys()].filter(isHere);
    const servers = byServer(
      [...texts].filter(([userId]) => !isHere(userId)),
      domainOf,
    );
    await this.database.write(
      async (tx) => {
        if (!(await note(tx))) return;
        const devices = local.length > 0 ? await devicesOf(tx, local) : new Map<string, string[]>();
        const inbox = local.flatMap((userId) =>
          (devices.get(userId) ?? []).flatMap((deviceId): InboxMessage[] => {
            const content = texts.get(userId)?.get(deviceId) ?? texts.get(userId)?.get(everyDevice);
            return content === undefined ? [] : [{ userId, deviceId, json: inboxText(type, sender, content) }];
          }),
        );
        if (inbox.length === 0 && servers.size === 0) return;
        const [position = 0] = await this.stream.allocateIn(tx);
        if (inbox.length > 0) await insertMessages(tx, position, inbox);
        if (servers.size > 0) {
          const outbox = [...servers].map(([destination, users]): OutboxMessage => {
            const json = eduText(type, sender, this.ids.letters(24), users);
            return { destination, position, json };
          });
          await insertOutbox(tx, outbox, this.clock.nowMs());
        }
        this.stream.announceIn(tx, position, {
          changed: { device: inbox.map(({ userId, deviceId }) => inboxKey(userId, deviceId)) },
          users: new Set(inbox.map(({ userId }) => userId)),
        });
        if (servers.size > 0) {
          tx.unlessRolledBack(() => {
            for (const listener of this.#queuedListeners) listener([...servers.keys()]);
          });
        }
      },
      { name: 'to_device_send' },
    );
  }

  async #forget(): Promise<void> {
    await this.database.write((tx) => forgetNoted(tx, this.clock.nowMs() - rememberMs), { name: 'to_device_forget' });
  }
}
