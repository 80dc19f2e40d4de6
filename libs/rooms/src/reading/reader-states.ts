import { Injectable } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import { Cache, Config, SingleFlight } from '@rookery/platform';
import { stateKeyOf } from '@rookery/state-res';
import { selectGroupsOf, selectStates } from '../state/state-groups.query.js';
import { RecentEvents } from '../store/recent-events.js';

/** The two pieces of state at an event that decide who sees it. */
export interface ReaderState {
  /** Id of the history visibility event. */
  readonly visibility: string | undefined;
  /** Id of the reader's member event. */
  readonly member: string | undefined;
}

const visibilityKey = stateKeyOf('m.room.history_visibility', '');

/**
 * What decides who sees an event, at many events. A group's state never changes, nor does an event's state group unless the event is
 * judged once more, so that both can be remembered: in a room where nothing but messages happens a reader costs a query once.
 */
@Injectable()
export class ReaderStates {
  readonly #groups: Cache<string, number>;
  readonly #reading = new SingleFlight<ReadonlyMap<string, number>>();
  readonly #states: Cache<string, ReaderState>;

  constructor(
    private readonly stores: DataStores,
    private readonly recent: RecentEvents,
    config: Config,
  ) {
    this.#groups = new Cache(config, 'groups_of_events', {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 100_000 },
    });
    recent.onRejudged(this.#groups);
    this.#states = new Cache(config, 'reader_states', { invalidation: 'never', max: 100_000 });
  }

  /** By event id; events without a state group are absent. Two queries at most. */
  async at(userId: string, eventIds: readonly string[]): Promise<Map<string, ReaderState>> {
    const groups = await this.#groupsOf(eventIds);
    const states = new Map<number, ReaderState>();
    const missing: number[] = [];
    for (const group of new Set(groups)) {
      if (group === undefined) continue;
      const known = this.#states.get(`${group} ${userId}`);
      if (known) states.set(group, known);
      else missing.push(group);
    }
    if (missing.length > 0) {
      const types: [string, string][] = [
        ['m.room.history_visibility', ''],
        ['m.room.member', userId],
      ];
      const memberKey = stateKeyOf('m.room.member', userId);
      for (const [group, state] of await selectStates(this.stores.state, missing, { types })) {
        const entry = { visibility: state.get(visibilityKey), member: state.get(memberKey) };
        states.set(group, entry);
        this.#states.set(`${group} ${userId}`, entry);
      }
    }
    const found = new Map<string, ReaderState>();
    for (let index = 0; index < eventIds.length; index++) {
      const group = groups[index];
      if (group !== undefined) found.set(eventIds[index]!, states.get(group)!);
    }
    return found;
  }

  /** By the place in `eventIds`. */
  async #groupsOf(eventIds: readonly string[]): Promise<readonly (number | undefined)[]> {
    const known = eventIds.map((eventId) => this.recent.groupOf(eventId) ?? this.#groups.get(eventId));
    const missing = eventIds.filter((_, index) => known[index] === undefined);
    if (missing.length === 0) return known;
    // Members of a room who are woken together ask for the same.
    const loaded = await this.#reading.run(missing.join(' '), () => this.#readGroups(missing));
    return eventIds.map((eventId, index) => known[index] ?? loaded.get(eventId));
  }

  async #readGroups(eventIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const reading = this.#groups.begin();
    try {
      const groups = await selectGroupsOf(this.stores.main, eventIds);
      for (const [eventId, group] of groups) reading.keep(eventId, group);
      return groups;
    } finally {
      reading.end();
    }
  }
}
