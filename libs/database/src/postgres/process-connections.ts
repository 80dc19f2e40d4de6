/** The class of the advisory locks by which the connections of a process are known, each schema its own. */
export const processLockClass = "hashtext('processes of ' || coalesce(current_schema(), ''))";
/** The class of those that the connections hold on which processes give their sign of life, each schema its own. */
export const presenceLockClass = "hashtext('presence of processes of ' || coalesce(current_schema(), ''))";
/**
 * What each connection of a process does first: it can be found by the number from then on, and has no business when the number
 * is worth nothing any more. In this order: whoever fences ends the connections that have the lock, and later ones see the mark.
 */
export const joinConnection = (number: number): readonly [lock: string, check: string] => [
  `SELECT pg_advisory_lock_shared(${processLockClass}, ${number})`,
  `SELECT 1 FROM processes WHERE number = ${number} AND NOT fenced`,
];
