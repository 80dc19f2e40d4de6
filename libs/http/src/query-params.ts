import { MatrixError } from '@rookery/matrix-types';
import type { InboundRequest } from './access.js';

type WithQuery = Pick<InboundRequest, 'query'>;

/** Bounds of an integer in the query. */
export interface IntegerBounds {
  /** Smallest value; a smaller one is refused, or raised to it with `clamp`. Default 0. */
  readonly min?: number;
  /** Largest value; a larger one is refused, or lowered to it with `clamp`. */
  readonly max?: number;
  /** Move a value that is out of bounds to the nearest bound: page sizes. A negative one is refused all the same. */
  readonly clamp?: boolean;
}

/**
 * One value of the query string; `undefined` when absent or empty, which means the same.
 * @throws MatrixError 400 `M_INVALID_PARAM` when it is given more than once
 */
export function queryString(request: WithQuery, name: string): string | undefined {
  const value = request.query[name];
  if (value === undefined || typeof value === 'string') return value === '' ? undefined : value;
  throw MatrixError.invalidParam(`Query parameter '${name}' may be given once only`);
}

/**
 * One value that must be there.
 * @throws MatrixError 400 `M_MISSING_PARAM`
 */
export function requiredQueryString(request: WithQuery, name: string): string {
  const value = queryString(request, name);
  if (value === undefined) throw MatrixError.missingParam(`Missing query parameter '${name}'`);
  return value;
}

/** All values of a parameter that may be repeated (`via`, `server_name`), in order; empty when absent. Empty ones do not count. */
export function queryStrings(request: WithQuery, name: string): readonly string[] {
  const value = request.query[name];
  return [value ?? []].flat().filter((one) => one !== '');
}

/**
 * One of a few words.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function queryChoice<const T extends string>(
  request: WithQuery,
  name: string,
  choices: readonly T[],
): T | undefined {
  const value = queryString(request, name);
  if (value === undefined) return undefined;
  const found = choices.find((choice) => choice === value);
  if (found === undefined)
    throw MatrixError.invalidParam(`Query parameter '${name}' must be one of ${choices.join(', ')}`);
  return found;
}

/**
 * `true` or `false`.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function queryBoolean(request: WithQuery, name: string): boolean | undefined {
  const value = queryChoice(request, name, ['true', 'false']);
  return value === undefined ? undefined : value === 'true';
}

/**
 * A whole number of at most fifteen digits.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function queryInteger(request: WithQuery, name: string, bounds: IntegerBounds = {}): number | undefined {
  const text = queryString(request, name);
  if (text === undefined) return undefined;
  if (!/^-?\d{1,15}$/.test(text)) throw MatrixError.invalidParam(`Query parameter '${name}' must be an integer`);
  const value = Number(text);
  const { min = 0, max = Number.MAX_SAFE_INTEGER, clamp = false } = bounds;
  if (value >= min && value <= max) return value;
  // A number of less than nothing is a mistake, and not a wish for as few as there can be.
  if (clamp && value >= 0) return value < min ? min : max;
  throw MatrixError.invalidParam(
    `Query parameter '${name}' must be ${value < min ? `at least ${min}` : `at most ${max}`}`,
  );
}
