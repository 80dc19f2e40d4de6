import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Clock, Config, eachLimit } from '@rookery/platform';
import { findExpiries, findExpiry, setExpiry } from './account-validity.query.js';
import { AccountModules, type Origin } from '../common/account-modules.js';

/** How long a database answer is believed; renewals of this process count at once. */
const maxAgeMs = 60_000;
/** Users about whom a module is asked at a time. */
const maxAskedAtOnce = 10;

/** Whether accounts have expired: by a module's word, else by the setting `account_validity`. */
@Injectable()
export class AccountValidity {
  readonly #expiry: Cache<string, { readonly expiresMs: number | undefined; readonly loadedMs: number }>;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly modules: AccountModules,
  ) {
    this.#expiry = new Cache(config, 'account_expiry', { invalidation: 'expires', max: 40_000 });
  }

  /** Costs nothing where neither a module nor the setting asks for it. */
  async isExpired(userId: string, origin: Origin = {}): Promise<boolean> {
    const answer = await this.modules.isUserExpired(userId, origin);
    if (answer !== undefined) return answer;
    if (!this.config.get('account_validity.enabled')) return false;
    const expiresMs = await this.#expiryOf(userId);
    return expiresMs !== undefined && expiresMs <= this.clock.nowMs();
  }

  /** Which of some users' accounts have expired; one query at most, unless there is a module that is asked about each. */
  async expiredAmong(userIds: readonly string[]): Promise<ReadonlySet<string>> {
    const expired = new Set<string>();
    if (this.modules.judgesExpiry) {
      await eachLimit(userIds, maxAskedAtOnce, async (userId) => {
        if (await this.isExpired(userId)) expired.add(userId);
      });
      return expired;
    }
    if (userIds.length === 0 || !this.config.get('account_validity.enabled')) return expired;
    const nowMs = this.clock.nowMs();
    for (const [userId, expiresMs] of await findExpiries(this.database, userIds))
      if (expiresMs <= nowMs) expired.add(userId);
    return expired;
  }

  /** Lets an account live until a moment, and forgets former renewal mails. */
  async extend(userId: string, expiresMs: number, emailSent = false): Promise<void> {
    await this.database.write(
      (tx) => {
        tx.unlessRolledBack(() => this.forget(userId));
        return setExpiry(tx, userId, expiresMs, emailSent);
      },
      { name: 'account_validity' },
    );
  }

  /** Forgets what is cached: the account was renewed. */
  forget(userId: string): void {
    this.#expiry.delete(userId);
  }

  /** When a new account expires, by the setting; `undefined`: never. */
  initialExpiryMs(): number | undefined {
    const periodMs = this.config.get('account_validity.enabled')
      ? this.config.get('account_validity.period')
      : undefined;
    return periodMs === undefined ? undefined : this.clock.nowMs() + periodMs;
  }

  async #expiryOf(userId: string): Promise<number | undefined> {
    const nowMs = this.clock.nowMs();
    const cached = this.#expiry.get(userId);
    if (cached && nowMs - cached.loadedMs < maxAgeMs) return cached.expiresMs;
    const expiresMs = await findExpiry(this.database, userId);
    this.#expiry.set(userId, { expiresMs, loadedMs: nowMs });
    return expiresMs;
  }
}
