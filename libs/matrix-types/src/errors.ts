import type { AnyErrcode } from './errcodes.js';
import { type ErrorRow, errorTable } from './error-table.js';

type Extra = Readonly<Record<string, unknown>>;

/** How a row is made into an error: rows with a text of their own need none, those that say when to come again need that. */
type NamedConstructor<Row extends ErrorRow> = Row extends { readonly retries: true }
  ? (retryAfterMs: number, message?: string) => MatrixError
  : Row extends { readonly text: string }
    ? (message?: string, extra?: Extra) => MatrixError
    : (message: string, extra?: Extra) => MatrixError;

/** A constructor for each kind of error, as docs/errors.md lists them. */
export type NamedErrors = {
  readonly [Name in keyof typeof errorTable]: NamedConstructor<(typeof errorTable)[Name]>;
};

/** `Error`, and as statics what {@link errorTable} names. */
const ErrorWithNames: ErrorConstructor & NamedErrors = class extends Error {} as ErrorConstructor & NamedErrors;

/**
 * The only error that a client sees: an HTTP status and a Matrix error body. For each kind there is a named constructor that knows
 * status and code: `MatrixError.forbidden('Not yours')`, `MatrixError.notFound()`, `MatrixError.limitExceeded(500)`; docs/errors.md
 * lists them all.
 * @spec client-server-api#standard-error-response
 */
export class MatrixError extends ErrorWithNames {
  /** Brand, since a module may carry its own copy of this class. */
  readonly $$type = 'MatrixError';

  /**
   * For what has no name: errors of a module's own.
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

  /** What somebody else decided (a module, another server, another process of this one), handed on as it came. */
  static passedOn(status: number, errcode: AnyErrcode, message: string, extra?: Extra): MatrixError {
    return new MatrixError(status, errcode, message, extra);
  }
}

for (const [name, row] of Object.entries<ErrorRow>(errorTable)) {
  const { status, errcode, text = errcode, extra: always } = row;
  const make = (message = text, extra?: Extra): MatrixError =>
    new MatrixError(status, errcode, message, always ? { ...always, ...extra } : extra);
  const value = row.retries
    ? (retryAfterMs: number, message?: string) => make(message, { retry_after_ms: Math.ceil(retryAfterMs) })
    : make;
  Object.defineProperty(ErrorWithNames, name, { value });
}
