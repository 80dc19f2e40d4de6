import {
  type CallbackName,
  type Codes,
  DROP_SILENTLY,
  type NamesOfKind,
  NOT_SPAM,
  type Refusal,
  SOFT_FAIL,
} from '@rookery/module-api';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';
import type { Refused } from './verdict.js';

/** The part of a refusal that does not depend on the module. */
export type RefusalDetails = Omit<Refused, 'allowed' | 'module' | 'failed'>;

/** What a gate's answer means. `deprecated` says what to write in place of an old form of answer. */
export type GateAnswer = (
  | { readonly kind: 'pass' }
  | { readonly kind: 'shadowBan' }
  | { readonly kind: 'refuse'; readonly refusal: RefusalDetails }
  | { readonly kind: 'invalid'; readonly expected: string }
) & { readonly deprecated?: string };

const maxMessageLength = 1000;
/** A bare string that is an error code, as opposed to the text of an old-style answer. */
const bareCode = /^[A-Z0-9]+(?:[._][A-Z0-9]+)+$/;
const anyCode = /^[\w.-]{1,255}$/;

const PASS: GateAnswer = Object.freeze({ kind: 'pass' });
const invalid = (expected: string): GateAnswer => ({ kind: 'invalid', expected });

interface Defaults {
  readonly status: number;
  readonly errcode: string;
  readonly message: string;
}
const forbidden: Defaults = { status: 403, errcode: 'M_FORBIDDEN', message: 'This is not allowed on this server' };

const refuse = (defaults: Defaults, details: Partial<RefusalDetails> = {}): GateAnswer => ({
  kind: 'refuse',
  refusal: { effect: 'refuse', extra: {}, ...defaults, ...details },
});

/** Checks a {@link Refusal} and fills in what it leaves out; `undefined` when it is rubbish. */
export function readRefusal(value: unknown, defaults: Defaults = forbidden): RefusalDetails | undefined {
  if (!isJsonObject(value)) return undefined;
  const { errcode, message, status, extra } = value as Refusal;
  if (errcode !== undefined && (typeof errcode !== 'string' || !anyCode.test(errcode))) return undefined;
  if (message !== undefined && typeof message !== 'string') return undefined;
  if (status !== undefined && !(Number.isInteger(status) && status >= 400 && status <= 499)) return undefined;
  if (extra !== undefined && !isJsonObject(extra)) return undefined;
  return {
    effect: 'refuse',
    status: status ?? defaults.status,
    errcode: errcode ?? defaults.errcode,
    message: (message ?? defaults.message).slice(0, maxMessageLength),
    extra: extra ?? {},
  };
}

/** A `MatrixError` that a module threw on purpose, as a refusal; `undefined` for errors that are the server's fault. */
export function refusalOfError(error: unknown): RefusalDetails | undefined {
  if (!MatrixError.is(error)) return undefined;
  return readRefusal({ errcode: error.errcode, message: error.message, status: error.status, extra: error.extra });
}

interface SpamOptions {
  /** Whether the answer may also be DROP_SILENTLY or SOFT_FAIL. */
  readonly swallow: boolean;
  /** What an old-style boolean meant: `true` for spam, `true` for allowed, or nothing. */
  readonly legacy: 'trueIsSpam' | 'trueIsAllowed' | 'none';
}

const useCodes = 'return NOT_SPAM, a code of Codes, or { errcode, message }';

function spam(options: SpamOptions): (answer: unknown) => GateAnswer {
  const expected = `NOT_SPAM, a code of Codes${options.swallow ? ', DROP_SILENTLY, SOFT_FAIL' : ''} or { errcode, message }`;
  return (answer) => {
    if (answer === NOT_SPAM) return PASS;
    if (typeof answer === 'string') {
      if (options.swallow && answer === DROP_SILENTLY) return refuse(forbidden, { effect: 'dropSilently' });
      if (options.swallow && answer === SOFT_FAIL) return refuse(forbidden, { effect: 'softFail' });
      if (bareCode.test(answer)) return refuse(forbidden, { errcode: answer });
      if (options.legacy === 'trueIsSpam') {
        return { ...refuse(forbidden, { message: answer.slice(0, maxMessageLength) }), deprecated: useCodes };
      }
      return invalid(expected);
    }
    if (typeof answer === 'boolean') {
      if (options.legacy === 'none') return invalid(expected);
      const passes = answer === (options.legacy === 'trueIsAllowed');
      return { ...(passes ? PASS : refuse(forbidden)), deprecated: useCodes };
    }
    const refusal = readRefusal(answer);
    return refusal ? { kind: 'refuse', refusal } : invalid(expected);
  };
}

function permission(defaults: Defaults = forbidden): (answer: unknown) => GateAnswer {
  return (answer) => {
    if (answer === true) return PASS;
    if (answer === false) return refuse(defaults);
    const refusal = readRefusal(answer, defaults);
    return refusal ? { kind: 'refuse', refusal } : invalid('true, false or { errcode, message }');
  };
}

const event = spam({ swallow: true, legacy: 'trueIsSpam' });
const invite = spam({ swallow: true, legacy: 'trueIsAllowed' });
const action = spam({ swallow: false, legacy: 'trueIsAllowed' });
const strict = spam({ swallow: false, legacy: 'none' });

/** Reads the answer of each gate. */
export const gateAnswers: Readonly<Record<NamesOfKind<'gate'>, (answer: unknown) => GateAnswer>> = {
  checkEventForSpam: event,
  shouldDropFederatedEvent(answer) {
    if (answer === false || answer === '') return PASS;
    if (answer === true) return refuse(forbidden, { effect: 'dropSilently' });
    if (typeof answer !== 'string') return invalid('true, false or a text');
    return refuse(forbidden, { effect: 'dropSilently', message: answer.slice(0, maxMessageLength) });
  },
  userMayJoinRoom: action,
  userMayInvite: invite,
  federatedUserMayInvite: invite,
  userMaySend3pidInvite: action,
  userMayCreateRoom: action,
  userMayCreateRoomAlias: action,
  userMayPublishRoom: action,
  userMaySendStateEvent: strict,
  checkUsernameForSpam(answer) {
    if (answer === false) return PASS;
    return answer === true ? refuse(forbidden) : invalid('true or false');
  },
  checkRegistrationForSpam(answer) {
    if (answer === 'allow') return PASS;
    if (answer === 'shadowBan') return { kind: 'shadowBan' };
    return answer === 'deny' ? refuse(forbidden) : invalid("'allow', 'deny' or 'shadowBan'");
  },
  checkMediaFileForSpam: action,
  checkLoginForSpam: strict,
  checkThreepidCanBeInvited: permission(),
  checkVisibilityCanBeModified: permission(),
  checkCanShutdownRoom: permission(),
  checkCanDeactivateUser: permission(),
  is3pidAllowed: permission({
    status: 403,
    errcode: 'M_THREEPID_DENIED' satisfies Codes,
    message: 'This address is not allowed on this server',
  }),
  isUserAllowedToUploadMediaOfSize: permission({
    status: 413,
    errcode: 'M_TOO_LARGE' satisfies Codes,
    message: 'This upload is larger than you are allowed',
  }),
};

const isText = (value: unknown): boolean => typeof value === 'string';
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isPositive = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 1;
const isRate = (value: unknown): boolean => typeof value === 'number' && Number.isFinite(value) && value >= 0;
const isAuthSuccess = (value: unknown): boolean =>
  isJsonObject(value) &&
  typeof value.userId === 'string' &&
  /^@[^:]*:./.test(value.userId) &&
  (value.onLogin === undefined || typeof value.onLogin === 'function');

/** What an answer of the kind `provide` has to look like; `undefined` and `null` are no answer and never get here. */
export const providedAnswers: Readonly<
  Record<NamesOfKind<'provide'>, { readonly expected: string; readonly fits: (answer: unknown) => boolean }>
> = {
  authCheckers: { expected: '{ userId, onLogin? } or undefined', fits: isAuthSuccess },
  check3pidAuth: { expected: '{ userId, onLogin? } or undefined', fits: isAuthSuccess },
  getUsernameForRegistration: { expected: 'a localpart or undefined', fits: isText },
  getDisplaynameForRegistration: { expected: 'a text or undefined', fits: isText },
  isUserExpired: { expected: 'true, false or undefined', fits: (value) => typeof value === 'boolean' },
  onLegacySendMail: { expected: 'nothing', fits: () => true },
  onLegacyRenew: {
    expected: '{ valid, stale, expirationTs }',
    fits: (value) =>
      isJsonObject(value) &&
      typeof value.valid === 'boolean' &&
      typeof value.stale === 'boolean' &&
      isCount(value.expirationTs),
  },
  onLegacyAdminRequest: { expected: 'milliseconds since the epoch', fits: isCount },
  getMediaConfigForUser: { expected: 'an object or undefined', fits: isJsonObject },
  getMediaUploadLimitsForUser: {
    expected: 'a list of { maxBytes, timePeriodMs } or undefined',
    fits: (value) =>
      Array.isArray(value) &&
      value.length <= 100 &&
      value.every((limit) => isJsonObject(limit) && isCount(limit.maxBytes) && isPositive(limit.timePeriodMs)),
  },
  getRatelimitOverrideForUser: {
    expected: '{ perSecond, burstCount } or undefined',
    fits: (value) => isJsonObject(value) && isRate(value.perSecond) && isCount(value.burstCount),
  },
  onUpdate: {
    expected: '{ durationMs, release? }',
    fits: (value) =>
      isJsonObject(value) &&
      isRate(value.durationMs) &&
      (value.release === undefined || typeof value.release === 'function'),
  },
  defaultBatchSize: { expected: 'a whole number of at least 1', fits: isPositive },
  minBatchSize: { expected: 'a whole number of at least 1', fits: isPositive },
};

/** Whether a name is a callback's. */
export const isCallbackName = (name: string, table: object): name is CallbackName => Object.hasOwn(table, name);
