import type { Database } from '@rookery/database';
import { type LimiterName, type RateLimit, RateLimitOverrides } from '@rookery/http';
import { callbackContext, type ModuleDispatcher } from '@rookery/module-host';
import type { Clock, Logger } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { rateLimitOf } from './rate-limit-overrides.query.js';

/** How long what the database said is believed: an administrator's change takes effect within it. */
const maxAgeMs = 5_000;
const maxUsers = 20_000;

interface Known {
  readonly limit: Promise<RateLimit | undefined>;
  readonly atMs: number;
}

/** Numbers of rate limiters for single users: an administrator's, in `ratelimit_override`, before those of modules. */
export class UserRateLimits extends RateLimitOverrides {
  readonly #known = new LRUCache<string, Known>({ max: maxUsers });

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly dispatcher: ModuleDispatcher,
  ) {
    super();
  }

  async find(userId: string, limiter: LimiterName): Promise<RateLimit | undefined> {
    const own = await this.#byAdministrator(userId);
    if (own || !limiter.startsWith('rc_invites.') || !this.dispatcher.has('getRatelimitOverrideForUser')) return own;
    const context = callbackContext(undefined);
    const answer = await this.dispatcher.provide('getRatelimitOverrideForUser', context, userId, limiter);
    return answer && { perSecond: answer.perSecond, burstCount: answer.burstCount };
  }

  #byAdministrator(userId: string): Promise<RateLimit | undefined> {
    const nowMs = this.clock.monotonicMs();
    const known = this.#known.get(userId);
    if (known && nowMs - known.atMs < maxAgeMs) return known.limit;
    const limit = rateLimitOf(this.database, userId).catch((err: unknown) => {
      // What cannot be read must not keep anybody from anything: the settings' limits hold.
      this.logger.warn('The rate limits of a user could not be read', { err });
      return undefined;
    });
    this.#known.set(userId, { limit, atMs: nowMs });
    return limit;
  }
}
