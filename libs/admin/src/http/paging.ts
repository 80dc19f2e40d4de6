import { param, type QueryParam } from '@rookery/http';

/** Most entries of one page of the admin API: what asks for more gets this many and a token for the rest. */
export const maxPageSize = 10_000;

/** Which part of a list is wanted. */
export interface Page {
  /** How many entries to leave out. */
  readonly from: number;
  /** How many entries to give, at most {@link maxPageSize}. */
  readonly limit: number;
}

/** `from` and `limit` of a list of the admin API. */
export const pageParams = {
  from: param.integer('How many entries to leave out: a token of an earlier answer.', { otherwise: 0 }),
  limit: param.integer(`How many entries at most; never more than ${maxPageSize}.`, { otherwise: 100 }),
};

/** The page that the parameters ask for. */
export const pageOf = ({ from, limit }: Page): Page => ({ from, limit: Math.min(limit, maxPageSize) });

/** Where the next page begins; `undefined` when nothing is left. A page of nothing has no next one. */
export function nextFrom(page: Page, total: number): number | undefined {
  const next = page.from + page.limit;
  return page.limit > 0 && next < total ? next : undefined;
}

/** `dir` of a list of the admin API. */
export const direction = param.choice('Forwards (`f`) or backwards (`b`).', ['f', 'b'], { otherwise: 'f' });

/** A text to search for; an empty one is a mistake, as everything would have it. */
export const searchTerm = (description: string): QueryParam<string | undefined> =>
  param.string(description, { maxLength: 255, nonEmpty: true });
