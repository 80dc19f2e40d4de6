import { Injectable } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import type { StateMap } from '@rookery/state-res';
import { readStates } from './state-pages.js';

/** Entries of all cached maps together, about 100 MB; before the factor of the settings. */
const maxEntries = 400_000;

/** Whole states of groups, which never change once written. Bounded by the number of entries. */
@Injectable()
export class StateGroups {
  readonly #cache: Cache<number, StateMap>;

  constructor(
    private readonly stores: DataStores,
    config: Config,
  ) {
    this.#cache = new Cache(config, 'state_groups', {
      invalidation: 'never',
      max: maxEntries,
      sizeOf: (state) => state.size + 8,
    });
  }

  /**
   * Whole states, by group; one query for those that are not cached, of large ones several.
   * @throws Error when one does not exist: no room's state is empty, so that a missing one must never be taken for one
   */
  async all(groups: Iterable<number>): Promise<Map<number, StateMap>> {
    const found = new Map<number, StateMap>();
    const missing: number[] = [];
    for (const group of new Set(groups)) {
      const cached = this.#cache.get(group);
      if (cached) found.set(group, cached);
      else missing.push(group);
    }
    if (missing.length > 0) {
      for (const [group, state] of await readStates(this.stores.state, missing)) {
        if (state.size === 0) throw new Error(`There is no state group ${group}`);
        found.set(group, state);
        this.#cache.set(group, state);
      }
    }
    return found;
  }

  forget(groups: Iterable<number>): void {
    for (const group of groups) this.#cache.delete(group);
  }
}
