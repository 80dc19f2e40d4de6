import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type RateLimit, RateLimitOverrides } from '@rookery/http';
import { Cache, Clock, Config } from '@rookery/platform';
import { deleteRateLimitOverride, findRateLimitOverride, writeRateLimitOverride } from './rate-limit-override.query.js';

/** How long the database's answer is believed: what another process changes takes effect within it. */
const maxAgeMs = 5_000;

/** What administrators set for single users, for every limiter that counts by user. */
@Injectable()
export class StoredRateLimitOverrides extends RateLimitOverrides {
  readonly #cache: Cache<string, { readonly limit: Promise<RateLimit | undefined>; readonly loadedMs: number }>;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    config: Config,
  ) {
    super();
    this.#cache = new Cache(config, 'get_ratelimit_for_user', { invalidation: 'expires', max: 40_000 });
  }

  find(userId: string): Promise<RateLimit | undefined> {
    const nowMs = this.clock.nowMs();
    const cached = this.#cache.get(userId);
    if (cached && nowMs - cached.loadedMs < maxAgeMs) return cached.limit;
    // Requests side by side share one look.
    const limit = findRateLimitOverride(this.database, userId);
    limit.catch(() => this.#cache.delete(userId));
    this.#cache.set(userId, { limit, loadedMs: nowMs });
    return limit;
  }

  /** Sets a user's numbers, 0 per second for no limit; `undefined` goes back to the settings'. */
  async set(userId: string, limit: RateLimit | undefined): Promise<void> {
    await this.database.write(
      (tx) => {
        tx.unlessRolledBack(() => this.#cache.delete(userId));
        return limit ? writeRateLimitOverride(tx, userId, limit) : deleteRateLimitOverride(tx, userId);
      },
      { name: 'ratelimit_override' },
    );
  }
}
