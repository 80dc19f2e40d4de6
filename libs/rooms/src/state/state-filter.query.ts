import type { StateFilter } from './state-filter.js';

/** A condition over columns `type` and `state_key` for a filter; `undefined` when everything matches. */
export interface FilterSql {
  readonly sql: string;
  readonly params: readonly (string | readonly string[])[];
}

/** Entries that are looked for one by one; of more of them it is quicker to read on. */
const maxSearches = 64;

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
    const wanted = typesSql(filter.types, anyOf, { type, key });
    parts.push(wanted.sql);
    params.push(...wanted.params);
  }
  if (filter.withoutMembers) parts.push(`${type} <> 'm.room.member'`);
  if (filter.members) {
    parts.push(`(${type} <> 'm.room.member' OR ${anyOf(key)})`);
    params.push(filter.members);
  }
  return parts.length > 0 ? { sql: parts.join(' AND '), params } : undefined;
}

function typesSql(
  types: NonNullable<StateFilter['types']>,
  anyOf: (column: string) => string,
  { type, key }: { readonly type: string; readonly key: string },
): FilterSql {
  const whole = types.filter(([, stateKey]) => stateKey === undefined).map(([name]) => name);
  const byType = new Map<string, string[]>();
  for (const [name, stateKey] of types) {
    if (stateKey === undefined) continue;
    const some = byType.get(name);
    if (some) some.push(stateKey);
    else byType.set(name, [stateKey]);
  }
  const either: string[] = [];
  const named: (string | readonly string[])[] = [];
  if (whole.length > 0) {
    either.push(anyOf(type));
    named.push(whole);
  }
  for (const [name, some] of byType) {
    either.push(`(${type} = ? AND ${anyOf(key)})`);
    named.push(name, some);
  }
  const sql = either.length > 0 ? `(${either.join(' OR ')})` : '1 = 0';
  const keys = new Set([...byType.values()].flat());
  if (whole.length > 0 || byType.size < 2 || byType.size * keys.size > maxSearches) return { sql, params: named };
  // Said twice, so that the index is searched by type and key: for alternatives SQLite reads all of a state, however few are wanted.
  return { sql: `${anyOf(type)} AND ${anyOf(key)} AND ${sql}`, params: [[...byType.keys()], [...keys], ...named] };
}
