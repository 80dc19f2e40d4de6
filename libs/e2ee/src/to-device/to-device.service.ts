import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { BackgroundTasks, Cache, Clock, Config, ownTurn } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { UserHooks } from '@rookery/users';
import {
  deleteInboxes,
  deleteMessages,
  deleteOutbox,
  deleteSomeLeft,
  forgetNoted,
  hasMessages,
  highestToDeviceId,
  messagesOf,
  nextLeftInbox,
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
  anyProcess: true,
  keys: { device: {}, counts: {} },
});

/** How long a repeated request is recognised. */
const rememberMs = 7 * 24 * 3_600_000;
const forgetEveryMs = 3_600_000;
const maxAcknowledged = 100_000;
/** Messages of deleted devices that are deleted in a transaction. */
const deletedAtOnce = 500;

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
 * What waits for devices, here and elsewhere. A message stays in the inbox until the device comes back with a token from behind it, so
 * that it arrives once: neither lost with an answer, nor given again after a restart.
 * @spec client-server-api#send-to-device-messaging
 */
@Injectable()
export class ToDeviceService implements OnModuleInit {
  readonly stream: Stream<'device' | 'counts'>;
  readonly #arrived: ChangedKeys;
  // Up to where messages of a device were deleted.
  readonly #acknowledged: Cache<string, number>;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly tasks: BackgroundTasks,
    config: Config,
    streams: Streams,
    userHooks: UserHooks,
  ) {
    this.#acknowledged = new Cache(config, 'to_device_acknowledged', {
      ...{ invalidation: 'stream to_device', elsewhere: 'checked', max: 2 * maxAcknowledged },
    });
    this.stream = streams.of(toDeviceStream);
    this.#arrived = this.stream.changes('device');
    userHooks.devicesDeleted.subscribe({
      inTransaction: (tx, { userId, deviceIds }) => deleteInboxes(tx, userId, deviceIds, deletedAtOnce),
    });
  }

  onModuleInit(): void {
    const run = (signal: AbortSignal): Promise<void> => this.#forget(signal);
    this.tasks.add({ name: 'forget_to_device_requests', role: 'background', everyMs: forgetEveryMs, run }).start();
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

  /** What waits for another server in `(after, upTo]`, oldest first. */
  outbox(destination: string, after: number, upTo: number, limit: number): Promise<OutboxMessage[]> {
    return outboxOf(this.database, destination, after, upTo, limit);
  }

  /** Servers for which something waits. */
  outboxDestinations(): Promise<string[]> {
    return outboxDestinations(this.database);
  }

  /** Another server has got everything up to a position. */
  async delivered(destination: string, upTo: number): Promise<void> {
    await this.database.write((tx) => deleteOutbox(tx, destination, upTo), {
      ...{ name: 'to_device_delivered', anyProcess: true },
    });
  }

  async #forget(signal: AbortSignal): Promise<void> {
    const options = { name: 'to_device_forget', anyProcess: true };
    await this.database.write((tx) => forgetNoted(tx, this.clock.nowMs() - rememberMs), options);
    while (!signal.aborted) {
      const left = await nextLeftInbox(this.database);
      if (left === undefined) return;
      await this.database.write((tx) => deleteSomeLeft(tx, left, deletedAtOnce), options);
      await ownTurn();
    }
  }
}
