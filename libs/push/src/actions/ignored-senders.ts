import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { allIgnorersOf, UserHooks } from '@rookery/users';
import type { Soon } from '../soon.js';

const none: ReadonlySet<string> = new Set();

/** Who does not want to hear from a sender; from memory for senders in use. */
@Injectable()
export class IgnoredSenders implements OnModuleInit {
  readonly #ignorers: Cache<string, ReadonlySet<string>>;
  #generation = 0;

  constructor(
    private readonly database: Database,
    private readonly userHooks: UserHooks,
    config: Config,
  ) {
    this.#ignorers = new Cache(config, 'ignorers', {
      ...{ invalidation: 'stream account_data', elsewhere: 'not kept', max: 1_000_000 },
      sizeOf: (set) => 1 + set.size,
    });
  }

  onModuleInit(): void {
    this.userHooks.accountDataChanged.subscribe({
      inTransaction: async (tx, { type }) => {
        if (type !== 'm.ignored_user_list') return;
        this.#generation++;
        tx.unlessRolledBack(() => {
          this.#generation++;
          this.#ignorers.clear();
        });
      },
    });
  }

  /** Users of this server who ignore a sender. */
  ignorersOf(sender: string): Soon<ReadonlySet<string>> {
    return this.#ignorers.get(sender) ?? this.#load(sender);
  }

  async #load(sender: string): Promise<ReadonlySet<string>> {
    const before = this.#generation;
    const found = await allIgnorersOf(this.database, sender);
    const ignorers = found.length === 0 ? none : new Set(found);
    // A list that changed meanwhile may or may not be in what was read.
    if (this.#generation === before) this.#ignorers.set(sender, ignorers);
    return ignorers;
  }
}
