import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { stateKeyOf, type StateMap } from '../state-map.js';
import { authDifference } from './auth-difference.js';
import { type Conflict, idsByKey } from './conflict.js';
import { conflictedSubgraph } from './conflicted-subgraph.js';
import type { ResolutionEvents } from './resolution-events.js';
import { IterativeAuthChecks } from './iterative-auth-checks.js';
import { mainlineOrder } from './mainline.js';
import { isPowerEvent, powerOrder } from './power-order.js';

const powerLevelsKey = stateKeyOf('m.room.power_levels', '');
const nothing: StateMap = new Map();

/**
 * State resolution of room versions 2 to 11, and with its two changes of version 12.
 * @returns what counts besides the unconflicted state, by state key
 * @spec rooms/v12#state-resolution
 */
export async function resolveV2(
  conflict: Conflict,
  store: ResolutionEvents,
  rules: RoomVersionRules,
): Promise<StateMap> {
  const { unconflicted } = conflict;
  const isV21 = rules.stateResolution === 'v2.1';
  const events = await fullConflictedSet(conflict, store, isV21);

  const start = isV21 ? nothing : unconflicted;
  const checks = await IterativeAuthChecks.prepare(events.values(), start, store, rules);
  const power = await powerSet(events, store);
  await checks.apply(await powerOrder([...power], store, checks.impliedCreate, rules));
  const rest = [...events.values()].filter((event) => !power.has(event));
  const head = checks.applied.get(powerLevelsKey) ?? start.get(powerLevelsKey);
  await checks.apply(await mainlineOrder(rest, head, store));

  const resolved = checks.applied;
  for (const key of [...resolved.keys()]) if (unconflicted.get(key) !== undefined) resolved.delete(key);
  return resolved;
}

/** @spec rooms/v12#definitions */
async function fullConflictedSet(
  conflict: Conflict,
  store: ResolutionEvents,
  isV21: boolean,
): Promise<Map<string, RoomEvent>> {
  const conflicted = new Set([...idsByKey(conflict).values()].flatMap((ids) => [...ids]));
  await store.load(conflicted);
  const ids = [conflicted, await authDifference(conflict, conflicted, store)];
  if (isV21) ids.push(await conflictedSubgraph(conflicted, store));

  const events = new Map<string, RoomEvent>();
  for (const part of ids) {
    await store.load(part);
    for (const id of part) {
      const event = store.get(id);
      if (event?.stateKey !== undefined) events.set(id, event);
    }
  }
  return events;
}

/**
 * The power events of the full conflicted set, with those events of the set that they depend on.
 *
 * NOTSPEC: dependence is followed along auth events within the set only, as other servers do. A path that leaves the
 * set and comes back does not count before version 12, where the conflicted subgraph brings all of it into the set.
 */
async function powerSet(events: ReadonlyMap<string, RoomEvent>, store: ResolutionEvents): Promise<Set<RoomEvent>> {
  const power = new Set<RoomEvent>();
  for (const event of events.values()) if (isPowerEvent(event)) power.add(event);
  for (const event of power) {
    await store.pause();
    for (const authId of event.authEventIds) {
      const cited = events.get(authId);
      // A set is walked in the order of insertion, so that what is added here is walked too.
      if (cited !== undefined) power.add(cited);
    }
  }
  return power;
}
