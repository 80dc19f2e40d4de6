import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { Cache, Clock, Config, eachLimit } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { UserHooks } from '../hooks.js';
import { deleteExpiry, findExpiries, findExpiry, setExpiry } from './account-validity.query.js';

const cacheName = 'account_expiry';
/** Users about whom a module is asked at a time. */
const maxAskedAtOnce = 10;

/** Whether accounts have expired: by a module's word, else by the setting `account_validity`. */
@Injectable()
export class AccountValidity {
  readonly #expiry: Cache<string, { readonly expiresMs: number | undefined }>;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly modules: AccountModules,
    private readonly invalidations: Invalidations,
    hooks: UserHooks,
  ) {
    this.#expiry = new Cache(config, cacheName, { invalidation: 'on write', elsewhere: 'told', max: 40_000 });
    invalidations.on(cacheName, this.#expiry);
    hooks.deactivated.subscribe({
      inTransaction: (tx, { userId }) => {
        this.changes(tx, userId);
        return deleteExpiry(tx, userId);
      },
    });
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
    await this.database.write((tx) => this.set(tx, userId, expiresMs, emailSent), { name: 'account_validity' });
  }

  /** {@link extend} as part of a transaction. */
  set(tx: Tx, userId: string, expiresMs: number, emailSent: boolean): Promise<void> {
    this.changes(tx, userId);
    return setExpiry(tx, userId, expiresMs, emailSent);
  }

  /** A transaction changes when an account expires: with it every process forgets what it knows. */
  changes(tx: Tx, userId: string): void {
    tx.unlessRolledBack(() => {
      this.#expiry.delete(userId);
      this.invalidations.send(cacheName, [userId]);
    });
  }

  /** When a new account expires, by the setting; `undefined`: never. */
  initialExpiryMs(): number | undefined {
    const periodMs = this.config.get('account_validity.enabled')
      ? this.config.get('account_validity.period')
      : undefined;
    return periodMs === undefined ? undefined : this.clock.nowMs() + periodMs;
  }

  async #expiryOf(userId: string): Promise<number | undefined> {
    const load = async (): Promise<{ readonly expiresMs: number | undefined }> => ({
      expiresMs: await findExpiry(this.database, userId),
    });
    return (await this.#expiry.fetch(userId, load)).expiresMs;
  }
}
