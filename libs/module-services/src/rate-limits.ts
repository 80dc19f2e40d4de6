import { Injectable } from '@nestjs/common';
import {
  LeakyBucketRateLimiter,
  type LimiterName,
  type RateLimit,
  RateLimiter,
  RateLimitOverrides,
} from '@rookery/http';
import { callbackContext, type ModuleDispatcher } from '@rookery/module-host';
import { type Clock, Logger, type Requester } from '@rookery/platform';
import { StoredRateLimitOverrides } from '@rookery/users';

/** Numbers that administrators set for single users. What cannot be read keeps nobody from anything: the settings' hold. */
@Injectable()
export class AdministratorsRateLimits extends RateLimitOverrides {
  readonly #logger: Logger;

  constructor(
    private readonly stored: StoredRateLimitOverrides,
    logger: Logger,
  ) {
    super();
    this.#logger = logger.child('rate_limits');
  }

  async find(userId: string): Promise<RateLimit | undefined> {
    try {
      return await this.stored.find(userId);
    } catch (err) {
      this.#logger.warn('The rate limits of a user could not be read', { err });
      return undefined;
    }
  }
}

/** Limiters for whose numbers modules are asked. */
const asked = new Set<LimiterName>(['rc_invites.per_room', 'rc_invites.per_user', 'rc_invites.per_issuer']);

/** Asks modules for the numbers of some limiters, unless an administrator freed the user of all limits. */
export class ModuleRateLimiter extends RateLimiter {
  /** Its limiters are called by their numbers, too: another answer of a module begins with an empty bucket. */
  readonly #own: LeakyBucketRateLimiter;

  constructor(
    private readonly usual: RateLimiter,
    private readonly administrators: RateLimitOverrides,
    private readonly dispatcher: ModuleDispatcher,
    clock: Clock,
  ) {
    super();
    this.#own = new LeakyBucketRateLimiter(clock, numbersIn);
  }

  async take(limiter: LimiterName, key: string, requester?: Requester, cost?: number): Promise<void> {
    const numbers = await this.#askFor(limiter, requester);
    if (numbers === undefined) return this.usual.take(limiter, key, requester, cost);
    if (numbers.perSecond > 0) await this.#own.take(nameWith(limiter, numbers), key, undefined, cost);
  }

  async mayTake(limiter: LimiterName, key: string, requester?: Requester): Promise<boolean> {
    const numbers = await this.#askFor(limiter, requester);
    if (numbers === undefined) return this.usual.mayTake(limiter, key, requester);
    return numbers.perSecond === 0 || this.#own.mayTake(nameWith(limiter, numbers), key);
  }

  async #askFor(limiter: LimiterName, requester: Requester | undefined): Promise<RateLimit | undefined> {
    if (!asked.has(limiter) || !requester || requester.rateLimitExempt) return undefined;
    if (!this.dispatcher.has('getRatelimitOverrideForUser')) return undefined;
    const { userId } = requester;
    // Other numbers of administrators are about what is sent, which no module is asked about.
    if ((await this.administrators.find(userId, limiter))?.perSecond === 0) return undefined;
    return this.dispatcher.provide('getRatelimitOverrideForUser', callbackContext(requester), userId, limiter);
  }
}

const nameWith = (limiter: LimiterName, { perSecond, burstCount }: RateLimit): LimiterName =>
  `${limiter} ${perSecond} ${burstCount}`;

function numbersIn(name: LimiterName): RateLimit {
  const [, perSecond, burstCount] = name.split(' ');
  return { perSecond: Number(perSecond), burstCount: Number(burstCount) };
}
