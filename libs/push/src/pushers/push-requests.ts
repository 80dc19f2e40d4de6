import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Logger } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { GatewayPlaces } from './gateway-places.js';
import { type GatewayVerdict, PushGateway } from './push-gateway.js';
import type { Pusher } from './pusher.js';
import { deleteRejected } from './pusher.query.js';

/** A message for a gateway. */
export interface PushMessage {
  readonly body: JsonObject;
  /** The number that the device shows then; absent where it shows none. */
  readonly unread: number | undefined;
}

/** After a failure, numbers alone are not told for so long. */
const restMs = 60_000;

/** Sends messages to gateways: which number each device shows is known afterwards, and a pusher that is refused goes. */
@Injectable()
export class PushRequests {
  /** Take one for as long as a gateway is asked. */
  readonly places = new GatewayPlaces();
  readonly #shown = new LRUCache<number, number>({ maxSize: 100_000, sizeCalculation: () => 1 });
  readonly #failedAtMs = new LRUCache<number, number>({ maxSize: 100_000, sizeCalculation: () => 1 });

  constructor(
    private readonly gateway: PushGateway,
    private readonly database: Database,
    private readonly logger: Logger,
    private readonly clock: Clock,
  ) {}

  /** The number that a device shows, as far as it is known. */
  shownBy(pusherId: number): number | undefined {
    return this.#shown.get(pusherId);
  }

  /** Whether a pusher's gateway has just failed, and nothing has got through since; one that was set up anew is another. */
  isResting({ id, ts }: Pusher): boolean {
    const failedAtMs = this.#failedAtMs.get(id);
    return failedAtMs !== undefined && ts <= failedAtMs && this.clock.nowMs() - failedAtMs < restMs;
  }

  /** Never rejects for the gateway's sake. */
  async send(pusher: Pusher, { body, unread }: PushMessage, signal: AbortSignal): Promise<GatewayVerdict> {
    const verdict = await this.gateway.notify(pusher, body, signal);
    if (verdict.kind === 'sent' && unread !== undefined) this.#shown.set(pusher.id, unread);
    if (verdict.kind !== 'failed') this.#failedAtMs.delete(pusher.id);
    // One that was cut off says nothing about the gateway.
    else if (!signal.aborted) this.#failedAtMs.set(pusher.id, this.clock.nowMs());
    if (verdict.kind === 'rejected') {
      const { userId, appId } = pusher;
      this.logger.info('A push gateway does not know a device any more', { userId, appId });
      await this.database.write((tx) => deleteRejected(tx, pusher), {
        ...{ name: 'pusher_rejected', anyProcess: true },
      });
    }
    return verdict;
  }
}
