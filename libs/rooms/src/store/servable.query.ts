/**
 * The condition under which an event of `events` has a place in the timeline that clients see.
 * @param prefix the alias of `events` with its dot, or nothing
 */
export const servableSql = (prefix: string): string =>
  `${prefix}outlier = FALSE AND ${prefix}soft_failed = FALSE AND ${prefix}rejection_reason IS NULL`;
