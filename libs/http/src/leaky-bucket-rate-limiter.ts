import { MatrixError } from '@rookery/matrix-types';
import type { Clock, Requester } from '@rookery/platform';
import { networkOf } from './networks.js';
import { type LimiterName, type RateLimit, RateLimiter, type RateLimitOverrides } from './rate-limiter.js';

/** Limits whose numbers an administrator's override replaces: it is about what a user sends. */
const ofSending = new Set<LimiterName>(['rc_message', 'rc_admin_redaction']);

/** Who is unlimited is so everywhere, but in guessing passwords. */
const isOfLogins = (limiter: LimiterName): boolean => limiter.startsWith('rc_login.');

/** Keys may be addresses, and whoever has one IPv6 address has its whole network; other keys stand for themselves. */
const bucketKey = (limiter: LimiterName, key: string): string => `${limiter}\n${networkOf(key)}`;

/** Where nothing else is said. */
const fallback: RateLimit = { perSecond: 0.17, burstCount: 3 };

/** One at least fits into every bucket. */
const capacityOf = ({ burstCount }: RateLimit): number => Math.max(burstCount, 1);

/** A bucket: how much was taken when, and when it will be empty again. */
interface Bucket {
  /** Taken and not yet leaked, at {@link atMs}. */
  level: number;
  atMs: number;
  perSecond: number;
}

/** Buckets that are kept at most; the longest untouched go first. */
const defaultMaxBuckets = 200_000;
/** Buckets looked at per call for those that have run empty. */
const sweepStep = 2;

/**
 * Leaky buckets in the memory of one process. A bucket holds `burstCount`, and `perSecond` leaks from it; what does not fit
 * is refused and takes nothing, so that a client that keeps trying is served as soon as there is room.
 */
export class LeakyBucketRateLimiter extends RateLimiter {
  readonly #buckets = new Map<string, Bucket>();

  /**
   * @param limitOf the numbers of a limiter, from the settings; asked at every call, so that a reload takes effect at once
   * @param overrides numbers that administrators or modules set for a user
   * @param maxBuckets memory is bounded by this
   */
  constructor(
    private readonly clock: Clock,
    private readonly limitOf: (limiter: LimiterName) => RateLimit | undefined,
    private readonly overrides?: RateLimitOverrides,
    private readonly maxBuckets = defaultMaxBuckets,
  ) {
    super();
  }

  async take(limiter: LimiterName, key: string, requester?: Requester, cost = 1): Promise<void> {
    const limit = await this.#limitFor(limiter, requester);
    if (limit === undefined) return;
    if (cost > capacityOf(limit)) throw MatrixError.invalidParam(`That is more than the limit ${limiter} ever allows`);
    const waitMs = this.#try(bucketKey(limiter, key), limit, cost, true);
    if (waitMs > 0) throw MatrixError.limitExceeded(waitMs);
  }

  async mayTake(limiter: LimiterName, key: string, requester?: Requester): Promise<boolean> {
    const limit = await this.#limitFor(limiter, requester);
    return limit === undefined || this.#try(bucketKey(limiter, key), limit, 1, false) === 0;
  }

  /** How many buckets are kept. */
  get size(): number {
    return this.#buckets.size;
  }

  async #limitFor(limiter: LimiterName, requester: Requester | undefined): Promise<RateLimit | undefined> {
    if (requester?.rateLimitExempt) return undefined;
    if (this.overrides !== undefined && requester !== undefined && !isOfLogins(limiter)) {
      const own = await this.overrides.find(requester.userId, limiter);
      if (own?.perSecond === 0) return undefined;
      if (own !== undefined && ofSending.has(limiter)) return own;
    }
    return this.limitOf(limiter) ?? fallback;
  }

  /** @returns how long until `cost` would fit, milliseconds; 0 when it fits now */
  #try(key: string, limit: RateLimit, cost: number, take: boolean): number {
    const nowMs = this.clock.monotonicMs();
    const bucket = this.#buckets.get(key);
    const level =
      bucket === undefined ? 0 : Math.max(0, bucket.level - ((nowMs - bucket.atMs) / 1000) * limit.perSecond);
    // A little slack, so that adding up fractions of a second does not refuse what fits.
    const excess = level + cost - capacityOf(limit);
    if (excess > 1e-9)
      return limit.perSecond > 0 ? Math.max(1, Math.ceil((excess / limit.perSecond) * 1000 - 1e-6)) : 86_400_000;
    if (!take) return 0;
    this.#sweep(nowMs);
    // Put last again: the map's order is the order of use.
    this.#buckets.delete(key);
    this.#buckets.set(key, { level: level + cost, atMs: nowMs, perSecond: limit.perSecond });
    return 0;
  }

  /** Forgets the buckets longest untouched, where they are empty by now or there are too many. */
  #sweep(nowMs: number): void {
    let left = sweepStep;
    for (const [key, bucket] of this.#buckets) {
      if (left-- === 0) break;
      const empty = bucket.level <= ((nowMs - bucket.atMs) / 1000) * bucket.perSecond;
      if (!empty && this.#buckets.size < this.maxBuckets) break;
      this.#buckets.delete(key);
    }
  }
}
