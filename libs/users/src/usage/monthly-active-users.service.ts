import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { BackgroundTasks, Cache, Clock, Config, Semaphore } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { UserHooks } from '../hooks.js';
import {
  countActive,
  countActiveByService,
  type CountedAccount,
  countedAccounts,
  dropActive,
  dropBeyond,
  dropInactive,
  noteActive,
  ownersOf,
  reservePlaces,
} from './monthly-users.query.js';

const dayMs = 86_400_000;
/** Who was not seen for so long does not count. */
const monthMs = 30 * dayMs;
/** How exact the stored moments are. */
const granularityMs = 3_600_000;
const tidyEveryMs = 3_600_000;
/** How long it is believed that there is no place left; a place that this process frees counts at once. */
const fullForMs = 10_000;
/** Most users whose being counted is known without a query. */
const maxKnown = 50_000;
const maxPerQuery = 1_000;

/** Numbers for whoever looks after the server. */
export interface MonthlyActivity {
  readonly current: number;
  /** Most that are allowed; absent without a limit. */
  readonly limit?: number | undefined;
  /** How many of the reserved addresses belong to accounts. */
  readonly reserved: number;
  readonly byService: readonly { readonly service: string; readonly total: number }[];
}

/**
 * Counts who was active within the last thirty days (`limit_usage_by_mau`, `mau_stats_only`). Guests, support accounts and
 * accounts in their trial days do not count. Without either setting nothing is written, and asking costs nothing.
 */
@Injectable()
export class MonthlyActiveUsers implements OnModuleInit {
  /** When counted users were last noted. */
  readonly #known: Cache<string, number>;
  #fullSinceMs: number | undefined;
  /** Places are given one after the other. */
  readonly #admission = new Semaphore(1);

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly hooks: UserHooks,
    private readonly tasks: BackgroundTasks,
    private readonly invalidations: Invalidations,
  ) {
    this.#known = new Cache(config, 'monthly_active_users', {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 2 * maxKnown },
    });
    invalidations.on(this.#known.name, {
      forget: (userIds) => this.#forget(userIds),
      forgetAll: () => this.#forget([]),
    });
  }

  onModuleInit(): void {
    this.hooks.threepidAdded.subscribe({
      inTransaction: async (tx, { userId, medium, address }) => {
        if (this.counting && this.isReserved(medium, address)) await reservePlaces(tx, [userId], this.clock.nowMs());
      },
    });
    this.hooks.deactivated.subscribe({
      inTransaction: async (tx, { userId }) => {
        await dropActive(tx, userId);
        this.#drops(tx, [userId]);
      },
    });
    if (!this.counting) return;
    const task = this.tasks.add({
      ...{ name: 'tidy_monthly_active_users', role: 'writer', everyMs: tidyEveryMs },
      run: () => this.tidy(),
    });
    task.start();
    void task.run();
  }

  /** Whether the number of active users is limited. */
  get limited(): boolean {
    return this.config.get('limit_usage_by_mau');
  }

  /** Whether users are counted at all. */
  get counting(): boolean {
    return this.limited || this.config.get('mau_stats_only');
  }

  /** Whether whoever has this address always fits within the limit. */
  isReserved(medium: string, address: string): boolean {
    return this.config
      .get('mau_limit_reserved_threepids')
      .some((one) => one.medium === medium && one.address.toLowerCase() === address.toLowerCase());
  }

  /** Whether there is no place for one more user. */
  async isFull(): Promise<boolean> {
    const nowMs = this.clock.nowMs();
    if (this.#fullSinceMs !== undefined && nowMs - this.#fullSinceMs < fullForMs) return true;
    const isFull = (await countActive(this.database)) >= this.config.get('max_mau_value');
    this.#fullSinceMs = isFull ? nowMs : undefined;
    return isFull;
  }

  /** Whether a user counts already. */
  async isCounted(userId: string): Promise<boolean> {
    const countedMs = await this.#known.fetch(userId, async () => {
      const [account] = await countedAccounts(this.database, [userId]);
      return account?.countedMs;
    });
    return countedMs !== undefined;
  }

  /**
   * Whether a user may be active: they count already, or need no place, or take one that is left. Of several who come at
   * once for the last place one gets it.
   */
  async admit(userId: string): Promise<boolean> {
    if (!this.limited || this.#known.get(userId) !== undefined) return true;
    const reading = this.#known.begin();
    try {
      const [account] = await countedAccounts(this.database, [userId]);
      if (!account || !this.#needsPlace(account)) return true;
      if (account.countedMs !== undefined) {
        reading.keep(userId, account.countedMs);
        return true;
      }
    } finally {
      reading.end();
    }
    return this.#admission.run(() => this.#takePlace(userId));
  }

  /** Notes that users were active. Those for whom there is no place are left out. */
  async seen(userIds: Iterable<string>): Promise<void> {
    if (!this.counting) return;
    const nowMs = this.clock.nowMs();
    const stale = [...userIds].filter((userId) => nowMs - (this.#known.get(userId) ?? -Infinity) >= granularityMs);
    for (let from = 0; from < stale.length; from += maxPerQuery)
      await this.#note(stale.slice(from, from + maxPerQuery), nowMs);
  }

  /** The numbers of now. */
  async activity(): Promise<MonthlyActivity> {
    return {
      current: await countActive(this.database),
      limit: this.limited ? this.config.get('max_mau_value') : undefined,
      reserved: (await this.#reserved(this.database)).length,
      byService: await countActiveByService(this.database),
    };
  }

  /** Stops counting who has been away for a month, and, where the limit was lowered, those seen longest ago. */
  async tidy(): Promise<void> {
    const nowMs = this.clock.nowMs();
    const limit = this.config.get('max_mau_value');
    await this.database.write(
      async (tx) => {
        const reserved = (await this.#reserved(tx)).slice(0, this.limited ? limit : undefined);
        await dropInactive(tx, nowMs - monthMs, reserved);
        if (reserved.length > 0) await reservePlaces(tx, reserved, nowMs);
        if (this.limited) await dropBeyond(tx, Math.max(0, limit - reserved.length), reserved);
        this.#drops(tx, []);
      },
      { name: 'monthly_active_users_tidy' },
    );
  }

  async #takePlace(userId: string): Promise<boolean> {
    if (this.#known.get(userId) !== undefined) return true;
    if (await this.isFull()) return false;
    await this.#write([userId], this.clock.nowMs());
    return true;
  }

  async #note(userIds: readonly string[], nowMs: number): Promise<void> {
    const counted: string[] = [];
    for (const account of await countedAccounts(this.database, userIds)) {
      if (!this.#needsPlace(account)) continue;
      // New ones come in one by one where places are limited.
      if (account.countedMs === undefined && this.limited) await this.admit(account.userId);
      else counted.push(account.userId);
    }
    if (counted.length > 0) await this.#write(counted, nowMs);
  }

  async #write(userIds: readonly string[], nowMs: number): Promise<void> {
    // By any process: of several one may let in one too many, until the next tidying.
    const options = { name: 'monthly_active_users', anyProcess: true };
    const noting = this.#known.begin();
    try {
      await this.database.write((tx) => noteActive(tx, userIds, nowMs), options);
      // But for those who have lost their places meanwhile.
      for (const userId of userIds) noting.keep(userId, nowMs);
    } finally {
      noting.end();
    }
  }

  #needsPlace(account: CountedAccount): boolean {
    if (account.isGuest || account.userType === 'support') return false;
    const trialDays =
      (account.appserviceId === undefined
        ? undefined
        : this.config.get('mau_appservice_trial_days')[account.appserviceId]) ?? this.config.get('mau_trial_days');
    return this.clock.nowMs() - account.createdMs >= trialDays * dayMs;
  }

  async #reserved(db: Pick<Tx, 'query' | 'get' | 'dialect'>): Promise<string[]> {
    const reserved = new Set<string>();
    for (const [medium, addresses] of Map.groupBy(
      this.config.get('mau_limit_reserved_threepids'),
      (one) => one.medium,
    )) {
      const spelled = addresses.map(({ address }) => address.toLowerCase());
      for (const userId of await ownersOf(db, medium, spelled)) reserved.add(userId);
    }
    return [...reserved];
  }

  /** A transaction takes places away: with it every process forgets who has one. @param userIds whose; none where nobody knows */
  #drops(tx: Tx, userIds: readonly string[]): void {
    tx.unlessRolledBack(() => {
      this.#forget(userIds);
      this.invalidations.send(this.#known.name, userIds);
    });
  }

  #forget(userIds: readonly string[]): void {
    if (userIds.length === 0) this.#known.clear();
    else this.#known.forget(userIds);
    this.#fullSinceMs = undefined;
  }
}
