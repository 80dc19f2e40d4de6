import type { StateMap } from '@rookery/state-res';
import { splitStateKey } from '@rookery/state-res';

/** Which part of a room's state is wanted. The empty filter is all of it. */
export interface StateFilter {
  /** Only these; a tuple without a state key means every key of the type. Absent: every type. */
  readonly types?: readonly (readonly [type: string, stateKey?: string])[];
  /** Of `m.room.member`, only these users (lazy loading). Absent: as `types` says. */
  readonly members?: readonly string[];
  /** No `m.room.member` at all. */
  readonly withoutMembers?: boolean;
}

/** The state keys wanted of each type; `true` for all. */
function keysByType(types: NonNullable<StateFilter['types']>): Map<string, Set<string> | true> {
  const wanted = new Map<string, Set<string> | true>();
  for (const [type, stateKey] of types) {
    const known = wanted.get(type);
    if (stateKey === undefined) wanted.set(type, true);
    else if (known === undefined) wanted.set(type, new Set([stateKey]));
    else if (known !== true) known.add(stateKey);
  }
  return wanted;
}

/** Applies a filter to a map in memory. */
export function filterState(state: StateMap, filter: StateFilter | undefined): StateMap {
  if (!filter) return state;
  const types = filter.types && keysByType(filter.types);
  const members = filter.members && new Set(filter.members);
  const kept = new Map<string, string>();
  for (const [key, eventId] of state) {
    const [type, stateKey] = splitStateKey(key);
    if (types) {
      const wanted = types.get(type);
      if (wanted === undefined || (wanted !== true && !wanted.has(stateKey))) continue;
    }
    if (type === 'm.room.member' && (filter.withoutMembers || (members && !members.has(stateKey)))) continue;
    kept.set(key, eventId);
  }
  return kept;
}
