import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Metrics } from '@rookery/platform';

interface Host {
  /** When the requests of the present window came, milliseconds of the monotonic clock. */
  readonly recentMs: number[];
  running: number;
  /** Waiting for their delay or for a place. */
  queued: number;
  readonly places: (() => void)[];
  /** Requests that wait for their delay. */
  sleeping: number;
  /** When one was refused last, milliseconds of the monotonic clock. */
  refusedMs: number | undefined;
}

/** Servers that are remembered before those are forgotten that are quiet. */
const sweepFrom = 1_000;
const label = { rate_limiter_name: 'federation_servlets' };

/**
 * Keeps one other server from taking all the time: what comes too fast is slowed down, what is too much at once waits, and
 * when too much waits, more is refused (`rc_federation`).
 */
@Injectable()
export class FederationRateLimiter {
  readonly #hosts = new Map<string, Host>();
  readonly #slept;
  readonly #rejected;
  readonly #waited;
  #sweepAt = sweepFrom;

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    metrics: Metrics,
  ) {
    this.#slept = metrics.counter('synapse_rate_limit_sleep');
    this.#rejected = metrics.counter('synapse_rate_limit_reject');
    this.#waited = metrics.histogram('synapse_rate_limit_queue_wait_time_seconds');
    metrics.gauge('synapse_rate_limit_sleep_affected_hosts', (gauge) =>
      gauge.set(
        label,
        this.#count(({ sleeping }) => sleeping > 0),
      ),
    );
    metrics.gauge('synapse_rate_limit_reject_affected_hosts', (gauge) => {
      const sinceMs = this.clock.monotonicMs() - this.config.get('rc_federation.window_size');
      gauge.set(
        label,
        this.#count(({ refusedMs }) => refusedMs !== undefined && refusedMs > sinceMs),
      );
    });
  }

  /** Servers that have something under way, or had a moment ago. */
  get size(): number {
    return this.#hosts.size;
  }

  /**
   * Waits until a request of a server may be served.
   * @param signal ends the waiting: the other server has gone
   * @returns to be called once it has been
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async enter(origin: string, signal: AbortSignal): Promise<() => void> {
    const windowMs = this.config.get('rc_federation.window_size');
    const sleepLimit = this.config.get('rc_federation.sleep_limit');
    const nowMs = this.clock.monotonicMs();
    const host = this.#host(origin, nowMs, windowMs);
    if (host.queued > this.config.get('rc_federation.reject_limit')) {
      this.#rejected.inc(label);
      host.refusedMs = nowMs;
      throw MatrixError.limitExceeded(windowMs / Math.max(sleepLimit, 1));
    }
    host.recentMs.push(nowMs);
    host.queued++;
    try {
      if (host.recentMs.length > sleepLimit) {
        this.#slept.inc(label);
        host.sleeping++;
        await this.clock.sleep(this.config.get('rc_federation.sleep_delay'), signal).finally(() => host.sleeping--);
      }
      if (host.running < this.config.get('rc_federation.concurrent')) host.running++;
      else await placeIn(host, signal);
    } finally {
      host.queued--;
    }
    this.#waited.observe(label, (this.clock.monotonicMs() - nowMs) / 1000);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      // The place goes on to the next one; the count stays.
      const next = host.places.shift();
      if (next === undefined) host.running--;
      else next();
    };
  }

  #count(isMeant: (host: Host) => boolean): number {
    let count = 0;
    for (const host of this.#hosts.values()) if (isMeant(host)) count++;
    return count;
  }

  #host(origin: string, nowMs: number, windowMs: number): Host {
    let host = this.#hosts.get(origin);
    if (host === undefined) {
      if (this.#hosts.size >= this.#sweepAt) this.#sweep(nowMs - windowMs);
      this.#hosts.set(
        origin,
        (host = { recentMs: [], running: 0, queued: 0, places: [], sleeping: 0, refusedMs: undefined }),
      );
    }
    while (host.recentMs[0] !== undefined && host.recentMs[0] <= nowMs - windowMs) host.recentMs.shift();
    return host;
  }

  /** Forgets servers of which nothing is left. */
  #sweep(beforeMs: number): void {
    for (const [origin, { recentMs, running, queued }] of this.#hosts)
      if (running === 0 && queued === 0 && (recentMs.at(-1) ?? 0) <= beforeMs) this.#hosts.delete(origin);
    this.#sweepAt = Math.max(sweepFrom, 2 * this.#hosts.size);
  }
}

function placeIn({ places }: Host, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const give = (): void => {
      places.splice(places.indexOf(take), 1);
      reject(MatrixError.requestGivenUp());
    };
    const take = (): void => {
      signal.removeEventListener('abort', give);
      resolve();
    };
    if (signal.aborted) return reject(MatrixError.requestGivenUp());
    signal.addEventListener('abort', give, { once: true });
    places.push(take);
  });
}
