import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { type AuthLinks, resolveState, type StateMap, type StateResProvider } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import { authDifference, generationAfter, selectChainPositions } from './auth-chains.query.js';
import { selectAuthLinks } from './auth-links.query.js';

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
    const involvesStaged = states.some((state) => [...state.values()].some((id) => staged.has(id)));
    let stagedLinks: Promise<ReadonlyMap<string, AuthLinks>> | undefined;
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
      authLinks: async (ids) => {
        const links = new Map(
          await selectAuthLinks(
            this.database,
            ids.filter((id) => !staged.has(id)),
          ),
        );
        if (!ids.some((id) => staged.has(id))) return links;
        stagedLinks ??= this.#stagedLinks(staged);
        for (const [id, own] of await stagedLinks) links.set(id, own);
        return links;
      },
      // Staged events have no place in the chain cover yet.
      ...(!involvesStaged && {
        authDifference: (conflicted, unconflicted) => authDifference(this.database, conflicted, unconflicted.values()),
      }),
    };
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

  /** Links of all staged state events; each is staged behind its auth events. */
  async #stagedLinks(staged: StagedEvents): Promise<ReadonlyMap<string, AuthLinks>> {
    const named = new Set<string>();
    for (const { event } of staged.values()) {
      if (event.stateKey === undefined) continue;
      for (const id of event.authEventIds) if (!staged.has(id)) named.add(id);
    }
    const stored = await selectChainPositions(this.database, [...named]);
    const links = new Map<string, AuthLinks>();
    for (const [id, { event }] of staged) {
      if (event.stateKey === undefined) continue;
      const generation = generationAfter(
        event.authEventIds.map((auth) => (links.get(auth) ?? stored.get(auth))?.generation),
      );
      links.set(id, { authEventIds: event.authEventIds, generation });
    }
    return links;
  }
}
