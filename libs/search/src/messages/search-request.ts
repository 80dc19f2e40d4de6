import { type EventFilter, isJsonObject, type JsonObject, MatrixError, parseEventFilter } from '@rookery/matrix-types';
import { type SearchKey, searchKeys } from './searchable.js';

/** By what results are grouped. */
export type GroupKey = 'room_id' | 'sender';

/** How much of what surrounds a result is wanted. */
export interface ContextRequest {
  readonly before: number;
  readonly after: number;
  readonly profiles: boolean;
}

/** What a client searches for. @spec client-server-api#post_matrixclientv3search */
export interface SearchRequest {
  readonly term: string;
  readonly keys: readonly SearchKey[];
  readonly filter: EventFilter;
  readonly limit: number;
  readonly order: 'recent' | 'rank';
  readonly context: ContextRequest | undefined;
  readonly includeState: boolean;
  readonly groupBy: readonly GroupKey[];
}

const maxTermLength = 1_000;
const defaultLimit = 10;
const maxLimit = 100;
const defaultContext = 5;
const maxContext = 20;

/** @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`, `M_BAD_JSON` */
export function parseSearchRequest(criteria: JsonObject): SearchRequest {
  const { search_term: term, keys = searchKeys, order_by: order = 'rank' } = criteria;
  if (term === undefined) throw MatrixError.missingParam("Missing parameter 'room_events.search_term'");
  if (typeof term !== 'string' || term.length > maxTermLength)
    throw MatrixError.invalidParam(`'search_term' must be a string of at most ${maxTermLength} characters`);
  if (!Array.isArray(keys)) throw MatrixError.badJson("'keys' must be a list");
  const wanted = searchKeys.filter((key) => keys.includes(key));
  if (wanted.length !== new Set(keys).size) throw MatrixError.invalidParam(`'keys' are ${searchKeys.join(', ')}`);
  if (order !== 'recent' && order !== 'rank') throw MatrixError.invalidParam("'order_by' is 'recent' or 'rank'");
  const filter = parseEventFilter(criteria['filter'], 'filter');
  return {
    term,
    keys: wanted,
    filter,
    limit: Math.min(Math.max(filter.limit ?? defaultLimit, 1), maxLimit),
    order,
    context: contextOf(criteria['event_context']),
    includeState: criteria['include_state'] === true,
    groupBy: groupsOf(criteria['groupings']),
  };
}

function contextOf(value: unknown): ContextRequest | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isJsonObject(value)) throw MatrixError.badJson("'event_context' must be an object");
  const size = (name: string): number => {
    const given = value[name] ?? defaultContext;
    if (!Number.isSafeInteger(given) || (given as number) < 0)
      throw MatrixError.badJson(`'event_context.${name}' must be a positive integer`);
    return Math.min(given as number, maxContext);
  };
  return { before: size('before_limit'), after: size('after_limit'), profiles: value['include_profile'] === true };
}

function groupsOf(value: unknown): GroupKey[] {
  if (value === undefined || value === null) return [];
  const list = isJsonObject(value) ? (value['group_by'] ?? []) : undefined;
  if (!Array.isArray(list)) throw MatrixError.badJson("'groupings.group_by' must be a list");
  const keys = list.map((entry: unknown) => (isJsonObject(entry) ? entry['key'] : undefined));
  const known = (['room_id', 'sender'] as const).filter((key) => keys.includes(key));
  if (known.length !== new Set(keys).size) throw MatrixError.invalidParam("Groups are 'room_id' and 'sender'");
  return known;
}

/** One of the groups of an answer. */
export interface SearchGroup {
  readonly key: GroupKey;
  readonly value: string;
}

/** Where a search goes on, and in which group alone. */
export interface SearchPlace {
  /** For the order `recent`: what was shown last. */
  readonly before?: { readonly ts: number; readonly stream: number };
  /** For the order `rank`: how many were looked at, or passed over as of other groups. */
  readonly offset?: number;
  readonly group?: SearchGroup;
}

/** A token for clients. */
export function formatPlace({ before, offset, group }: SearchPlace): string {
  const parts = [before ? [before.ts, before.stream] : (offset ?? 0), ...(group ? [group.key, group.value] : [])];
  return Buffer.from(JSON.stringify(parts)).toString('base64url');
}

const maxOffset = 10_000;

/** @throws MatrixError 400 `M_INVALID_PARAM` for a token that is none, or one of the other order */
export function parsePlace(token: string, order: SearchRequest['order']): SearchPlace {
  const refused = MatrixError.invalidParam("'next_batch' is not a token of this search");
  let parts: unknown;
  try {
    parts = JSON.parse(Buffer.from(token.slice(0, 2_000), 'base64url').toString('utf8'));
  } catch {
    throw refused;
  }
  if (!Array.isArray(parts)) throw refused;
  const [at, key, value] = parts as unknown[];
  const group =
    (key === 'room_id' || key === 'sender') && typeof value === 'string' ? { group: { key, value } as const } : {};
  if (order === 'rank') {
    if (!Number.isSafeInteger(at) || (at as number) < 0 || (at as number) > maxOffset) throw refused;
    return { offset: at as number, ...group };
  }
  if (!Array.isArray(at) || at.length !== 2 || !at.every(Number.isSafeInteger)) throw refused;
  return { before: { ts: at[0] as number, stream: at[1] as number }, ...group };
}
