import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { type AuthLinks, resolveState, type StateMap, type StateResProvider } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import { authDifference, generationAfter } from './auth-chains.query.js';
import { selectAuthLinks } from './auth-links.query.js';

/** Events that are about to be written and can only be found here. */
export type StagedEvents = ReadonlyMap<
  string,
  { readonly event: RoomEvent; readonly rejectedReason: string | undefined }
>;

/** State resolution over the database, with the chain cover for auth differences. */
@Injectable()
export class StateResolver {
  /** By what is staged: for as long as that is on its way. */
  readonly #links = new WeakMap<StagedEvents, Map<string, AuthLinks>>();

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
      authLinks: (ids) => this.#linksOf(ids, staged),
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

  /** Links of state events, staged or stored; what is staged together asks for each only once. */
  async #linksOf(ids: readonly string[], staged: StagedEvents): Promise<ReadonlyMap<string, AuthLinks>> {
    let links = this.#links.get(staged);
    if (!links) this.#links.set(staged, (links = new Map()));
    const own = ids.some((id) => staged.has(id)) ? [...staged.values()].filter(({ event }) => isNew(event, links)) : [];
    const named = own.flatMap(({ event }) => event.authEventIds);
    const missing = new Set([...ids, ...named].filter((id) => !links.has(id) && !staged.has(id)));
    for (const [id, link] of await selectAuthLinks(this.database, [...missing])) links.set(id, link);
    // Each is staged behind its auth events.
    for (const { event } of own) {
      const { eventId, authEventIds } = event;
      const generation = generationAfter(authEventIds.map((auth) => links.get(auth)?.generation));
      links.set(eventId, { authEventIds, generation });
    }
    const found = new Map<string, AuthLinks>();
    for (const id of ids) {
      const link = links.get(id);
      if (link) found.set(id, link);
    }
    return found;
  }
}

const isNew = ({ eventId, stateKey }: RoomEvent, links: ReadonlyMap<string, AuthLinks>): boolean =>
  stateKey !== undefined && !links.has(eventId);
