import { type InboundRequest, queryChoice, queryInteger, queryString } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';

type WithQuery = Pick<InboundRequest, 'query'>;

/** Most entries of one page of the admin API: what asks for more gets this many and a token for the rest. */
export const maxPageSize = 10_000;

/** Which part of a list is wanted. */
export interface Page {
  /** How many entries to leave out. */
  readonly from: number;
  /** How many entries to give, at most {@link maxPageSize}. */
  readonly limit: number;
}

/**
 * `from` (0) and `limit` (100) of a list of the admin API.
 * @throws MatrixError 400 `M_INVALID_PARAM` when one is negative or not an integer
 */
export function pageOf(request: WithQuery): Page {
  const limit = queryInteger(request, 'limit') ?? 100;
  return { from: queryInteger(request, 'from') ?? 0, limit: Math.min(limit, maxPageSize) };
}

/** Where the next page begins; `undefined` when nothing is left. A page of nothing has no next one. */
export function nextFrom(page: Page, total: number): number | undefined {
  const next = page.from + page.limit;
  return page.limit > 0 && next < total ? next : undefined;
}

/**
 * `dir`: forwards or backwards.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function directionOf(request: WithQuery, fallback: 'f' | 'b' = 'f'): 'f' | 'b' {
  return queryChoice(request, 'dir', ['f', 'b']) ?? fallback;
}

/**
 * A text to search for.
 * @returns `undefined` when the parameter is absent
 * @throws MatrixError 400 `M_INVALID_PARAM` when it is empty or longer than 255 characters
 */
export function searchTerm(request: WithQuery, name: string): string | undefined {
  const term = queryString(request, name);
  if (term === undefined) return undefined;
  if (term === '') throw MatrixError.invalidParam(`Query parameter '${name}' may not be empty`);
  if (term.length > 255) throw MatrixError.invalidParam(`Query parameter '${name}' is too long`);
  return term;
}
