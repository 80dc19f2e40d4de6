import { errorOfOther, MatrixError } from '@rookery/matrix-types';

/**
 * Why a request to another server brought nothing.
 *
 * - `denied`: the settings do not allow that server, or it is this one
 * - `backing_off`: it could not be reached lately, and nobody tries before its pause is over
 * - `busy`: too many requests to it wait already
 * - `unreachable`: no name, no address or no connection; `blocked`: only addresses that requests may not reach
 * - `certificate`: it showed a certificate that is not to be trusted
 * - `timeout`, `aborted`: it took too long; whoever asked gave up
 * - `too_large`, `bad_response`: the answer is larger than allowed, or not what the protocol wants
 * - `status`: it answered with an error
 */
export type FederationFailure =
  | 'denied'
  | 'backing_off'
  | 'busy'
  | 'unreachable'
  | 'blocked'
  | 'certificate'
  | 'timeout'
  | 'aborted'
  | 'too_large'
  | 'bad_response'
  | 'status';

const laterReasons: ReadonlySet<FederationFailure> = new Set([
  'backing_off',
  'busy',
  'unreachable',
  'certificate',
  'timeout',
]);

/** What is known of a failure beside its reason. */
export interface FederationFailureDetails {
  /** Of the answer, for `status`. */
  readonly status?: number | undefined;
  /** Of the answer, where it had one. */
  readonly errcode?: string | undefined;
  /** When the other server wants to be asked again, milliseconds from now. */
  readonly retryAfterMs?: number | undefined;
  /** The answer's JSON, for `status`. */
  readonly body?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/** A request to another server failed. Messages name the server, never a query or a body. */
export class FederationRequestError extends Error {
  override readonly name = 'FederationRequestError';
  readonly status: number | undefined;
  readonly errcode: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly body: Readonly<Record<string, unknown>> | undefined;

  constructor(
    readonly destination: string,
    readonly reason: FederationFailure,
    message: string,
    details: FederationFailureDetails = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.status = details.status;
    this.errcode = details.errcode;
    this.retryAfterMs = details.retryAfterMs;
    this.body = details.body;
  }

  /** Whether the same request may succeed later. */
  get retryable(): boolean {
    if (this.status !== undefined) return this.status >= 500 || this.status === 429;
    return laterReasons.has(this.reason);
  }

  /** Whether the other server shows no life: its pause grows. */
  get isDown(): boolean {
    if (this.status !== undefined) return this.status >= 500;
    return this.reason === 'unreachable' || this.reason === 'certificate' || this.reason === 'timeout';
  }

  /**
   * The failure as a client may see it: a refusal of the other server with its own code and status unless the client would take
   * it for this server's ({@link errorOfOther}), everything else as 502, too long as 504.
   */
  toMatrixError(): MatrixError {
    const { status, errcode } = this;
    if (this.reason === 'denied') return MatrixError.forbidden(this.message);
    const text = this.body?.['error'];
    const message = typeof text === 'string' ? text.slice(0, 1_000) : this.message;
    const refusal = status === undefined ? undefined : errorOfOther(status, errcode, message);
    if (refusal) return refusal;
    return this.reason === 'timeout' ? MatrixError.gatewayTimeout(this.message) : MatrixError.badGateway(this.message);
  }
}
