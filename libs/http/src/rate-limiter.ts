import type { Requester } from '@rookery/platform';

/** A leaky bucket's numbers; `perSecond` 0 with an override means unlimited. */
export interface RateLimit {
  readonly perSecond: number;
  readonly burstCount: number;
}

/** Names of the limiters, after their settings: `rc_message`, `rc_login.address`... */
export type LimiterName = string;

/** Leaky buckets, one per limiter and key. The settings `rc_*` hold their numbers. */
export abstract class RateLimiter {
  /**
   * Takes `cost` from the bucket of `key`.
   * @param requester exempt application services and administrators' overrides are honoured
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` with `retry_after_ms`; 400 `M_INVALID_PARAM` for a cost that the bucket never holds
   */
  abstract take(limiter: LimiterName, key: string, requester?: Requester, cost?: number): Promise<void>;
  /** Whether {@link take} would succeed, without taking. */
  abstract mayTake(limiter: LimiterName, key: string, requester?: Requester): Promise<boolean>;
}

/** Per-user numbers set by an administrator or a module. Implemented above. */
export abstract class RateLimitOverrides {
  /** `undefined`: the settings' numbers hold. */
  abstract find(userId: string, limiter: LimiterName): Promise<RateLimit | undefined>;
}
