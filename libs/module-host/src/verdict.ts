import { MatrixError } from '@rookery/matrix-types';

/** Every module that was asked let it pass. */
export interface Allowed {
  readonly allowed: true;
  /** Of a registration: make the account, and let its events go nowhere. */
  readonly shadowBan: boolean;
}

/** A module refused, or failed while its entry says `on_error: deny`. */
export interface Refused {
  readonly allowed: false;
  /**
   * `refuse`: tell the caller. `dropSilently`: answer as if accepted and do nothing. `softFail`: store, and neither show nor
   * build upon; for an event of a local client the same as `dropSilently`.
   */
  readonly effect: 'refuse' | 'dropSilently' | 'softFail';
  readonly status: number;
  readonly errcode: string;
  /** For the client. */
  readonly message: string;
  readonly extra: Readonly<Record<string, unknown>>;
  /** Name of the module, for the log. */
  readonly module: string;
  /** Whether the module failed, as opposed to having refused. Then the status is 500. */
  readonly failed: boolean;
}

/** What a gate says. */
export type GateVerdict = Allowed | Refused;

/** What a transform says: the value as the modules left it, or a refusal. */
export type TransformVerdict<T> = { readonly allowed: true; readonly value: T } | Refused;

export const ALLOWED: Allowed = Object.freeze({ allowed: true, shadowBan: false });

/** A refusal as the error that the client gets. */
export function refusalError(refusal: Refused): MatrixError {
  return MatrixError.passedOn(refusal.status, refusal.errcode, refusal.message, refusal.extra);
}

/** Throws a refusal as a `MatrixError`; for gates where nothing but refusing makes sense. */
export function assertAllowed(verdict: GateVerdict): asserts verdict is Allowed {
  if (!verdict.allowed) throw refusalError(verdict);
}
