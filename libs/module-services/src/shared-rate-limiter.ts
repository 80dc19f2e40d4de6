import { type LimiterName, RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { defineRpc, type Rpc, type StreamWriters } from '@rookery/replication';

interface Asked {
  readonly limiter: LimiterName;
  readonly key: string;
  readonly requester?: Requester | undefined;
  readonly cost?: number | undefined;
  /** Only whether there is room for it. */
  readonly looks?: boolean | undefined;
}

/** Takes from a limit where the server counts it; whether there was room. */
const askLimit = defineRpc<Asked, boolean>('ask_limit', { timeoutMs: 1_000 });

/**
 * Limits of a server with several processes: the one that writes counts for all of them, so that a limit is the same whichever
 * processes a client goes to. While that one cannot be asked each counts by itself.
 */
export class SharedRateLimiter extends RateLimiter {
  constructor(
    private readonly own: RateLimiter,
    private readonly rpc: Rpc,
    private readonly writers: StreamWriters,
  ) {
    super();
    rpc.handle(askLimit, async ({ limiter, key, requester, cost, looks }) => {
      if (looks) return own.mayTake(limiter, key, requester);
      await own.take(limiter, key, requester, cost);
      return true;
    });
  }

  async take(limiter: LimiterName, key: string, requester?: Requester, cost?: number): Promise<void> {
    const asked = await this.#askWriter({ limiter, key, requester, cost });
    if (asked === undefined) await this.own.take(limiter, key, requester, cost);
  }

  async mayTake(limiter: LimiterName, key: string, requester?: Requester): Promise<boolean> {
    const asked = await this.#askWriter({ limiter, key, requester, looks: true });
    return asked ?? this.own.mayTake(limiter, key, requester);
  }

  /** `undefined` where this process is the one to ask, or the other does not answer. @throws MatrixError 429 `M_LIMIT_EXCEEDED` */
  async #askWriter(asked: Asked): Promise<boolean | undefined> {
    if (this.writers.isHere('events')) return undefined;
    try {
      return await this.rpc.call(askLimit, asked, this.writers.writerOf('events'));
    } catch (error) {
      if (MatrixError.is(error) && error.status === 429) throw error;
      return undefined;
    }
  }
}
