import type { AnyErrcode } from './errcodes.js';

/**
 * The only error that a client sees: an HTTP status and a Matrix error body.
 * @spec client-server-api#standard-error-response
 */
export class MatrixError extends Error {
  /** Brand, since a module may carry its own copy of this class. */
  readonly $$type = 'MatrixError';

  /**
   * @param status HTTP status code
   * @param errcode for example `M_FORBIDDEN`
   * @param message for people; shown to the client as `error`
   * @param extra further keys of the body: `retry_after_ms`, `soft_logout`, `flows`...
   */
  constructor(
    readonly status: number,
    readonly errcode: AnyErrcode,
    message: string,
    readonly extra: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
    this.name = 'MatrixError';
  }

  /** The body that goes on the wire. */
  toBody(): Record<string, unknown> {
    return { ...this.extra, errcode: this.errcode, error: this.message };
  }

  static is(value: unknown): value is MatrixError {
    return typeof value === 'object' && value !== null && (value as { $$type?: unknown }).$$type === 'MatrixError';
  }

  /** 403 `M_FORBIDDEN` */
  static forbidden(message: string): MatrixError {
    return new MatrixError(403, 'M_FORBIDDEN', message);
  }
  /** 404 `M_NOT_FOUND` */
  static notFound(message = 'Not found'): MatrixError {
    return new MatrixError(404, 'M_NOT_FOUND', message);
  }
  /** 404 `M_UNRECOGNIZED`: no such endpoint */
  static unrecognized(message = 'Unrecognized request'): MatrixError {
    return new MatrixError(404, 'M_UNRECOGNIZED', message);
  }
  /** 400 `M_BAD_JSON`: JSON of the wrong shape */
  static badJson(message: string): MatrixError {
    return new MatrixError(400, 'M_BAD_JSON', message);
  }
  /** 400 `M_MISSING_PARAM` */
  static missingParam(message: string): MatrixError {
    return new MatrixError(400, 'M_MISSING_PARAM', message);
  }
  /** 400 `M_INVALID_PARAM` */
  static invalidParam(message: string): MatrixError {
    return new MatrixError(400, 'M_INVALID_PARAM', message);
  }
  /** 413 `M_TOO_LARGE` */
  static tooLarge(message: string): MatrixError {
    return new MatrixError(413, 'M_TOO_LARGE', message);
  }
  /** 429 `M_LIMIT_EXCEEDED`; the HTTP layer adds `Retry-After`. */
  static limitExceeded(retryAfterMs: number): MatrixError {
    return new MatrixError(429, 'M_LIMIT_EXCEEDED', 'Too many requests', { retry_after_ms: Math.ceil(retryAfterMs) });
  }
}
