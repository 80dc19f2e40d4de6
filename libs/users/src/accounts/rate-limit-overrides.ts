import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type RateLimit, RateLimitOverrides } from '@rookery/http';
import { Cache, Config } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { deleteRateLimitOverride, findRateLimitOverride, writeRateLimitOverride } from './rate-limit-override.query.js';

const cacheName = 'get_ratelimit_for_user';

/** What administrators set for single users, for every limiter that counts by user. */
@Injectable()
export class StoredRateLimitOverrides extends RateLimitOverrides {
  readonly #cache: Cache<string, { readonly limit: RateLimit | undefined }>;

  constructor(
    private readonly database: Database,
    private readonly invalidations: Invalidations,
    config: Config,
  ) {
    super();
    this.#cache = new Cache(config, cacheName, { invalidation: 'on write', elsewhere: 'told', max: 40_000 });
    invalidations.on(cacheName, this.#cache);
  }

  async find(userId: string): Promise<RateLimit | undefined> {
    const load = async (): Promise<{ readonly limit: RateLimit | undefined }> => ({
      limit: await findRateLimitOverride(this.database, userId),
    });
    return (await this.#cache.fetch(userId, load)).limit;
  }

  /** Sets a user's numbers, 0 per second for no limit; `undefined` goes back to the settings'. */
  async set(userId: string, limit: RateLimit | undefined): Promise<void> {
    await this.database.write(
      (tx) => {
        tx.unlessRolledBack(() => {
          this.#cache.delete(userId);
          this.invalidations.send(cacheName, [userId]);
        });
        return limit ? writeRateLimitOverride(tx, userId, limit) : deleteRateLimitOverride(tx, userId);
      },
      { name: 'ratelimit_override' },
    );
  }
}
