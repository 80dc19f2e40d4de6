/** "Nothing to object to": the answer of a check that lets something pass. */
export const NOT_SPAM = 'NOT_SPAM' as const;

/**
 * The server answers as if it had accepted, and does nothing: an event goes nowhere, an invite is never delivered.
 * The sender cannot tell.
 */
export const DROP_SILENTLY = 'DROP_SILENTLY' as const;

/**
 * The event is stored, but neither shown to anybody nor built upon. For an event of a local client the answer looks like
 * success, as with {@link DROP_SILENTLY}.
 * @spec server-server-api#soft-failure
 */
export const SOFT_FAIL = 'SOFT_FAIL' as const;

/** Answer of a presence router: every user. */
export const PRESENCE_ALL_USERS = 'PRESENCE_ALL_USERS' as const;

/**
 * Error codes that a check may answer with. Any other Matrix error code, namespaced ones included, may be given as a string.
 * @spec client-server-api#standard-error-response
 */
export const Codes = {
  UNRECOGNIZED: 'M_UNRECOGNIZED',
  UNAUTHORIZED: 'M_UNAUTHORIZED',
  FORBIDDEN: 'M_FORBIDDEN',
  BAD_JSON: 'M_BAD_JSON',
  NOT_JSON: 'M_NOT_JSON',
  USER_IN_USE: 'M_USER_IN_USE',
  ROOM_IN_USE: 'M_ROOM_IN_USE',
  BAD_PAGINATION: 'M_BAD_PAGINATION',
  BAD_STATE: 'M_BAD_STATE',
  UNKNOWN: 'M_UNKNOWN',
  NOT_FOUND: 'M_NOT_FOUND',
  MISSING_TOKEN: 'M_MISSING_TOKEN',
  UNKNOWN_TOKEN: 'M_UNKNOWN_TOKEN',
  GUEST_ACCESS_FORBIDDEN: 'M_GUEST_ACCESS_FORBIDDEN',
  LIMIT_EXCEEDED: 'M_LIMIT_EXCEEDED',
  CAPTCHA_NEEDED: 'M_CAPTCHA_NEEDED',
  CAPTCHA_INVALID: 'M_CAPTCHA_INVALID',
  MISSING_PARAM: 'M_MISSING_PARAM',
  INVALID_PARAM: 'M_INVALID_PARAM',
  TOO_LARGE: 'M_TOO_LARGE',
  EXCLUSIVE: 'M_EXCLUSIVE',
  THREEPID_AUTH_FAILED: 'M_THREEPID_AUTH_FAILED',
  THREEPID_IN_USE: 'M_THREEPID_IN_USE',
  THREEPID_NOT_FOUND: 'M_THREEPID_NOT_FOUND',
  THREEPID_DENIED: 'M_THREEPID_DENIED',
  THREEPID_MEDIUM_NOT_SUPPORTED: 'M_THREEPID_MEDIUM_NOT_SUPPORTED',
  INVALID_USERNAME: 'M_INVALID_USERNAME',
  SERVER_NOT_TRUSTED: 'M_SERVER_NOT_TRUSTED',
  CONSENT_NOT_GIVEN: 'M_CONSENT_NOT_GIVEN',
  CANNOT_LEAVE_SERVER_NOTICE_ROOM: 'M_CANNOT_LEAVE_SERVER_NOTICE_ROOM',
  RESOURCE_LIMIT_EXCEEDED: 'M_RESOURCE_LIMIT_EXCEEDED',
  UNSUPPORTED_ROOM_VERSION: 'M_UNSUPPORTED_ROOM_VERSION',
  INCOMPATIBLE_ROOM_VERSION: 'M_INCOMPATIBLE_ROOM_VERSION',
  WRONG_ROOM_KEYS_VERSION: 'M_WRONG_ROOM_KEYS_VERSION',
  EXPIRED_ACCOUNT: 'ORG_MATRIX_EXPIRED_ACCOUNT',
  WEAK_PASSWORD: 'M_WEAK_PASSWORD',
  INVALID_SIGNATURE: 'M_INVALID_SIGNATURE',
  USER_DEACTIVATED: 'M_USER_DEACTIVATED',
  USER_LOCKED: 'M_USER_LOCKED',
  USER_SUSPENDED: 'M_USER_SUSPENDED',
  BAD_ALIAS: 'M_BAD_ALIAS',
  UNABLE_TO_AUTHORISE_JOIN: 'M_UNABLE_TO_AUTHORISE_JOIN',
  UNABLE_TO_GRANT_JOIN: 'M_UNABLE_TO_GRANT_JOIN',
  INVITE_BLOCKED: 'M_INVITE_BLOCKED',
} as const;

/** One of the error codes of {@link Codes}. */
export type Codes = (typeof Codes)[keyof typeof Codes];

/** A refusal with words. What is left out gets a default: status 403, a neutral message. */
export interface Refusal {
  /** Matrix error code; default `M_FORBIDDEN`. */
  readonly errcode?: Codes | (string & {});
  /** Shown to the user's client; at most 1,000 characters are kept. */
  readonly message?: string;
  /** HTTP status, 400 to 499; default 403. */
  readonly status?: number;
  /** Further keys of the error body; `errcode` and `error` cannot be replaced. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** Answer of a spam check: let it pass, a bare error code, or a refusal with words. */
export type SpamVerdict = typeof NOT_SPAM | Codes | Refusal;

/** Answer of a spam check on events and invites, which may also be swallowed without a sign. */
export type EventVerdict = SpamVerdict | typeof DROP_SILENTLY | typeof SOFT_FAIL;

/** Answer of a permission check: `true` lets it pass; `false` refuses with 403 `M_FORBIDDEN`. */
export type Permission = boolean | Refusal;

/** What becomes of a registration: accepted, refused, or accepted with an account whose events go nowhere. */
export type RegistrationBehavior = 'allow' | 'deny' | 'shadowBan';
