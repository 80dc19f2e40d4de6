import {
  type AuthSuccess,
  type CallbackName,
  type Codes,
  DROP_SILENTLY,
  type NamesOfKind,
  NOT_SPAM,
  type Refusal,
  SOFT_FAIL,
  type UpdateSlot,
  type UserPresenceState,
} from '@rookery/module-api';
import { isJsonObject, type JsonObject, type MatrixError } from '@rookery/matrix-types';
import { plainCopy } from './isolation.js';
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

/** The one answer that lets pass without more ado. */
export const PASS: GateAnswer = Object.freeze({ kind: 'pass' });
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

/**
 * Checks a {@link Refusal} and fills in what it leaves out; `undefined` when it is rubbish.
 * @throws whatever looking at it throws
 */
export function readRefusal(value: unknown, defaults: Defaults = forbidden): RefusalDetails | undefined {
  const plain = plainObject(value);
  if (!plain) return undefined;
  const { errcode, message, status, extra } = plain as Refusal;
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
export function refusalOfError({ errcode, message, status, extra }: MatrixError): RefusalDetails | undefined {
  return readRefusal({ errcode, message, status, extra });
}

/** An object that a module gave, as plain data. */
const plainObject = (value: unknown): JsonObject | undefined =>
  isJsonObject(value) ? (plainCopy(value) as JsonObject) : undefined;

interface SpamOptions {
  /** Whether the answer may also be DROP_SILENTLY or SOFT_FAIL. */
  readonly swallow: boolean;
  /** What an old-style boolean meant: `true` for spam, `true` for allowed, or nothing. */
  readonly legacy: 'trueIsSpam' | 'trueIsAllowed' | 'none';
  /** Whether an old-style text refused with these words. */
  readonly words?: boolean;
}

const useCodes = 'return NOT_SPAM, a code of Codes, or { errcode, message }';

function spam(options: SpamOptions): (answer: unknown) => GateAnswer {
  const expected = `NOT_SPAM, a code of Codes${options.swallow ? ', DROP_SILENTLY, SOFT_FAIL' : ''} or { errcode, message }`;
  return (answer) => {
    if (answer === NOT_SPAM) return PASS;
    if (typeof answer === 'string') {
      if (answer === DROP_SILENTLY || answer === SOFT_FAIL) {
        if (!options.swallow) return invalid(expected);
        return refuse(forbidden, { effect: answer === SOFT_FAIL ? 'softFail' : 'dropSilently' });
      }
      if (bareCode.test(answer)) return refuse(forbidden, { errcode: answer });
      if (options.words) {
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

const event = spam({ swallow: true, legacy: 'trueIsSpam', words: true });
const invite = spam({ swallow: true, legacy: 'trueIsAllowed' });
const action = spam({ swallow: false, legacy: 'trueIsAllowed' });
const file = spam({ swallow: false, legacy: 'trueIsSpam' });
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
  checkMediaFileForSpam: file,
  checkLoginForSpam: strict,
  checkThreepidCanBeInvited: permission(),
  checkVisibilityCanBeModified: permission(),
  checkCanShutdownRoom: permission(),
  checkCanRemoveHistory: permission(),
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

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isPositive = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 1;
const isUploadLimit = (value: unknown): boolean => {
  if (!isJsonObject(value)) return false;
  const { maxBytes, timePeriodMs, infoUri, canUpgrade } = value;
  if (infoUri !== undefined && !(URL.canParse(text(infoUri) ?? '') && /^https?:/i.test(String(infoUri)))) return false;
  return isCount(maxBytes) && isPositive(timePeriodMs) && ['undefined', 'boolean'].includes(typeof canUpgrade);
};
const isRate = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value) && value >= 0;
const maxTextLength = 1_000;
const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value.length <= maxTextLength ? value : undefined;
const only =
  <T>(fits: (value: unknown) => value is T) =>
  (value: unknown): T | undefined =>
    fits(value) ? value : undefined;

function authSuccess(value: unknown): AuthSuccess | undefined {
  if (!isJsonObject(value)) return undefined;
  const { userId, onLogin } = value as unknown as AuthSuccess;
  if (typeof userId !== 'string' || userId.length > 255 || !/^@[^:]*:./.test(userId)) return undefined;
  if (onLogin === undefined) return { userId };
  return typeof onLogin === 'function' ? { userId, onLogin: (response) => onLogin.call(value, response) } : undefined;
}

function updateSlot(value: unknown): UpdateSlot | undefined {
  if (!isJsonObject(value)) return undefined;
  const { durationMs, release } = value as unknown as UpdateSlot;
  if (!isRate(durationMs)) return undefined;
  if (release === undefined) return { durationMs };
  return typeof release === 'function' ? { durationMs, release: () => release.call(value) } : undefined;
}

/**
 * What an answer of the kind `provide` means, or `undefined` for rubbish. `undefined` and `null` are no answer and never
 * get here. Reading may throw whatever the answer's getters throw.
 */
export const providedAnswers: Readonly<
  Record<NamesOfKind<'provide'>, { readonly expected: string; readonly read: (answer: unknown) => unknown }>
> = {
  authCheckers: { expected: '{ userId, onLogin? } or undefined', read: authSuccess },
  check3pidAuth: { expected: '{ userId, onLogin? } or undefined', read: authSuccess },
  getUsernameForRegistration: { expected: 'a localpart or undefined', read: text },
  getDisplaynameForRegistration: { expected: 'a text or undefined', read: text },
  isUserExpired: { expected: 'true, false or undefined', read: only((value) => typeof value === 'boolean') },
  onLegacySendMail: { expected: 'nothing', read: () => true },
  onLegacyRenew: {
    expected: '{ valid, stale, expirationTs }',
    read(value) {
      const plain = plainObject(value);
      if (typeof plain?.['valid'] !== 'boolean' || typeof plain['stale'] !== 'boolean') return undefined;
      return isCount(plain['expirationTs']) ? plain : undefined;
    },
  },
  onLegacyAdminRequest: { expected: 'milliseconds since the epoch', read: only(isCount) },
  getMediaConfigForUser: { expected: 'an object or undefined', read: plainObject },
  getMediaUploadLimitsForUser: {
    expected:
      'a list of { maxBytes, timePeriodMs, infoUri?, canUpgrade? }, infoUri an http or https address, canUpgrade true or false, or undefined',
    read(value) {
      if (!Array.isArray(value) || value.length > 100) return undefined;
      const limits = plainCopy(value) as unknown[];
      return limits.every(isUploadLimit) ? limits : undefined;
    },
  },
  getRatelimitOverrideForUser: {
    expected: '{ perSecond, burstCount } or undefined',
    read(value) {
      const plain = plainObject(value);
      return plain && isRate(plain['perSecond']) && isCount(plain['burstCount']) ? plain : undefined;
    },
  },
  onUpdate: { expected: '{ durationMs, release? }', read: updateSlot },
  defaultBatchSize: { expected: 'a whole number of at least 1', read: only(isPositive) },
  minBatchSize: { expected: 'a whole number of at least 1', read: only(isPositive) },
};

const maxEntries = 100_000;

/** The entries of a list, a set or anything else that can be gone through; `undefined` when there are too many. */
function entriesOf(value: unknown): unknown[] | undefined {
  if (typeof value !== 'object' || value === null || !(Symbol.iterator in value)) return undefined;
  const entries: unknown[] = [];
  for (const entry of value as Iterable<unknown>) if (entries.push(entry) > maxEntries) return undefined;
  return entries;
}

/** What `getUsersForStates` says, or `undefined` for rubbish: presence states by user. */
export function readUsersForStates(answer: unknown): Map<string, UserPresenceState[]> | undefined {
  if (!(answer instanceof Map)) return undefined;
  const users = new Map<string, UserPresenceState[]>();
  for (const entry of entriesOf(answer) ?? [undefined]) {
    const [userId, given] = Array.isArray(entry) ? (entry as unknown[]) : [];
    const states = entriesOf(given)?.map(plainCopy);
    if (typeof userId !== 'string' || !states?.every(isPresence)) return undefined;
    users.set(userId, states);
  }
  return users;
}

const isPresence = (value: unknown): value is UserPresenceState =>
  isJsonObject(value) && typeof value['userId'] === 'string' && typeof value['state'] === 'string';

/** What `getInterestedUsers` says, or `undefined` for rubbish: user ids. */
export function readUserIds(answer: unknown): string[] | undefined {
  const userIds = entriesOf(answer);
  return userIds?.every((userId) => typeof userId === 'string') ? userIds : undefined;
}

/** Whether a name is a callback's. */
export const isCallbackName = (name: string, table: object): name is CallbackName => Object.hasOwn(table, name);
