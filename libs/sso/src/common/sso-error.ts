import { MatrixError } from '@rookery/matrix-types';

/**
 * Why a sign-on ends without a login, for the page `sso_error.html`. Everything in it may be shown to whoever sits at the
 * browser.
 */
export class SsoError extends Error {
  /**
   * @param code short hint for administrators: `invalid_session`, `unauthorised`, or what the provider said
   * @param description for people
   * @param status of the page
   */
  constructor(
    readonly code: string,
    readonly description: string,
    readonly status = 400,
    options?: ErrorOptions,
  ) {
    super(description, options);
    this.name = 'SsoError';
  }

  /** The provider cannot be asked. */
  static unavailable(cause: unknown): SsoError {
    return new SsoError('provider_unavailable', 'The sign-in provider cannot be reached. Try again later.', 502, {
      cause,
    });
  }

  /** The provider told nothing that an account can be made of. */
  static mapping(description: string, cause?: unknown): SsoError {
    return new SsoError('mapping_error', description, 400, { cause });
  }

  /** What refuses an account says why, in its own words. */
  static from(error: MatrixError): SsoError {
    return new SsoError(error.status === 403 ? 'unauthorised' : error.errcode, error.message, error.status, {
      cause: error,
    });
  }
}

const maxCodeLength = 100;
const maxDescriptionLength = 500;

/** An error in the words of a provider: shown, but not at any length. */
export function providerError(code: string, description: string | undefined): SsoError {
  return new SsoError(
    code.slice(0, maxCodeLength).toWellFormed() || 'invalid_response',
    (description ?? '').slice(0, maxDescriptionLength).toWellFormed(),
  );
}

/** A browser that began nothing, something else, or too long ago. */
export const lostSession = (code: 'missing_session' | 'invalid_session' | 'mismatching_session'): SsoError =>
  new SsoError(code, 'Your sign-in was not found. It took too long, was finished before, or cookies are blocked.');
