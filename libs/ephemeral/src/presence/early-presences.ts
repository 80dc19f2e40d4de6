import { domainOf } from '@rookery/matrix-types';
import { EarlyNews } from '../common/early-news.js';
import type { PresenceState } from '../model/presence-state.js';

const limits = { perServer: 1_000, inAll: 10_000, keptMs: 600_000 };

/**
 * Presences of users of other servers who are in no room yet as far as is known here: they are just joining one, or this server is, or not all of
 * its members are known. The latest of each user is kept, in memory: one that gets lost is made up for by the next.
 */
export class EarlyPresences {
  readonly #kept = new EarlyNews<PresenceState>(limits);

  get size(): number {
    return this.#kept.size;
  }

  /** Keeps presences, in place of those that the same users had before. */
  add(states: readonly PresenceState[], nowMs: number): void {
    for (const state of states) this.#kept.add(domainOf(state.userId), state.userId, state, nowMs);
  }

  /** Takes those of users out. */
  takeOf(userIds: Iterable<string>, nowMs: number): PresenceState[] {
    const taken: PresenceState[] = [];
    for (const userId of userIds) {
      const state = this.#kept.take(domainOf(userId), userId, nowMs);
      if (state) taken.push(state);
    }
    return taken;
  }
}
