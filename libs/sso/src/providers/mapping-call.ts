import { MatrixError } from '@rookery/matrix-types';
import { RedirectError } from '@rookery/module-api';
import type { Clock } from '@rookery/platform';
import { SsoError } from '../common/sso-error.js';

const limitMs = 20_000;

/** The answer to a question, which may be a module's to give. @throws Error when there is none in time */
export async function within<T>(clock: Clock, question: () => Promise<T> | T): Promise<T> {
  const answered = new AbortController();
  try {
    return await Promise.race([
      Promise.resolve().then(question),
      clock.sleep(limitMs, answered.signal).then((): never => {
        throw new Error(`There was no answer within ${limitMs} ms`);
      }),
    ]);
  } finally {
    answered.abort();
  }
}

/**
 * Asks a mapping provider, which may be a module's.
 * @throws RedirectError where the module sends the browser
 * @throws SsoError `unauthorised` or `mapping_error`; the module's own words where it threw a MatrixError
 */
export async function askMapping<T>(clock: Clock, question: () => Promise<T> | T): Promise<T> {
  try {
    return await within(clock, question);
  } catch (error) {
    if (RedirectError.is(error) || error instanceof SsoError) throw error;
    if (MatrixError.is(error) && error.status < 500)
      throw error.status === 403 ? SsoError.from(error) : SsoError.mapping(error.message, error);
    throw SsoError.mapping('What the sign-in provider said about you is of no use here.', error);
  }
}

/** A stable id as a provider gave it. @throws SsoError `mapping_error`: everybody without one would be the same person */
export function checkRemoteId(id: unknown): string {
  if (typeof id !== 'string' || id === '' || id.length > 1_024 || id.includes('\0') || !id.isWellFormed())
    throw SsoError.mapping('The sign-in provider did not say who you are.');
  return id;
}
