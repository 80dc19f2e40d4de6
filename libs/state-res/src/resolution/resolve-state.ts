import type { RoomVersionRules } from '@rookery/events';
import type { StateMap } from '../state-map.js';
import { type Conflict, findConflict } from './conflict.js';
import { ResolutionEvents } from './resolution-events.js';
import type { ResolveOptions, StateResProvider } from './provider.js';
import { resolveV1 } from './v1.js';
import { resolveV2 } from './v2.js';

/**
 * Resolves the states after several events into one: the state before an event that follows all of them. The order of
 * the state sets does not matter; sets that agree are not read at all.
 * @throws the signal's reason when it was aborted; {@link StateResolutionLimitError} past `maxEvents`
 * @spec rooms/v12#state-resolution
 */
export async function resolveState(
  stateSets: readonly StateMap[],
  provider: StateResProvider,
  rules: RoomVersionRules,
  options: ResolveOptions = {},
): Promise<StateMap> {
  const sets = [...new Set(stateSets)];
  const [only] = sets;
  if (only === undefined) return new Map();
  if (sets.length === 1) return only;
  const conflict = findConflict(sets, rules.stateResolution);
  const resolved = await resolveConflict(conflict, provider, rules, options);
  return resolved.size === 0 ? conflict.unconflicted : new Map([...conflict.unconflicted, ...resolved]);
}

/**
 * {@link resolveState} for a caller that knows already where the state sets differ, say from the deltas of its state
 * groups: the cost then depends on the conflict alone, not on the size of the room.
 * @returns the entries that belong to the resolved state besides the unconflicted ones
 * @throws as {@link resolveState}
 * @spec rooms/v12#state-resolution
 */
export async function resolveConflict(
  conflict: Conflict,
  provider: StateResProvider,
  rules: RoomVersionRules,
  options: ResolveOptions = {},
): Promise<StateMap> {
  if (conflict.sets.every((set) => set.size === 0)) return new Map();
  const store = new ResolutionEvents(provider, options);
  return rules.stateResolution === 'v1' ? resolveV1(conflict, store, rules) : resolveV2(conflict, store, rules);
}
