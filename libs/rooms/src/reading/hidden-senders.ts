import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { AccountDataService, erasedUsers, UserHooks } from '@rookery/users';
import { Cache, Config } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';

/** Whom a user ignores, and who asked to be forgotten: looked at for every event that is read, so both are remembered. */
@Injectable()
export class HiddenSenders implements OnModuleInit {
  readonly #ignored: Cache<string, ReadonlySet<string>>;
  readonly #erased: Cache<string, boolean>;

  constructor(
    private readonly database: Database,
    private readonly hooks: UserHooks,
    private readonly accountData: AccountDataService,
    private readonly invalidations: Invalidations,
    config: Config,
  ) {
    this.#ignored = new Cache(config, 'ignored_users', {
      invalidation: 'stream account_data',
      elsewhere: 'told',
      max: 40_000,
      sizeOf: (users) => users.size + 1,
    });
    this.#erased = new Cache(config, 'erased_users', { invalidation: 'on write', elsewhere: 'told', max: 100_000 });
    for (const cache of [this.#ignored, this.#erased]) invalidations.on(cache.name, cache);
  }

  onModuleInit(): void {
    this.hooks.accountDataChanged.subscribe({
      inTransaction: async (tx, { userId, roomId, type }) => {
        if (roomId === undefined && type === 'm.ignored_user_list') this.#forget(tx, this.#ignored, userId);
      },
    });
    const forgetErased = async (tx: Tx, { userId }: { readonly userId: string }): Promise<void> =>
      this.#forget(tx, this.#erased, userId);
    this.hooks.deactivated.subscribe({
      inTransaction: async (tx, event) => {
        await forgetErased(tx, event);
        // Account data goes with the account, and nobody is told of it before that is opened again.
        this.#forget(tx, this.#ignored, event.userId);
      },
    });
    this.hooks.reactivated.subscribe({ inTransaction: forgetErased });
  }

  /** Also where nobody knows whether the transaction is durable, and before anybody is told of what it changed. */
  #forget(tx: Tx, cache: { readonly name: string; delete(key: string): void }, userId: string): void {
    tx.unlessRolledBack(() => {
      cache.delete(userId);
      this.invalidations.send(cache.name, [userId]);
    });
  }

  /** Whom a user does not want to hear. */
  ignoredBy(userId: string): Promise<ReadonlySet<string>> {
    return this.#ignored.fetch(userId, async () => new Set(await this.accountData.ignoredBy(userId)));
  }

  /** Which of these users asked to be forgotten. */
  async erasedOf(userIds: Iterable<string>): Promise<ReadonlySet<string>> {
    const known = await this.#erased.fetchMany(new Set(userIds), async (unknown) => {
      const found = await erasedUsers(this.database, unknown);
      return new Map(unknown.map((userId) => [userId, found.has(userId)]));
    });
    const erased = new Set<string>();
    for (const [userId, isErased] of known) if (isErased) erased.add(userId);
    return erased;
  }
}
