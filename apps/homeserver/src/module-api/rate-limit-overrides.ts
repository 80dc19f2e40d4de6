import { type LimiterName, type RateLimit, RateLimitOverrides } from '@rookery/http';
import { callbackContext, type ModuleDispatcher } from '@rookery/module-host';
import type { Logger } from '@rookery/platform';
import type { StoredRateLimitOverrides } from '@rookery/users';

/** Numbers of rate limiters for single users: those that an administrator set, before those of modules. */
export class UserRateLimits extends RateLimitOverrides {
  constructor(
    private readonly stored: StoredRateLimitOverrides,
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

  /** What cannot be read must not keep anybody from anything: the settings' limits hold. */
  async #byAdministrator(userId: string): Promise<RateLimit | undefined> {
    try {
      return await this.stored.find(userId);
    } catch (err) {
      this.logger.warn('The rate limits of a user could not be read', { err });
      return undefined;
    }
  }
}
