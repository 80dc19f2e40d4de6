import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { EventStore } from '../store/event-store.js';
import { isInTimeline, type StoredEvent } from '../model/stored-event.js';
import { authChainOf } from '../state/auth-chains.query.js';
import { selectBelow } from './servers.query.js';

/** How far to walk back. */
export interface GraphWalk {
  /** Most events that come back. */
  readonly limit: number;
  /** Where the walk ends: these and what is before them is left out. */
  readonly stopAt?: readonly string[];
  /** What is less deep is left out. */
  readonly minDepth?: number;
  /** Only ancestors, not the events themselves. */
  readonly withoutStart?: boolean;
}

/** Events that are looked at for each one that comes back: those between, which nobody is shown. */
const lookedAtPerEvent = 5;

/** The graphs that events of a room form: by what came before, and by what allowed them. */
@Injectable()
export class EventGraph {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
  ) {}

  /**
   * Events and their ancestors, the deepest first: those that were not rejected and are known with their place in the room,
   * soft-failed ones among them, since others build upon these. A bounded number of queries, few where the graph has no gaps.
   */
  async walkBack(roomId: string, start: readonly string[], walk: GraphWalk): Promise<StoredEvent[]> {
    const stop = new Set(walk.stopAt ?? []);
    const seen = new Set<string>(stop);
    const pending: StoredEvent[] = [];
    const found: StoredEvent[] = [];
    const reach = async (ids: readonly string[]): Promise<void> => {
      const fresh = ids.filter((id) => !seen.has(id));
      for (const id of fresh) seen.add(id);
      for (const stored of await this.events.inOrder(fresh)) {
        const isHere = stored.event.roomId === roomId && !stored.outlier;
        if (isHere && stored.event.depth >= (walk.minDepth ?? 0)) pending.push(stored);
      }
    };
    await reach(start);
    const isStart = new Set(start);
    await this.#fetchAhead(roomId, pending, walk.limit);
    let looked = walk.limit * lookedAtPerEvent;
    while (pending.length > 0 && found.length < walk.limit && looked-- > 0) {
      const next = takeDeepest(pending);
      if (isInTimeline(next) && !(walk.withoutStart && isStart.has(next.event.eventId))) found.push(next);
      await reach(next.event.prevEventIds);
    }
    return found;
  }

  /** Everything that allowed these events, by way of their auth events; they themselves only if they allowed each other. */
  async authChain(roomId: string, eventIds: readonly string[]): Promise<Set<string>> {
    const authEventsOf = async (ids: readonly string[]): Promise<string[]> =>
      [...(await this.events.events(ids)).values()].flatMap((event) => event.authEventIds);
    const chain = await authChainOf(this.database, eventIds, authEventsOf, ownTurn);
    // Where the room's id implies the create event nothing names it, and everything rests upon it.
    const createId = roomId.includes(':') ? undefined : `$${roomId.slice(1)}`;
    if (createId !== undefined && eventIds.some((id) => id !== createId) && (await this.events.one(createId)))
      chain.add(createId);
    return chain;
  }

  /** Loads what most likely are the ancestors in one go: the next in the room's order. */
  async #fetchAhead(roomId: string, from: readonly StoredEvent[], limit: number): Promise<void> {
    if (from.length === 0) return;
    const deepest = Math.max(...from.map(({ event }) => event.depth));
    await this.events.many(await selectBelow(this.database, roomId, deepest, Math.trunc(limit) + 10));
  }
}

/** Takes the event out of the list that is furthest from the room's beginning. */
function takeDeepest(pending: StoredEvent[]): StoredEvent {
  let best = 0;
  for (let i = 1; i < pending.length; i++) {
    const [a, b] = [pending[i]!, pending[best]!];
    if (a.event.depth > b.event.depth || (a.event.depth === b.event.depth && a.streamOrdering > b.streamOrdering))
      best = i;
  }
  const [taken] = pending.splice(best, 1);
  return taken!;
}
