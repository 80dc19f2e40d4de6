import { Injectable } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { Cache, Config, Metrics } from '@rookery/platform';
import { conflictAmong, isCitable, splitStateKey, stateKeyOf, type StateMap } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { mayComeLater } from '../model/later-state.js';
import { laidOver, LayeredState } from '../state/layered-state.js';
import { StateGroups } from '../state/state-groups-cache.js';
import { fullGroup, planGroup, type GroupPlan } from '../state/state-groups.js';
import { type ChainLink, selectChain, selectDeltas, selectGroupsIn } from '../state/state-groups.query.js';
import { StateResolver } from '../state/state-resolver.js';
import { EventStore } from '../store/event-store.js';
import { RoomIds } from '../store/room-ids.js';
import type { WorkingRoom } from '../room/working-room.js';

/** The state of a room before an event. */
export interface StateBefore {
  /** Chain of the group that holds it. */
  readonly chain: readonly ChainLink[];
  readonly size: number;
  idAt(key: string): string | undefined;
  whole(): Promise<StateMap>;
  /** Of what it is made, where that is known. */
  readonly layers?: LayeredState;
}

/** What an entry of current state becomes; `undefined`: it goes. */
type Change = readonly [key: string, eventId: string | undefined];

/** Events that are read, and entries of a state that are looked at, before others get a turn. */
const eventsPerTurn = 500;
const entriesPerTurn = 5_000;
/** So many events that do not count are looked at between an event and the forward extremities below it. */
const maxBetween = 500;

const countsIn = (metrics: Metrics) => ({
  all: metrics.counter('synapse_storage_events_state_delta').child({}),
  single: metrics.counter('synapse_storage_events_state_delta_single_event').child({}),
  known: metrics.counter('synapse_storage_events_state_delta_reuse_delta').child({}),
  resolved: metrics.counter('synapse_storage_events_state_resolutions_during_persistence').child({}),
});

/** Finds the state before an event, makes the group after it, moves extremities and current state on. */
@Injectable()
export class EventContexts {
  /** Groups of events stored lately: forks start from these. */
  readonly #recentGroups: Cache<string, { readonly roomId: string; readonly group: number }>;
  /** The groups that together make the current state of a room, by its chain: while they stay the same, so does what they make. */
  readonly #madeOf = new WeakMap<readonly ChainLink[], ReadonlySet<number>>();
  /** How often current state was worked out, and in which way. */
  readonly #counts: ReturnType<typeof countsIn>;

  constructor(
    private readonly stores: DataStores,
    private readonly groups: StateGroups,
    private readonly resolver: StateResolver,
    private readonly ids: RoomIds,
    private readonly events: EventStore,
    config: Config,
    metrics: Metrics,
  ) {
    this.#counts = countsIn(metrics);
    this.#recentGroups = new Cache(config, 'recent_state_groups', {
      ...{ invalidation: 'on write', elsewhere: 'not kept', max: 40_000 },
    });
  }

  /** The state on top of which the next event is sent: current state. */
  async current(room: WorkingRoom): Promise<StateBefore> {
    await this.settle(room);
    room.chain ??= await this.#chainForCurrent(room);
    return this.#live(room, room.chain);
  }

  /** The state before an event with these previous events, or which of them have no known state. */
  async before(
    room: WorkingRoom,
    prevEventIds: readonly string[],
  ): Promise<StateBefore | { readonly missing: readonly string[] }> {
    const extremities = room.extremities;
    // Only the event that begins the room follows upon nothing, and it may come in long after others.
    if (prevEventIds.length === 0) return noState;
    // Another server may name one of them twice, and not the others.
    if (prevEventIds.every((id) => extremities.has(id)) && new Set(prevEventIds).size === extremities.size)
      return this.current(room);
    const groups = await this.#groupsOf(room, prevEventIds);
    const missing = prevEventIds.filter((id) => !groups.has(id));
    if (missing.length > 0) return { missing };
    const distinct = new Set(groups.values());
    const { chain } = room;
    if (distinct.size === 1 && chain?.[0] && distinct.has(chain[0].group)) return this.#live(room, chain);
    if (chain !== undefined && this.#isMadeOf(chain, distinct)) return this.#live(room, chain);
    return this.#merged(room, [...distinct]);
  }

  /** Whether nothing has come into a room since its {@link current} state was `before`, on top of these: what was found then holds. */
  isUnmoved(room: WorkingRoom, prevEventIds: readonly string[], before: StateBefore): boolean {
    const { extremities, chain, isPartial, isUnsettled } = room;
    if (isPartial || isUnsettled || chain === undefined || chain !== before.chain) return false;
    return prevEventIds.length === extremities.size && prevEventIds.every((id) => extremities.has(id));
  }

  /**
   * The state before stored events that are judged once more, by what has become of those before them.
   * @param last a state that was found lately, and its group
   * @returns `undefined` where one of the previous events has no known state
   */
  async beforeAnew(
    room: WorkingRoom,
    prevEventIds: readonly string[],
    last?: { readonly group: number; readonly state: StateBefore },
  ): Promise<StateBefore | undefined> {
    const groups = await this.#groupsOf(room, prevEventIds);
    if (groups.size < new Set(prevEventIds).size || groups.size === 0) return undefined;
    const distinct = [...new Set(groups.values())];
    return distinct.length === 1 && distinct[0] === last?.group ? last?.state : this.#merged(room, distinct);
  }

  /** Makes the state of the forward extremities the room's current state, once stored events were judged once more. */
  resolveAnew(room: WorkingRoom): Promise<void> {
    room.chain = undefined;
    return this.#resolveCurrent(room);
  }

  /** Which of these events have no known state. */
  async unknown(room: WorkingRoom, eventIds: readonly string[]): Promise<string[]> {
    const groups = await this.#groupsOf(room, eventIds);
    return eventIds.filter((id) => !groups.has(id));
  }

  /** The same state, for whoever looks at it through {@link WorkingRoom.still}. */
  asSeen(still: WorkingRoom, before: StateBefore): StateBefore {
    return still.chain !== undefined && before.chain === still.chain ? this.#live(still, still.chain) : before;
  }

  /** A group for a state that came from elsewhere. */
  async given(room: WorkingRoom, state: StateMap): Promise<StateBefore> {
    const plan = fullGroup(await this.ids.stateGroup(), state);
    room.groups.set(plan.group, plan);
    return fixed(plan.chain, state);
  }

  /** The id of a group that is not written yet. */
  newGroup(): Promise<number> {
    return this.ids.stateGroup();
  }

  /** A group that has been written, and its state. */
  stored(room: WorkingRoom, group: number, state: StateMap): StateBefore {
    const plan = { ...fullGroup(group, state), isStored: true };
    room.groups.set(group, plan);
    return fixed(plan.chain, state);
  }

  /** Adds members, and what else had not come, to current state where nothing was known of it. */
  async find(room: WorkingRoom, state: StateMap): Promise<void> {
    const unknown = [...state].filter(([key]) => room.idAt(key) === undefined && mayComeLater(splitStateKey(key)[0]));
    const events = await this.events.events(unknown.map(([, eventId]) => eventId));
    for (const [key, eventId] of unknown) {
      const event = events.get(eventId);
      if (event) room.change(key, event);
    }
  }

  /** The group after an accepted event; makes one when the event is state. */
  async groupAfter(room: WorkingRoom, before: StateBefore, event: RoomEvent): Promise<readonly ChainLink[]> {
    if (event.stateKey === undefined) return before.chain;
    const key = stateKeyOf(event.type, event.stateKey);
    const changes = new Map([[key, event.eventId]]);
    if (before.size === 0) return this.#keep(room, fullGroup(await this.ids.stateGroup(), changes));
    const size = before.size + (before.idAt(key) === undefined ? 1 : 0);
    const plan = await planGroup(
      await this.ids.stateGroup(),
      before.chain,
      changes,
      (groups) => this.#deltasOf(room, groups),
      size,
      async () => new Map(await before.whole()).set(key, event.eventId),
    );
    return this.#keep(room, plan);
  }

  /**
   * What state resolution makes of the entries of another state that a state does not have, or has by other events. Where the state has
   * none of them they are believed as they are: it is known in part.
   */
  async claimedWith(room: WorkingRoom, state: StateBefore, claimed: StateMap): Promise<StateMap> {
    const keys = entriesApart(state, claimed);
    const isContested = [...keys].some((key) => state.idAt(key) !== undefined);
    return isContested ? this.#resolvedAt(keys, room, state, claimed, room.rules) : claimed;
  }

  /**
   * What becomes of the entries that another server told of the state before an event and current state does not have, or has by other
   * events: to judge that event by.
   *
   * NOTSPEC: always version 2 of the algorithm, which begins with what both agree on. Version 1 takes what only one of them has, and
   * 2.1 what its own auth events allow: whoever told of a join by rules that are long gone would be believed.
   */
  toldWith(room: WorkingRoom, current: StateBefore, told: StateMap): Promise<StateMap> {
    const rules: RoomVersionRules = { ...room.rules, stateResolution: 'v2' };
    return this.#resolvedAt(entriesApart(current, told), room, current, told, rules);
  }

  /** @param keys at which the two may differ */
  async #resolvedAt(
    keys: ReadonlySet<string>,
    { roomId, stagedById }: WorkingRoom,
    state: StateBefore,
    other: StateMap,
    rules: RoomVersionRules,
  ): Promise<StateMap> {
    if (keys.size === 0) return other;
    const states = [await state.whole(), other];
    const conflict = await conflictAmong(keys, states, rules.stateResolution, () => nextTurn());
    const resolved = await this.resolver.resolve(roomId, conflict, rules, stagedById);
    // In version 1 of the algorithm what only one of them has is no conflict.
    return new Map([...conflict.agreed, ...resolved]);
  }

  /**
   * Makes an accepted event an extremity, after it was staged.
   * @param isReferenced an event that came later names it already: then it is none
   * @param maySettleLater {@link settle} is called before anything but the events that come with it looks at the room
   */
  async advance(
    room: WorkingRoom,
    event: RoomEvent,
    before: StateBefore,
    chain: readonly ChainLink[],
    isReferenced = false,
    maySettleLater = false,
  ): Promise<void> {
    const group = groupOf(chain);
    if (group === undefined) throw new Error(`An accepted event without a state: ${event.eventId}`);
    this.#recentGroups.set(event.eventId, { roomId: room.roomId, group });
    const covered = await this.#cover(room, event);
    // What names it need not lead to a forward extremity, as a piece of the past that another server made up: a room always
    // has one.
    const isExtremity = !isReferenced || room.extremities.size === 0;
    if (!isExtremity && covered === 0) return;
    const wasOnTop = before.chain === room.chain && isExtremity;
    if (isExtremity) room.extremities.set(event.eventId, { depth: event.depth, group });
    if (room.extremities.size === 1 && wasOnTop && !room.isUnsettled) {
      this.#counts.all.inc();
      this.#counts.single.inc();
      if (event.stateKey !== undefined) room.change(stateKeyOf(event.type, event.stateKey), event);
      room.chain = chain;
    } else if (maySettleLater && !isCitable(event.type)) room.isUnsettled = true;
    else await this.#resolveCurrent(room);
  }

  /**
   * Makes up for what `advance` has put off. Events that come together and authorize nothing change, in a room with many forks,
   * current state once and not once each: whether they are allowed does not depend on each other.
   */
  async settle(room: WorkingRoom): Promise<void> {
    if (room.isUnsettled) await this.#resolveCurrent(room);
  }

  /** Makes the state of all forward extremities together the room's current state. */
  async #resolveCurrent(room: WorkingRoom): Promise<void> {
    room.isUnsettled = false;
    this.#counts.all.inc();
    const groups = new Set([...room.extremities.values()].map((extremity) => extremity.group));
    const isOnlyOne = groups.size === 1;
    if (isOnlyOne && room.chain?.[0]?.group === [...groups][0]) return this.#counts.known.inc();
    if (room.chain !== undefined && this.#isMadeOf(room.chain, groups)) return this.#counts.known.inc();
    if (!isOnlyOne) this.#counts.resolved.inc();
    const now = await this.#merged(room, [...groups]);
    const changes = await this.#changesTo(room, now);
    const entries = [...changes];
    for (let start = 0; start < entries.length; start += eventsPerTurn) {
      if (start > 0) await nextTurn();
      await this.#change(room, entries.slice(start, start + eventsPerTurn));
    }
    room.chain = this.#noted(room, groups, now.chain);
  }

  async #change(room: WorkingRoom, entries: readonly Change[]): Promise<void> {
    const wanted = entries.flatMap(([, eventId]) => eventId ?? []);
    const events = await this.events.events(wanted, room.stagedById);
    for (const [key, eventId] of entries) {
      // Of what a part of the state says nothing is not gone: it may have become known since.
      if (eventId === undefined && room.isPartial && mayComeLater(splitStateKey(key)[0])) continue;
      room.change(key, eventId === undefined ? undefined : events.get(eventId));
    }
  }

  /** Entries in which a state differs from the room's current one; `undefined` for those that it does not have. */
  async #changesTo(room: WorkingRoom, state: StateBefore): Promise<Map<string, string | undefined>> {
    const group = room.chain && groupOf(room.chain);
    // Of a room that is known in part more is known than its groups say.
    if (room.isPartial || group === undefined || !state.layers) return changesTo(room, await state.whole());
    const changes = new Map<string, string | undefined>();
    for (const key of await this.groups.apart([...(await this.#layersOf(room, [group])), state.layers])) {
      const eventId = state.idAt(key);
      if (room.idAt(key) !== eventId) changes.set(key, eventId);
    }
    return changes;
  }

  #isMadeOf(chain: readonly ChainLink[], groups: ReadonlySet<number>): boolean {
    const made = this.#madeOf.get(chain);
    return made !== undefined && made.size === groups.size && [...groups].every((group) => made.has(group));
  }

  /** Told when a batch has failed. */
  forget(room: WorkingRoom): void {
    for (const staged of room.staged) this.#recentGroups.delete(staged.event.eventId);
  }

  /**
   * Takes away the forward extremities upon which an event follows, be it by way of events that are kept and do not count.
   * @returns how many
   */
  async #cover(room: WorkingRoom, event: RoomEvent): Promise<number> {
    const { extremities } = room;
    const before = extremities.size;
    const seen = new Set(event.prevEventIds);
    let level = event.prevEventIds.filter((id) => !extremities.delete(id));
    while (level.length > 0 && extremities.size > 0 && seen.size <= maxBetween) {
      const stored = await this.events.many(level.filter((id) => !room.stagedById.has(id)));
      const next: string[] = [];
      for (const id of level) {
        const entry = room.stagedById.get(id) ?? stored.get(id);
        if (!entry || entry.outlier || (entry.rejectedReason === undefined && !entry.softFailed)) continue;
        for (const prev of entry.event.prevEventIds) {
          if (seen.has(prev)) continue;
          seen.add(prev);
          if (!extremities.delete(prev)) next.push(prev);
        }
      }
      level = next;
    }
    return before - extremities.size;
  }

  /** Told when something else than storing events has changed a room's tables: groups may be gone. */
  forgetRoom(roomId: string): void {
    this.#recentGroups.deleteIf((recent) => recent.roomId === roomId);
  }

  #live(room: WorkingRoom, chain: readonly ChainLink[]): StateBefore {
    return {
      chain,
      size: room.size,
      idAt: (key) => room.idAt(key),
      whole: () => Promise.resolve(room.wholeState()),
    };
  }

  #keep(room: WorkingRoom, plan: GroupPlan): readonly ChainLink[] {
    room.groups.set(plan.group, plan);
    return plan.chain;
  }

  async #groupsOf(room: WorkingRoom, eventIds: readonly string[]): Promise<Map<string, number>> {
    const groups = new Map<string, number>();
    const unknown: string[] = [];
    for (const id of eventIds) {
      const staged = room.stagedById.get(id);
      const group = room.rejudged
        ? room.groupOf(id)
        : staged
          ? staged.group
          : (room.extremities.get(id)?.group ?? this.#recentGroupOf(room, id));
      if (group !== undefined) groups.set(id, group);
      else unknown.push(id);
    }
    for (const [id, group] of await selectGroupsIn(this.stores.main, room.roomId, unknown)) groups.set(id, group);
    return groups;
  }

  #recentGroupOf({ roomId }: WorkingRoom, eventId: string): number | undefined {
    const recent = this.#recentGroups.get(eventId);
    return recent?.roomId === roomId ? recent.group : undefined;
  }

  async #chainForCurrent(room: WorkingRoom): Promise<readonly ChainLink[]> {
    const groups = new Set([...room.extremities.values()].map((extremity) => extremity.group));
    if (groups.size === 0) return [];
    return this.#noted(room, groups, (await this.#merged(room, [...groups])).chain);
  }

  /** A list of its own for a chain: what is noted of it is about this resolution only. */
  #noted(room: WorkingRoom, groups: ReadonlySet<number>, chain: readonly ChainLink[]): readonly ChainLink[] {
    const own = [...chain];
    if (!room.isPartial) this.#madeOf.set(own, groups);
    return own;
  }

  /** One state for several groups, by state resolution. */
  async #merged(room: WorkingRoom, groups: readonly number[]): Promise<StateBefore> {
    const states = await this.#layersOf(room, groups);
    const [only] = states;
    if (!only) return noState;
    if (states.length === 1) return seen(await this.#chainOf(room, groups[0]!), only);
    const { rules, roomId } = room;
    const keys = await this.groups.apart(states);
    const conflict = await conflictAmong(keys, states, rules.stateResolution, () => nextTurn());
    const resolved = await this.resolver.resolve(roomId, conflict, rules, room.stagedById);
    for (const key of resolved.keys()) keys.add(key);
    const { index, isRemoval } = await nearest(states, keys, (key) => resolved.get(key) ?? conflict.agreed.get(key));
    const state = states[index]!;
    const diff = new Map<string, string>();
    const gone: string[] = [];
    for (const key of keys) {
      const eventId = resolved.get(key) ?? conflict.agreed.get(key);
      if (eventId === undefined) gone.push(key);
      else if (state.get(key) !== eventId) diff.set(key, eventId);
    }
    if (isRemoval) return this.#without(room, state.with(diff), gone);
    const chain = await this.#chainOf(room, groups[index]!);
    if (diff.size === 0) return seen(chain, state);
    const now = state.with(diff);
    const plan = await planGroup(
      await this.ids.stateGroup(),
      chain,
      diff,
      (skipped) => this.#deltasOf(room, skipped),
      now.size,
      () => now.whole(),
    );
    return seen(this.#keep(room, plan), now);
  }

  /** A group for a state without some of its entries: it can rest upon no other. */
  async #without(room: WorkingRoom, state: LayeredState, gone: readonly string[]): Promise<StateBefore> {
    const rows = await laidOver([await state.whole()]);
    for (const key of gone) rows.delete(key);
    const plan = fullGroup(await this.ids.stateGroup(), rows);
    return seen(this.#keep(room, plan), new LayeredState({ group: plan.group, state: rows }));
  }

  /** The states of all these groups, in their order: what is stored of each, and what is staged above that. */
  async #layersOf(room: WorkingRoom, groups: readonly number[]): Promise<LayeredState[]> {
    // What is staged is told from what is stored once, before anything is waited for.
    const parts = groups.map((group) => {
      const plans: GroupPlan[] = [];
      let stored: number | undefined = group;
      for (let plan = room.groups.get(group); plan; plan = stored === undefined ? undefined : room.groups.get(stored)) {
        plans.push(plan);
        stored = plan.prev;
      }
      return { plans: plans.reverse(), stored };
    });
    const states = await this.groups.all(parts.flatMap(({ stored }) => stored ?? []));
    return parts.map(({ plans, stored }) => {
      const [lowest, ...others] = plans;
      if (stored === undefined)
        return new LayeredState({ group: lowest!.group, state: lowest!.rows }, rowsOf(others), plans.at(-1)!.size);
      const below = states.get(stored);
      if (!below) throw new Error(`State group ${stored} was not read`);
      return plans.length === 0
        ? below
        : new LayeredState(below.base, [...below.above, ...rowsOf(plans)], plans.at(-1)!.size);
    });
  }

  /** @throws Error when there is no such group: nothing may be built upon a state that nobody knows */
  async #chainOf(room: WorkingRoom, group: number): Promise<readonly ChainLink[]> {
    const chain = room.groups.get(group)?.chain ?? (await selectChain(this.stores.state, group));
    if (chain.length === 0) throw new Error(`There is no state group ${group}`);
    return chain;
  }

  async #deltasOf(room: WorkingRoom, groups: readonly number[]): Promise<Map<number, StateMap>> {
    const deltas = new Map<number, StateMap>();
    const stored: number[] = [];
    for (const group of groups) {
      const plan = room.groups.get(group);
      if (plan) deltas.set(group, plan.rows);
      else stored.push(group);
    }
    if (stored.length === 0) return deltas;
    for (const [group, delta] of await selectDeltas(this.stores.state, stored)) deltas.set(group, delta);
    return deltas;
  }
}

const rowsOf = (plans: readonly GroupPlan[]): StateMap[] => plans.map(({ rows }) => rows);

/** A state of which it is known how it is made. */
const seen = (chain: readonly ChainLink[], layers: LayeredState): StateBefore => ({
  ...{ chain, layers },
  get size() {
    return layers.size;
  },
  idAt: (key) => layers.get(key),
  whole: () => layers.whole(),
});

/**
 * Which of some states another one is the nearest to, and whether that lacks an entry of it: a group that rests upon others lacks nothing
 * of theirs, so that one of which nothing goes is preferred.
 * @param keys at which it may differ from any of them
 */
async function nearest(
  states: readonly LayeredState[],
  keys: ReadonlySet<string>,
  idAt: (key: string) => string | undefined,
): Promise<{ readonly index: number; readonly isRemoval: boolean }> {
  let best = { index: 0, isRemoval: true, size: Infinity };
  let looked = 0;
  for (const [index, state] of states.entries()) {
    let [size, isRemoval] = [0, false];
    for (const key of keys) {
      if (++looked % entriesPerTurn === 0) await nextTurn();
      const [before, now] = [state.get(key), idAt(key)];
      if (before === now) continue;
      size++;
      if (now === undefined) isRemoval = true;
    }
    const isBetter = isRemoval === best.isRemoval ? size < best.size : best.isRemoval;
    if (isBetter) best = { index, isRemoval, size };
  }
  return best;
}

/** Entries in which a state differs from the room's current one; `undefined` for those that it does not have. */
async function changesTo(room: WorkingRoom, state: StateMap): Promise<Map<string, string | undefined>> {
  const changes = new Map<string, string | undefined>();
  let count = 0;
  for (const [key, eventId] of state) {
    if (++count % entriesPerTurn === 0) await nextTurn();
    if (room.idAt(key) !== eventId) changes.set(key, eventId);
  }
  for (const key of room.keys()) {
    if (++count % entriesPerTurn === 0) await nextTurn();
    if (!state.has(key)) changes.set(key, undefined);
  }
  return changes;
}

/** Keys of the entries of another state that a state does not have, or has by other events. */
const entriesApart = (state: StateBefore, other: StateMap): ReadonlySet<string> =>
  new Set([...other].flatMap(([key, eventId]) => (state.idAt(key) === eventId ? [] : key)));

/** The group at the top of a chain; a chain that holds no state has none. */
export const groupOf = (chain: readonly ChainLink[]): number | undefined => chain[0]?.group;

/** The state before the first event of a room. */
export const noState: StateBefore = fixed([], new Map());

/** A state as it was told, without a group. */
export const stateOf = (state: StateMap): StateBefore => fixed([], state);

function fixed(chain: readonly ChainLink[], state: StateMap): StateBefore {
  return { chain, size: state.size, idAt: (key) => state.get(key), whole: () => Promise.resolve(state) };
}
