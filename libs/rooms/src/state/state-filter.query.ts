import type { Dialect } from '@rookery/database';
import type { StateFilter } from './state-filter.js';

/** A condition over columns `type` and `state_key`. */
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

/** Entries that are looked for one by one where types and keys are crossed; more are given as a list. */
const maxSearches = 64;

/**
 * Writes a filter as SQL: conditions of which none holds for what another does, and one for whatever the filter lets through. The index is
 * searched by each of them; by all at once, put together with OR, SQLite would read all of a state, however little is wanted.
 */
export function stateFilterSql(filter: StateFilter | undefined, dialect: Dialect, prefix = ''): readonly FilterSql[] {
  const columns = { type: `${prefix}type`, key: `${prefix}state_key` };
  const { type, key } = columns;
  const { types, members, withoutMembers: noMembers } = filter ?? {};
  if (types !== undefined) {
    const parts = typesSql(types, dialect, columns);
    if (noMembers) return parts.map(({ sql, params }) => ({ sql: `${sql} AND ${type} <> '${memberType}'`, params }));
    if (members === undefined) return parts;
    const also = `(${type} <> '${memberType}' OR ${dialect.anyOf(key)})`;
    return parts.map(({ sql, params }) => ({ sql: `${sql} AND ${also}`, params: [...params, members] }));
  }
  if (members === undefined && !noMembers) return [{ sql: '1 = 1', params: [] }];
  const others = ['<', '>'].map((is) => ({ sql: `${type} ${is} '${memberType}'`, params: [] }));
  if (noMembers || members === undefined || members.length === 0) return others;
  return [...others, { sql: `${type} = '${memberType}' AND ${dialect.anyOf(key)}`, params: [members] }];
}

interface Columns {
  readonly type: string;
  readonly key: string;
}

function typesSql(types: NonNullable<StateFilter['types']>, dialect: Dialect, columns: Columns): FilterSql[] {
  const whole = new Set(types.flatMap(([name, stateKey]) => (stateKey === undefined ? [name] : [])));
  const named = types.flatMap(([name, stateKey]) =>
    stateKey === undefined || whole.has(name) ? [] : [[name, stateKey] as const],
  );
  const parts: FilterSql[] = [];
  if (whole.size > 0) parts.push({ sql: dialect.anyOf(columns.type), params: [[...whole]] });
  if (named.length > 0) parts.push(namedSql(named, dialect, columns));
  return parts.length > 0 ? parts : [{ sql: '1 = 0', params: [] }];
}

function namedSql(named: readonly (readonly [string, string])[], dialect: Dialect, { type, key }: Columns): FilterSql {
  const { anyOf } = dialect;
  const byType = Map.groupBy(named, ([name]) => name);
  const keys = new Set(named.map(([, stateKey]) => stateKey));
  if (byType.size > 1 && byType.size * keys.size > maxSearches) {
    return dialect.name === 'sqlite'
      ? {
          sql: `(${type}, ${key}) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))`,
          params: [JSON.stringify(named)],
        }
      : {
          sql: `(${type}, ${key}) IN (SELECT * FROM unnest(CAST(? AS TEXT[]), CAST(? AS TEXT[])))`,
          params: [named.map(([name]) => name), named.map(([, stateKey]) => stateKey)],
        };
  }
  const sql = [...byType.keys()].map(() => `(${type} = ? AND ${anyOf(key)})`).join(' OR ');
  const params = [...byType].flatMap(([name, some]) => [name, some.map(([, stateKey]) => stateKey)]);
  if (byType.size < 2) return { sql, params };
  // Said twice, so that the index is searched by type and key.
  return { sql: `${anyOf(type)} AND ${anyOf(key)} AND (${sql})`, params: [[...byType.keys()], [...keys], ...params] };
}
