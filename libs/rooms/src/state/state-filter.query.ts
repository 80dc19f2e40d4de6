import { batchesOf } from '@rookery/platform';
import type { StateFilter } from './state-filter.js';

/** A condition over columns `type` and `state_key` for a filter; `undefined` when everything matches. */
export interface FilterSql {
  readonly sql: string;
  readonly params: readonly (string | readonly string[])[];
}

/** A stretch of a state, in the order of types and keys. */
export interface StateSpan {
  /** Only this type, those before it, or those behind it; absent: all of the state. */
  readonly type?: readonly [is: '=' | '<' | '>', type: string];
}

/** What is read of a state one page after the other, and what is looked up beside it. */
export interface StateSpans {
  readonly spans: readonly StateSpan[];
  readonly rest: StateFilter | undefined;
}

const memberType = 'm.room.member';
const withoutMembers: readonly StateSpan[] = [{ type: ['<', memberType] }, { type: ['>', memberType] }];

/** How as much of a state as a filter lets through is read in pages; `undefined` where it names all that it wants. */
export function spansOf(filter: StateFilter = {}): StateSpans | undefined {
  const { types, members } = filter;
  if (types === undefined) {
    if (members === undefined && !filter.withoutMembers) return { spans: [{}], rest: undefined };
    const named = filter.withoutMembers ? [] : (members ?? []);
    const rest = named.length > 0 ? { types: named.map((member) => [memberType, member] as const) } : undefined;
    return { spans: withoutMembers, rest };
  }
  if (members !== undefined || filter.withoutMembers) return undefined;
  const whole = new Set(types.flatMap(([type, stateKey]) => (stateKey === undefined ? [type] : [])));
  if (whole.size === 0) return undefined;
  const named = types.filter(([type]) => !whole.has(type));
  return {
    spans: [...whole].map((type) => ({ type: ['=', type] })),
    rest: named.length > 0 ? { types: named } : undefined,
  };
}

/** The conditions of a page of a stretch over columns `type` and `state_key`, behind others, and its order. */
export function pageSql(
  { type }: StateSpan,
  after: readonly [type: string, stateKey: string] | undefined,
  limit: number,
): FilterSql {
  const [is, bound] = type ?? ['>', undefined];
  const conditions: string[] = [];
  const params: string[] = [];
  const add = (sql: string, ...values: readonly string[]): void => {
    conditions.push(`AND ${sql}`);
    params.push(...values);
  };
  // Said so that the index is searched by all of it: of a type's own keys by the key, and by one lower bound.
  if (bound !== undefined && (is !== '>' || after === undefined)) add(`type ${is} ?`, bound);
  if (after !== undefined && is === '=') add('state_key > ?', after[1]);
  else if (after !== undefined) add('(type, state_key) > (?, ?)', ...after);
  return { sql: `${conditions.join(' ')} ORDER BY type, state_key LIMIT ${Math.trunc(limit)}`, params };
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

const alternativesInGroup = 100;

/** Conditions of which one holds, in brackets. Many are put in groups: SQLite takes no thousand in a row. */
function oneOf(conditions: readonly string[]): string {
  const groups = batchesOf(conditions, alternativesInGroup).map((group) => `(${group.join(' OR ')})`);
  return groups.length > 1 ? `(${groups.join(' OR ')})` : (groups[0] ?? '1 = 0');
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
  const sql = oneOf(either);
  const keys = new Set([...byType.values()].flat());
  if (whole.length > 0 || byType.size < 2 || byType.size * keys.size > maxSearches) return { sql, params: named };
  // Said twice, so that the index is searched by type and key: for alternatives SQLite reads all of a state, however few are wanted.
  return { sql: `${anyOf(type)} AND ${anyOf(key)} AND ${sql}`, params: [[...byType.keys()], [...keys], ...named] };
}
