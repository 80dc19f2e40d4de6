import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { AccountDataService, erasedUsers, UserHooks } from '@rookery/users';
import { Cache, Config } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';

/** Whom a user ignores, and who asked to be forgotten: looked at for every event that is read, so both are remembered. */
@Injectable()
export class HiddenSenders implements OnModuleInit {
  readonly #ignored: Cache<string, ReadonlySet<string>>;
  readonly #erased: Cache<string, boolean>;
  #changes = 0;

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
    invalidations.on('ignored_users', {
      forget: (userIds) => this.#forget(() => userIds.forEach((userId) => this.#ignored.delete(userId))),
      forgetAll: () => this.#forget(() => this.#ignored.clear()),
    });
    invalidations.on('erased_users', {
      forget: (userIds) => this.#forget(() => userIds.forEach((userId) => this.#erased.delete(userId))),
      forgetAll: () => this.#forget(() => this.#erased.clear()),
    });
  }

  onModuleInit(): void {
    this.hooks.accountDataChanged.subscribe({
      afterCommit: async ({ userId, roomId, type }) => {
        if (roomId === undefined && type === 'm.ignored_user_list') {
          this.#forget(() => this.#ignored.delete(userId));
          this.invalidations.send('ignored_users', [userId]);
        }
        return Promise.resolve();
      },
    });
    const forgetErased = async ({ userId }: { readonly userId: string }): Promise<void> => {
      this.#forget(() => this.#erased.delete(userId));
      this.invalidations.send('erased_users', [userId]);
      return Promise.resolve();
    };
    this.hooks.deactivated.subscribe({ afterCommit: forgetErased });
    this.hooks.reactivated.subscribe({ afterCommit: forgetErased });
  }

  /** Whom a user does not want to hear. */
  async ignoredBy(userId: string): Promise<ReadonlySet<string>> {
    const known = this.#ignored.get(userId);
    if (known) return known;
    const changes = this.#changes;
    const ignored = new Set(await this.accountData.ignoredBy(userId));
    if (changes === this.#changes) this.#ignored.set(userId, ignored);
    return ignored;
  }

  /** Which of these users asked to be forgotten. */
  async erasedOf(userIds: Iterable<string>): Promise<ReadonlySet<string>> {
    const erased = new Set<string>();
    const unknown: string[] = [];
    for (const userId of new Set(userIds)) {
      const known = this.#erased.get(userId);
      if (known === undefined) unknown.push(userId);
      else if (known) erased.add(userId);
    }
    if (unknown.length === 0) return erased;
    const changes = this.#changes;
    const found = await erasedUsers(this.database, unknown);
    for (const userId of unknown) {
      if (changes === this.#changes) this.#erased.set(userId, found.has(userId));
      if (found.has(userId)) erased.add(userId);
    }
    return erased;
  }

  /** What is being read meanwhile may be older than the change: it is not remembered. */
  #forget(drop: () => void): void {
    this.#changes++;
    drop();
  }
}
