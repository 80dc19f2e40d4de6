import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { type FeatureRow, selectFeatures, upsertFeatures } from './experimental-features.query.js';

/** Features that administrators can switch on and off for single users, with what holds for all others. */
const defaults = {
  msc3881: (config: Config) => config.get('experimental_features.msc3881_enabled'),
  msc3575: (config: Config) => config.get('experimental_features.msc3575_enabled'),
  // Specified by now: everybody has it.
  msc4222: () => true,
} as const;

/** One of {@link userFeatures}. */
export type UserFeature = keyof typeof defaults;

/** Features that can be switched for single users. */
export const userFeatures = Object.keys(defaults) as readonly UserFeature[];

/** Which of the features in `experimental_features` hold for whom. */
@Injectable()
export class ExperimentalFeatures {
  readonly #known: Cache<string, readonly FeatureRow[]>;

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly invalidations: Invalidations,
  ) {
    this.#known = new Cache(config, 'experimental_features', {
      invalidation: 'on write',
      elsewhere: 'told',
      max: 10_000,
    });
    invalidations.on('experimental_features', this.#known);
  }

  /** Whether a feature holds for a user: as an administrator has said, else as the settings say. */
  async isEnabled(userId: string, feature: UserFeature): Promise<boolean> {
    const said = (await this.#of(userId)).find((row) => row.feature === feature);
    return said ? !!said.enabled : defaults[feature](this.config);
  }

  /** What administrators have said about a user; features of which they said nothing are absent. */
  async chosenFor(userId: string): Promise<ReadonlyMap<UserFeature, boolean>> {
    const rows = await this.#of(userId);
    return new Map(
      userFeatures.flatMap((feature) => {
        const row = rows.find((each) => each.feature === feature);
        return row ? [[feature, !!row.enabled] as const] : [];
      }),
    );
  }

  /** Switches features on and off for a user. */
  async choose(userId: string, features: ReadonlyMap<UserFeature, boolean>): Promise<void> {
    await this.database.write(
      (tx) => {
        tx.unlessRolledBack(() => {
          this.#known.delete(userId);
          this.invalidations.send('experimental_features', [userId]);
        });
        return upsertFeatures(tx, userId, features);
      },
      { name: 'set_experimental_features' },
    );
  }

  #of(userId: string): Promise<readonly FeatureRow[]> {
    return this.#known.fetch(userId, () => selectFeatures(this.database, userId));
  }
}
