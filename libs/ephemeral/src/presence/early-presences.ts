import { domainOf } from '@rookery/matrix-types';
import type { PresenceState } from '../model/presence-state.js';

/** Presences that are kept: of one server's users, and in all. */
const maxPerServer = 1_000;
const maxPresences = 10_000;
/** Who has not come by then is not waited for, milliseconds. */
const keptMs = 600_000;

interface Early {
  readonly state: PresenceState;
  readonly untilMs: number;
}

/**
 * Presences of users of other servers who are in no room yet as far as is known here: they are just joining one, or this server is, or not all of
 * its members are known. The latest of each user is kept, in memory: one that gets lost is made up for by the next.
 */
export class EarlyPresences {
  /** By server, then by user; the oldest first. */
  readonly #servers = new Map<string, Map<string, Early>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Keeps presences, in place of those that the same users had before. */
  add(states: readonly PresenceState[], nowMs: number): void {
    for (const state of states) {
      this.#delete(state.userId);
      const server = domainOf(state.userId);
      let ofServer = this.#servers.get(server);
      if (!ofServer) this.#servers.set(server, (ofServer = new Map()));
      ofServer.set(state.userId, { state, untilMs: nowMs + keptMs });
      this.#size++;
      if (ofServer.size > maxPerServer) this.#deleteOldest(ofServer);
      else if (this.#size > maxPresences) this.#deleteOldest(this.#servers.values().next().value);
    }
  }

  /** Takes those of users out. */
  takeOf(userIds: Iterable<string>, nowMs: number): PresenceState[] {
    const taken: PresenceState[] = [];
    for (const userId of userIds) {
      const found = this.#delete(userId);
      if (found && found.untilMs > nowMs) taken.push(found.state);
    }
    return taken;
  }

  #delete(userId: string): Early | undefined {
    const server = domainOf(userId);
    const ofServer = this.#servers.get(server);
    const found = ofServer?.get(userId);
    if (!ofServer || !found) return undefined;
    ofServer.delete(userId);
    if (ofServer.size === 0) this.#servers.delete(server);
    this.#size--;
    return found;
  }

  #deleteOldest(ofServer: ReadonlyMap<string, Early> | undefined): void {
    const oldest = ofServer?.keys().next().value;
    if (oldest !== undefined) this.#delete(oldest);
  }
}
