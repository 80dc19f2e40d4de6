import { brokenTexts, errorCode, errorText } from '../errors.js';

// Serialisation failure, deadlock.
const conflicts = new Set(['40001', '40P01']);
// The class 08 of SQLSTATE, the server going down or starting up or taking no more connections just now, and the system's words
// for a broken socket or a name that cannot be looked up.
const brokenConnections = new Set([
  '08000',
  '08001',
  '08003',
  '08004',
  '08006',
  '57P01',
  '57P02',
  '57P03',
  '53300',
  'ECONNRESET',
  'ECONNREFUSED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
]);

/** The transaction lost a race with another one and may be tried again at once. */
export function isConflict(error: unknown): boolean {
  return conflicts.has(errorCode(error) ?? '');
}

/** The connection is gone; the statement may or may not have been done. */
export function isBrokenConnection(error: unknown): boolean {
  return brokenConnections.has(errorCode(error) ?? '') || brokenTexts.test(errorText(error));
}

/** A plan that the connection keeps no longer fits the table, because the schema changed. A new connection has none. */
export function isStalePlan(error: unknown): boolean {
  return errorCode(error) === '0A000' && errorText(error).includes('cached plan');
}
