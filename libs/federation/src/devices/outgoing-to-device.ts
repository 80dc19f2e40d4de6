import { Injectable } from '@nestjs/common';
import { type OutboxMessage, ToDeviceSending, ToDeviceService } from '@rookery/e2ee';
import { Logger } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import { FederationSender } from '../sender/federation-sender.js';
import { eduOfText, type EduStore } from '../sender/outgoing-edu.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import { DeviceListNews } from './device-list-news.js';

/** No further message is added to a transaction that holds so much; characters. */
const maxChars = 1_048_576;
/** Until messages count as readable, milliseconds; longer than any transaction. */
const longestGapMs = 60_000;

/**
 * Brings other servers the to-device messages for their users, and before them the changes of device lists. Both lie in the
 * database until a server has them.
 */
@Injectable()
export class OutgoingToDevice {
  constructor(
    private readonly sender: FederationSender,
    private readonly audience: RemoteAudience,
    private readonly toDevice: ToDeviceService,
    private readonly notifier: Notifier,
    private readonly logger: Logger,
    sending: ToDeviceSending,
    lists: DeviceListNews,
  ) {
    // A message may be encrypted for a device that its receiver does not know yet: lists come first.
    sender.addStore(lists.store);
    sender.addStore(this.#messages);
    sending.onQueued((servers, position) => void this.#queued(servers, position));
  }

  /** Never rejects. */
  async #queued(servers: readonly string[], position: number): Promise<void> {
    const { name } = this.toDevice.stream;
    // What was written at the same time may come before it: who looks now would find nothing, and look no more.
    await this.notifier.reached(name, position, { timeoutMs: longestGapMs });
    this.sender.wake(this.#messages.name, servers);
    for (const server of servers) if (!this.audience.mayReach(server)) await this.#drop(server);
  }

  /** Forgets messages for a server that the settings do not allow, or that cannot exist. */
  async #drop(server: string): Promise<void> {
    try {
      await this.toDevice.delivered(server, this.toDevice.stream.current());
    } catch (error) {
      this.logger.warn('Messages for a server that cannot be reached were not deleted', { err: error });
    }
  }

  readonly #messages: EduStore = {
    name: 'to_device',
    destinations: () => this.toDevice.outboxDestinations(),
    next: async (destination, limit) => {
      const upTo = this.toDevice.stream.current();
      const waiting = await this.toDevice.outbox(destination, 0, upTo, limit);
      const taken = within(maxChars, waiting);
      const last = taken.at(-1)?.position;
      return {
        edus: taken.flatMap(({ json }) => eduOfText('m.direct_to_device', json) ?? []),
        isAll: taken.length < limit && taken.length === waiting.length,
        delivered: async () => {
          if (last !== undefined) await this.toDevice.delivered(destination, last);
        },
      };
    },
  };
}

/** As many as fit, one at least. */
function within(chars: number, messages: readonly OutboxMessage[]): readonly OutboxMessage[] {
  let sum = 0;
  const end = messages.findIndex(({ json }, index) => (sum += json.length) > chars && index > 0);
  return end < 0 ? messages : messages.slice(0, end);
}
