import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { resolveState, type StateMap, type StateResProvider } from '@rookery/state-res';
import { EventStore } from '../persistence/event-store.js';
import { authDifference } from './auth-chains.query.js';

/** Events that are about to be written and can only be found here. */
export type StagedEvents = ReadonlyMap<
  string,
  { readonly event: RoomEvent; readonly rejectedReason: string | undefined }
>;

/** State resolution over the database, with the chain cover for auth differences. */
@Injectable()
export class StateResolver {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
  ) {}

  /**
   * Resolves several states of one room into one.
   */
  async resolve(
    states: readonly StateMap[],
    rules: RoomVersionRules,
    staged: StagedEvents,
    signal?: AbortSignal,
  ): Promise<StateMap> {
    const provider: StateResProvider = {
      events: (ids) => this.load(ids, staged),
      isRejected: async (ids) => {
        const rejected = new Set<string>();
        const stored = await this.events.many(ids.filter((id) => !staged.has(id)));
        for (const id of ids) {
          if ((staged.get(id) ?? stored.get(id))?.rejectedReason !== undefined) rejected.add(id);
        }
        return rejected;
      },
    };
    const involvesStaged = states.some((state) => [...state.values()].some((id) => staged.has(id)));
    if (!involvesStaged) {
      const indexed: StateResProvider = {
        ...provider,
        authDifference: async (conflicted, unconflicted) => {
          const found = await authDifference(this.database, conflicted, unconflicted.values());
          if (!found) throw new IncompleteChainCover();
          return found;
        },
      };
      try {
        return await resolveState(states, indexed, rules, signal ? { signal } : {});
      } catch (error) {
        if (!(error instanceof IncompleteChainCover)) throw error;
      }
    }
    return resolveState(states, provider, rules, signal ? { signal } : {});
  }

  /** Events that are staged or stored, by id; those that are unknown are left out. */
  async load(ids: readonly string[], staged: StagedEvents): Promise<Map<string, RoomEvent>> {
    const found = new Map<string, RoomEvent>();
    const missing: string[] = [];
    for (const id of ids) {
      const own = staged.get(id);
      if (own) found.set(id, own.event);
      else missing.push(id);
    }
    if (missing.length === 0) return found;
    for (const [id, event] of await this.events.events(missing)) found.set(id, event);
    return found;
  }
}

/** An event has no place in the chain cover: the auth difference has to be walked. */
class IncompleteChainCover extends Error {}
