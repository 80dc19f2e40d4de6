import { Injectable } from '@nestjs/common';
import { HttpReply } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { ConsentService, ExternalIds, SsoRegistration } from '@rookery/users';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import type { NewUser, SignOn } from '../providers/identity-provider.js';
import { Avatars } from './avatars.service.js';
import { SsoHandover } from './handover.service.js';
import { type ChosenUser, type NewUserSession, NewUserSessions } from './new-user-sessions.js';
import { redirectWith } from './sso-pages.js';
import type { BrowserRequest } from '../common/browser-request.js';

/** Names that are tried for one person. */
const maxFailures = 1_000;
const maxEmails = 20;
const maxTextLength = 256;
const maxUrlLength = 2_000;
const maxExtraLength = 16_384;

/** Accounts of people who sign on for the first time: a name, the terms, the account. */
@Injectable()
export class NewUsers {
  constructor(
    private readonly registration: SsoRegistration,
    private readonly externalIds: ExternalIds,
    private readonly consent: ConsentService,
    private readonly sessions: NewUserSessions,
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
      isFixed: isFinal,
    };
    if (isFinal && !this.#needsConsent(session)) return this.#register(session, signOn.request, signOn.cookies);
    const cookie = await this.sessions.open(session);
    return redirectWith(this.#next(session), [...signOn.cookies, cookie]);
  }

  /** The session of a request. @throws SsoError `invalid_session` */
  sessionOf(request: BrowserRequest): Promise<{ readonly id: string; readonly session: NewUserSession }> {
    return this.sessions.of(request);
  }

  /** Whether a name may be taken. @returns what is wrong with it */
  async problemWith(localpart: string): Promise<MatrixError | undefined> {
    try {
      await this.registration.checkName(localpart);
      return undefined;
    } catch (error) {
      if (MatrixError.is(error) && error.status < 500) return error;
      throw error;
    }
  }

  /** Where somebody goes who has nothing to choose; `undefined` for those who have. */
  pastChoice(session: NewUserSession): HttpReply | undefined {
    return session.isFixed ? HttpReply.redirect(this.#next(session)) : undefined;
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
    const { id, session } = await this.sessions.of(request);
    if (!session.chosen || this.#needsConsent(session)) return HttpReply.redirect(this.#next(session));
    try {
      const reply = await this.#register(session, request, [this.sessions.removal()]);
      await this.sessions.close(id);
      return reply;
    } catch (error) {
      // Somebody else was faster: another name, please.
      if (MatrixError.is(error) && error.errcode === 'M_USER_IN_USE')
        return this.#change(id, { ...session, chosen: undefined, isFixed: false });
      throw error;
    }
  }

  async #change(id: string, session: NewUserSession): Promise<HttpReply> {
    await this.sessions.change(id, session);
    return HttpReply.redirect(this.#next(session));
  }

  #next(session: NewUserSession): string {
    if (!session.chosen) return this.addresses.urlOf('_synapse/client/pick_username/account_details');
    return this.addresses.urlOf(
      this.#needsConsent(session) ? '_synapse/client/new_user_consent' : '_synapse/client/sso_register',
    );
  }

  #needsConsent({ consentVersion }: NewUserSession): boolean {
    return this.consent.isMissingToRegister(consentVersion);
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
        localpart: chosen.localpart,
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
      const known = await this.externalIds.userOf(providerId, remoteId);
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
