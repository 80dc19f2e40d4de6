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

/** A condition over columns `type` and `state_key` for a filter; `undefined` when everything matches. */
export interface FilterSql {
  readonly sql: string;
  readonly params: readonly (string | readonly string[])[];
}

/**
 * Writes a filter as SQL.
 * @param anyOf the dialect's list binding
 */
export function stateFilterSql(
  filter: StateFilter | undefined,
  anyOf: (column: string) => string,
  prefix = '',
): FilterSql | undefined {
  if (!filter) return undefined;
  const type = `${prefix}type`;
  const key = `${prefix}state_key`;
  const parts: string[] = [];
  const params: (string | readonly string[])[] = [];
  if (filter.types) {
    const whole = filter.types.filter(([, stateKey]) => stateKey === undefined).map(([name]) => name);
    const byType = new Map<string, string[]>();
    for (const [name, stateKey] of filter.types) {
      if (stateKey === undefined) continue;
      const keys = byType.get(name);
      if (keys) keys.push(stateKey);
      else byType.set(name, [stateKey]);
    }
    const either: string[] = [];
    if (whole.length > 0) {
      either.push(anyOf(type));
      params.push(whole);
    }
    for (const [name, keys] of byType) {
      either.push(`(${type} = ? AND ${anyOf(key)})`);
      params.push(name, keys);
    }
    parts.push(either.length > 0 ? `(${either.join(' OR ')})` : '1 = 0');
  }
  if (filter.withoutMembers) parts.push(`${type} <> 'm.room.member'`);
  if (filter.members) {
    parts.push(`(${type} <> 'm.room.member' OR ${anyOf(key)})`);
    params.push(filter.members);
  }
  return parts.length > 0 ? { sql: parts.join(' AND '), params } : undefined;
}

/** Applies a filter to a map in memory. */
export function filterState(state: StateMap, filter: StateFilter | undefined): StateMap {
  if (!filter) return state;
  const types = filter.types && new Map<string, Set<string> | true>();
  for (const [type, stateKey] of filter.types ?? []) {
    const known = types!.get(type);
    if (stateKey === undefined) types!.set(type, true);
    else if (known === undefined) types!.set(type, new Set([stateKey]));
    else if (known !== true) known.add(stateKey);
  }
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
