import type { StateFilter } from './state-filter.js';

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
