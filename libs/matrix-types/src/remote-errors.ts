import type { AnyErrcode } from './errcodes.js';
import { MatrixError } from './errors.js';

/** What a code looks like, bounded in length. */
const codePattern = /^[A-Za-z][A-Za-z0-9_.-]{0,254}$/;
/**
 * Codes by which a server ends or holds up the session that a request came with, and by which it says what it can do itself:
 * clients that are told `M_UNRECOGNIZED` do without the endpoint from then on.
 */
const aboutTheServer: ReadonlySet<string> = new Set([
  'M_UNKNOWN_TOKEN',
  'M_MISSING_TOKEN',
  'M_UNAUTHORIZED',
  'M_USER_DEACTIVATED',
  'M_USER_LOCKED',
  'M_USER_SUSPENDED',
  'ORG_MATRIX_EXPIRED_ACCOUNT',
  'M_GUEST_ACCESS_FORBIDDEN',
  'M_CONSENT_NOT_GIVEN',
  'M_UNRECOGNIZED',
  'M_LIMIT_EXCEEDED',
]);

/**
 * An error that another server gave: its status and code, unless they would be taken for what this server says of itself or of the
 * client's own session, as 401, 429 and `M_UNKNOWN_TOKEN` are. Then, and where there is no code, `undefined`.
 * @param status of the other server's answer
 * @param errcode as it came
 * @param message for people
 */
export function errorOfOther(status: number, errcode: unknown, message: string): MatrixError | undefined {
  if (status < 400 || status >= 500 || status === 401 || status === 429 || typeof errcode !== 'string')
    return undefined;
  if (!codePattern.test(errcode) || aboutTheServer.has(errcode)) return undefined;
  return MatrixError.passedOn(status, errcode as AnyErrcode, message);
}
