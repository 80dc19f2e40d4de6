import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { HttpReply } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Ids } from '@rookery/platform';
import { AccountService, ConsentService, SsoRegistration, userOfExternalId } from '@rookery/users';
import { cookieOf, SealedCookies } from '../common/sealed-cookies.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import type { NewUser, SignOn } from '../providers/identity-provider.js';
import { Avatars } from './avatars.service.js';
import { SsoHandover } from './handover.service.js';
import { redirectWith } from './sso-pages.js';
import type { BrowserRequest } from '../common/browser-request.js';

const cookieName = 'username_mapping_session';
const sessionMs = 15 * 60_000;
/** Names that are tried for one person. */
const maxFailures = 1_000;
const maxEmails = 20;
const maxTextLength = 256;
const maxUrlLength = 2_000;
const maxExtraLength = 16_384;

/** Somebody who signed on for the first time and has to choose a name or agree to the terms. */
export interface NewUserSession {
  readonly providerId: string;
  readonly remoteId: string;
  readonly providerSessionId?: string | undefined;
  readonly redirectUrl: string;
  /** What the provider suggests. */
  readonly suggested: NewUser;
  readonly extraFields?: JsonObject | undefined;
  /** What the person chose, or what needs no choice. */
  readonly chosen?: ChosenUser | undefined;
  /** Version of the policy that the person agreed to. */
  readonly consentVersion?: string | undefined;
}

/** What an account is going to be made of. */
export interface ChosenUser {
  readonly localpart: string;
  readonly displayName?: string | undefined;
  readonly picture?: string | undefined;
  readonly emails: readonly string[];
}

/** Accounts of people who sign on for the first time: a name, the terms, the account. */
@Injectable()
export class NewUsers {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly ids: Ids,
    private readonly accounts: AccountService,
    private readonly registration: SsoRegistration,
    private readonly consent: ConsentService,
    private readonly sessions: SsoSessions,
    private readonly cookies: SealedCookies,
    private readonly addresses: SsoAddresses,
    private readonly avatars: Avatars,
    private readonly handover: SsoHandover,
  ) {}

  /** Makes the account at once, or asks for what is missing. @throws SsoError `mapping_error` */
  async begin(signOn: SignOn, redirectUrl: string): Promise<HttpReply> {
    const { suggested, isFinal } = await this.#suggest(signOn);
    const session: NewUserSession = {
      providerId: signOn.provider.id,
      remoteId: signOn.remoteId,
      providerSessionId: signOn.sessionId,
      redirectUrl,
      suggested,
      extraFields: bounded(await signOn.extraFields?.()),
      chosen: isFinal
        ? { ...suggested, localpart: suggested.localpart ?? '', emails: suggested.emails ?? [] }
        : undefined,
    };
    if (isFinal && !this.#needsConsent(session)) return this.#register(session, signOn.request, signOn.cookies);
    const id = this.ids.bytes(24).toString('base64url');
    await this.sessions.put('new_user', id, session as unknown as JsonObject, sessionMs);
    const cookie = this.cookies.header(cookieName, id, { path: '_synapse/client', lifetimeMs: sessionMs, site: 'lax' });
    return redirectWith(this.#next(session), [...signOn.cookies, cookie]);
  }

  /** The session of a request. @throws SsoError `invalid_session` */
  async sessionOf(request: BrowserRequest): Promise<{ readonly id: string; readonly session: NewUserSession }> {
    const id = cookieOf(request, cookieName);
    const found = id === undefined ? undefined : await this.sessions.find('new_user', id);
    if (id === undefined || !found)
      throw new SsoError('invalid_session', 'Your sign-in has expired. Start again in your app.');
    return { id, session: found as unknown as NewUserSession };
  }

  /** Whether a name may be taken. @returns what is wrong with it */
  async problemWith(localpart: string): Promise<MatrixError | undefined> {
    try {
      await this.accounts.checkAvailable(localpart);
      return undefined;
    } catch (error) {
      if (MatrixError.is(error) && error.status < 500) return error;
      throw error;
    }
  }

  /** Notes what the person chose. The name was checked. @returns where the browser goes next */
  async choose(id: string, session: NewUserSession, chosen: ChosenUser): Promise<HttpReply> {
    return this.#change(id, { ...session, chosen });
  }

  /** Notes that the person agreed. @throws SsoError `bad_param` for a version that is not in force */
  async agree(id: string, session: NewUserSession, version: string): Promise<HttpReply> {
    if (version !== this.consent.version)
      throw new SsoError('bad_param', 'The terms have changed in the meantime. Go back and read them again.');
    return this.#change(id, { ...session, consentVersion: version });
  }

  /** Makes the account, once everything is there. */
  async finish(request: BrowserRequest): Promise<HttpReply> {
    const { id, session } = await this.sessionOf(request);
    if (!session.chosen || this.#needsConsent(session)) return HttpReply.redirect(this.#next(session));
    const removal = this.cookies.removal(cookieName, { path: '_synapse/client', site: 'lax' });
    try {
      const reply = await this.#register(session, request, [removal]);
      await this.sessions.take('new_user', id);
      return reply;
    } catch (error) {
      // Somebody else was faster: another name, please.
      if (MatrixError.is(error) && error.errcode === 'M_USER_IN_USE')
        return this.#change(id, { ...session, chosen: undefined });
      throw error;
    }
  }

  async #change(id: string, session: NewUserSession): Promise<HttpReply> {
    await this.sessions.update('new_user', id, session as unknown as JsonObject);
    return HttpReply.redirect(this.#next(session));
  }

  #next(session: NewUserSession): string {
    if (!session.chosen) return this.addresses.urlOf('_synapse/client/pick_username/account_details');
    return this.addresses.urlOf(
      this.#needsConsent(session) ? '_synapse/client/new_user_consent' : '_synapse/client/sso_register',
    );
  }

  #needsConsent({ consentVersion }: NewUserSession): boolean {
    return this.config.get('user_consent.require_at_registration') && consentVersion !== this.consent.version;
  }

  /** Asks for names until one is free. @returns `isFinal` when nobody has to be asked */
  async #suggest(signOn: SignOn): Promise<{ suggested: NewUser; isFinal: boolean }> {
    let last: string | undefined;
    for (let failures = 0; failures < maxFailures; failures++) {
      const suggested = trimmed(await signOn.attributes(failures));
      const { localpart } = suggested;
      if (localpart === undefined) return { suggested, isFinal: false };
      const problem = await this.problemWith(localpart);
      if (!problem) return { suggested, isFinal: !suggested.confirmLocalpart };
      if (problem.errcode !== 'M_USER_IN_USE') throw SsoError.mapping(problem.message, problem);
      if (localpart === last) break;
      last = localpart;
    }
    throw SsoError.mapping('The name that you have with your provider is taken on this server.');
  }

  async #register(session: NewUserSession, request: BrowserRequest, cookies: readonly string[]): Promise<HttpReply> {
    const { providerId, remoteId, chosen, consentVersion, redirectUrl } = session;
    if (!chosen) throw new Error('A new user has no name yet');
    let userId: string;
    let newUser = true;
    try {
      userId = await this.registration.register({
        localpart: await this.accounts.checkAvailable(chosen.localpart),
        displayName: chosen.displayName,
        emails: chosen.emails,
        consentVersion,
        authProvider: providerId,
        externalId: remoteId,
        request,
      });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      // The same person may have signed on in another window a moment ago.
      const known = await userOfExternalId(this.database, providerId, remoteId);
      if (known === undefined) throw error;
      userId = known;
      newUser = false;
    }
    if (newUser) await this.avatars.apply(userId, chosen.picture, { request });
    return this.handover.complete({
      userId,
      redirectUrl,
      newUser,
      provider: { id: providerId, sessionId: session.providerSessionId },
      extraFields: session.extraFields,
      cookies,
    });
  }
}

/** What a provider or a module said, within bounds. */
function trimmed(user: NewUser): NewUser {
  const text = (value: string | undefined, limit: number): string | undefined =>
    value === undefined || value === '' ? undefined : value.replaceAll('\0', '').toWellFormed().slice(0, limit);
  const picture = text(user.picture, maxUrlLength);
  return {
    localpart: text(user.localpart, maxTextLength),
    confirmLocalpart: user.confirmLocalpart ?? false,
    displayName: text(user.displayName, maxTextLength),
    picture: picture !== undefined && /^https?:\/\//i.test(picture) && URL.canParse(picture) ? picture : undefined,
    emails: (user.emails ?? []).filter((email) => email.length <= maxTextLength).slice(0, maxEmails),
  };
}

/** Fields for the login's answer, unless they are too many. */
function bounded(fields: JsonObject | undefined): JsonObject | undefined {
  return isJsonObject(fields) && JSON.stringify(fields).length <= maxExtraLength ? fields : undefined;
}
