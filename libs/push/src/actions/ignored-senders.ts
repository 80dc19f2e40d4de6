import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { Cache, Config, type Soon } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { allIgnorersOf, UserHooks } from '@rookery/users';

const none: ReadonlySet<string> = new Set();

/** Who does not want to hear from a sender; from memory for senders in use. */
@Injectable()
export class IgnoredSenders implements OnModuleInit {
  readonly #ignorers: Cache<string, ReadonlySet<string>>;

  constructor(
    private readonly database: Database,
    private readonly userHooks: UserHooks,
    private readonly invalidations: Invalidations,
    config: Config,
  ) {
    this.#ignorers = new Cache(config, 'ignorers', {
      ...{ invalidation: 'stream account_data', elsewhere: 'told', max: 1_000_000 },
      sizeOf: (set) => 1 + set.size,
    });
    // Whose set it is was never written down: a change forgets all of them.
    const forgetAll = (): void => this.#ignorers.clear();
    invalidations.on(this.#ignorers.name, { forget: forgetAll, forgetAll });
  }

  onModuleInit(): void {
    this.userHooks.accountDataChanged.subscribe({
      inTransaction: async (tx, { type }) => {
        if (type === 'm.ignored_user_list') this.#forget(tx);
      },
    });
    // The list goes with the account.
    this.userHooks.deactivated.subscribe({ inTransaction: async (tx) => this.#forget(tx) });
  }

  #forget(tx: Tx): void {
    tx.unlessRolledBack(() => {
      this.#ignorers.clear();
      this.invalidations.send(this.#ignorers.name, []);
    });
  }

  /** Users of this server who ignore a sender. */
  ignorersOf(sender: string): Soon<ReadonlySet<string>> {
    return this.#ignorers.get(sender) ?? this.#load(sender);
  }

  #load(sender: string): Promise<ReadonlySet<string>> {
    return this.#ignorers.fetch(sender, async () => {
      const found = await allIgnorersOf(this.database, sender);
      return found.length === 0 ? none : new Set(found);
    });
  }
}
