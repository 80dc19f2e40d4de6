import type { ProviderLogout, SignedOn, SignOnStep } from '@rookery/module-api';
import { isJsonObject } from '@rookery/matrix-types';
import { checkRemoteId } from '../providers/mapping-call.js';

const maxStateBytes = 2_048;
const maxTokensBytes = 16_384;
const maxPageLength = 1_048_576;
const maxSessionIdLength = 255;
const maxUrlLength = 16_384;
const maxErrorLength = 100;
const maxDescriptionLength = 500;

/** A step of a module whose form was checked. */
export type CheckedStep =
  | { readonly kind: 'redirect'; readonly location: string; readonly state: string | undefined }
  | { readonly kind: 'page'; readonly html: string; readonly status: number; readonly state: string | undefined }
  | { readonly kind: 'identity'; readonly person: SignedOn; readonly tokens: string | undefined }
  | { readonly kind: 'refused'; readonly error: string; readonly description: string; readonly status: number };

/**
 * Reads what a module answered.
 * @throws TypeError for what is no step
 * @throws SsoError `mapping_error` for somebody without a stable id
 */
export function checkStep(answer: SignOnStep): CheckedStep {
  if (!isJsonObject(answer)) throw new TypeError('a step is an object');
  const step = answer as unknown as Partial<Record<'redirect' | 'page' | 'identity' | 'refused' | 'state', unknown>> & {
    readonly status?: unknown;
  };
  const kinds = (['redirect', 'page', 'identity', 'refused'] as const).filter((kind) => step[kind] !== undefined);
  if (kinds.length !== 1) throw new TypeError('a step has one of redirect, page, identity and refused');
  const state = (): string | undefined => jsonOf('state', step.state, maxStateBytes);
  switch (kinds[0]) {
    case 'redirect': {
      const location = String(step.redirect);
      const isWeb = location.length <= maxUrlLength && URL.canParse(location) && /^https?:/i.test(location);
      if (!isWeb) throw new TypeError('a redirect leads to an http or https address');
      return { kind: 'redirect', location, state: state() };
    }
    case 'page': {
      if (typeof step.page !== 'string' || step.page.length > maxPageLength)
        throw new TypeError(`a page is a text of at most ${maxPageLength} characters`);
      return { kind: 'page', html: step.page, status: statusOf(step.status, 200, 200), state: state() };
    }
    case 'identity':
      return identityOf(step.identity);
    default: {
      const refused = isJsonObject(step.refused) ? step.refused : {};
      const text = (value: unknown, limit: number): string =>
        typeof value === 'string' ? value.slice(0, limit).toWellFormed() : '';
      return {
        kind: 'refused',
        error: text(refused['error'], maxErrorLength) || 'unauthorised',
        description: text(refused['description'], maxDescriptionLength) || 'The sign-in provider did not let you in.',
        status: statusOf(refused['status'], 403, 400),
      };
    }
  }
}

function identityOf(value: unknown): CheckedStep {
  const { remoteId, sessionId, claims, tokens } = (isJsonObject(value) ? value : {}) as Partial<SignedOn>;
  if (sessionId !== undefined && !isSessionId(sessionId))
    throw new TypeError(`a sessionId is a text of 1 to ${maxSessionIdLength} characters`);
  return {
    kind: 'identity',
    person: {
      remoteId: checkRemoteId(remoteId),
      sessionId,
      claims: isJsonObject(claims) ? claims : {},
      tokens,
    },
    tokens: jsonOf('tokens', tokens, maxTokensBytes),
  };
}

/** Reads the tokens for the next time, as JSON; `undefined` where the person is not signed on any more. @throws TypeError */
export function checkRefresh(answer: { readonly tokens: unknown } | null | undefined): string | undefined {
  if (answer === undefined || answer === null) return undefined;
  if (!isJsonObject(answer)) throw new TypeError('what renews a session is an object with tokens');
  return jsonOf('tokens', answer['tokens'], maxTokensBytes) ?? 'null';
}

/** Reads whom a provider logs out; `undefined` where that is nobody. @throws TypeError */
export function checkLogout(answer: ProviderLogout | null | undefined): ProviderLogout | undefined {
  if (answer === undefined || answer === null) return undefined;
  if (!isJsonObject(answer)) throw new TypeError('a logout is an object');
  const { sessionId, remoteId, id } = answer as ProviderLogout;
  if (sessionId === undefined && remoteId === undefined) return undefined;
  if (sessionId !== undefined && !isSessionId(sessionId)) throw new TypeError('the sessionId is no text');
  if (remoteId !== undefined && typeof remoteId !== 'string') throw new TypeError('the remoteId is no text');
  if (id !== undefined && (typeof id !== 'string' || id.length > 1_024)) throw new TypeError('the id is no text');
  return { sessionId, remoteId, id };
}

const isSessionId = (value: unknown): value is string =>
  typeof value === 'string' &&
  value !== '' &&
  value.length <= maxSessionIdLength &&
  !value.includes('\0') &&
  value.isWellFormed();

function statusOf(value: unknown, usual: number, least: number): number {
  if (value === undefined) return usual;
  if (!Number.isInteger(value) || !((value as number) >= least && (value as number) <= 599))
    throw new TypeError(`a status is a number from ${least} to 599`);
  return value as number;
}

function jsonOf(what: string, value: unknown, maxBytes: number): string | undefined {
  if (value === undefined) return undefined;
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined) throw new TypeError(`${what} is no JSON value`);
  if (Buffer.byteLength(json) > maxBytes) throw new TypeError(`${what} has more than ${maxBytes} bytes of JSON`);
  return json;
}
