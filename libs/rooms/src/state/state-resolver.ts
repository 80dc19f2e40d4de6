import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { Clock } from '@rookery/platform';
import {
  type AuthLinks,
  type Conflict,
  resolveConflict,
  stateKeyOf,
  type StateMap,
  type StateResProvider,
} from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { EventStore } from '../store/event-store.js';
import { authDifference, type CommonEvents, generationAfter } from './auth-chains.query.js';
import { selectAuthLinks } from './auth-links.query.js';
import { ResolutionBudget } from './resolution-budget.js';

/** Events that are about to be written and can only be found here. */
export type StagedEvents = ReadonlyMap<
  string,
  { readonly event: RoomEvent; readonly rejectedReason: string | undefined }
>;

/**
 * CPU time that a question to the database may be counted with, by itself and for each event that it names, milliseconds: while the
 * answer is waited for, the thread works for others, too.
 */
const [askMs, askedEventMs] = [1, 0.05];

/** Entries of a state that most auth chains lead through. */
const spine: readonly string[] = ['m.room.create', 'm.room.power_levels', 'm.room.join_rules'].map((type) =>
  stateKeyOf(type, ''),
);

/** State resolution over the database, with the chain cover for auth differences. */
@Injectable()
export class StateResolver {
  /** By what is staged: for as long as that is on its way. */
  readonly #links = new WeakMap<StagedEvents, Map<string, AuthLinks>>();

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly budget: ResolutionBudget,
    private readonly clock: Clock,
  ) {}

  /**
   * Resolves several states of one room into one. A room for which this was done too often lately waits.
   * @param conflict what the states disagree on
   * @returns what counts besides what they agree on, by state key
   */
  async resolve(
    roomId: string,
    conflict: Conflict,
    rules: RoomVersionRules,
    staged: StagedEvents,
    signal?: AbortSignal,
  ): Promise<StateMap> {
    const { sets } = conflict;
    const involvesStaged = sets.some((set) => [...set.values()].some((id) => staged.has(id)));
    let cpuMs = 0;
    let sinceMs = 0;
    /** Counts CPU time until {@link stop}: what others do in between is theirs. */
    const goOn = (): void => void (sinceMs = this.clock.threadCpuMs());
    const stop = (atMostMs = Infinity): void => void (cpuMs += Math.min(this.clock.threadCpuMs() - sinceMs, atMostMs));
    const turn = async (): Promise<void> => {
      stop();
      await nextTurn();
      goOn();
    };
    let databaseMs = 0;
    let asking = 0;
    let askedAtMs = 0;
    let allowedMs = 0;
    /** Counts time in which anything was asked for once, however much of it. */
    const timed = async <T>(count: number, ask: () => Promise<T>): Promise<T> => {
      if (asking++ === 0) {
        stop();
        askedAtMs = this.clock.monotonicMs();
        allowedMs = 0;
        goOn();
      }
      allowedMs += askMs + count * askedEventMs;
      try {
        return await ask();
      } finally {
        if (--asking === 0) {
          databaseMs += this.clock.monotonicMs() - askedAtMs;
          stop(allowedMs);
          goOn();
        }
      }
    };
    const isRejected = async (ids: readonly string[]): Promise<Set<string>> => {
      const stored = await this.events.many(ids.filter((id) => !staged.has(id)));
      return new Set(ids.filter((id) => (staged.get(id) ?? stored.get(id))?.rejectedReason !== undefined));
    };
    const provider: StateResProvider = {
      events: (ids) => timed(ids.length, () => this.events.asSent(ids, staged)),
      isRejected: (ids) => timed(ids.length, () => isRejected(ids)),
      authLinks: (ids) => timed(ids.length, () => this.#linksOf(ids, staged)),
      // Staged events have no place in the chain cover yet.
      ...(!involvesStaged && {
        authDifference: (conflicted, unconflicted) =>
          timed(sizeOf(conflicted), () =>
            authDifference(this.database, conflicted, this.#common(unconflicted, staged), async (looked) => {
              allowedMs += askMs + looked * askedEventMs;
              await nextTurn();
            }),
          ),
      }),
    };
    await this.budget.ready(roomId);
    goOn();
    try {
      return await resolveConflict(conflict, provider, rules, { turn, ...(signal && { signal }) });
    } finally {
      stop();
      this.budget.note(roomId, { cpuMs, databaseMs, groups: sets.length });
    }
  }

  /** What states agree on: where it came after an event of an entry or of a sender it mostly names that event. */
  #common(unconflicted: Conflict['unconflicted'], staged: StagedEvents): CommonEvents {
    return {
      all: () => unconflicted.values(),
      likely: async (eventIds) => {
        const keys = new Set(eventIds.length === 0 ? spine : []);
        for (const { type, stateKey, sender } of (await this.events.events(eventIds, staged)).values()) {
          if (stateKey !== undefined) keys.add(stateKeyOf(type, stateKey));
          keys.add(stateKeyOf('m.room.member', sender));
        }
        return [...keys].flatMap((key) => unconflicted.get(key) ?? []);
      },
    };
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

const sizeOf = (sets: readonly ReadonlySet<string>[]): number => sets.reduce((sum, { size }) => sum + size, 0);

const isNew = ({ eventId, stateKey }: RoomEvent, links: ReadonlyMap<string, AuthLinks>): boolean =>
  stateKey !== undefined && !links.has(eventId);
