import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Ids } from '@rookery/platform';
import type { BrowserRequest } from '../common/browser-request.js';
import { cookieOf, SealedCookies } from '../common/sealed-cookies.js';
import { SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import type { NewUser } from '../providers/identity-provider.js';

const cookieName = 'username_mapping_session';
const sessionMs = 15 * 60_000;

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
  /** It needs no choice: the person may not make another. */
  readonly isFixed?: boolean | undefined;
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

/** What is known of people who are about to get an account, from one page to the next; a cookie says whose it is. */
@Injectable()
export class NewUserSessions {
  constructor(
    private readonly ids: Ids,
    private readonly sessions: SsoSessions,
    private readonly cookies: SealedCookies,
  ) {}

  /** @returns the `Set-Cookie` header that leads back to it */
  async open(session: NewUserSession): Promise<string> {
    const id = this.ids.bytes(24).toString('base64url');
    await this.sessions.put('new_user', id, session as unknown as JsonObject, sessionMs);
    return this.cookies.header(cookieName, id, { path: '_synapse/client', lifetimeMs: sessionMs, site: 'lax' });
  }

  /** The session of a request. @throws SsoError `invalid_session` */
  async of(request: BrowserRequest): Promise<{ readonly id: string; readonly session: NewUserSession }> {
    const id = cookieOf(request, cookieName);
    const found = id === undefined ? undefined : await this.sessions.find('new_user', id);
    if (id === undefined || !found)
      throw new SsoError('invalid_session', 'Your sign-in has expired. Start again in your app.');
    return { id, session: found as unknown as NewUserSession };
  }

  /** Keeps it as it is now. */
  async change(id: string, session: NewUserSession): Promise<void> {
    await this.sessions.update('new_user', id, session as unknown as JsonObject);
  }

  async close(id: string): Promise<void> {
    await this.sessions.take('new_user', id);
  }

  /** The `Set-Cookie` header that takes the cookie away. */
  removal(): string {
    return this.cookies.removal(cookieName, { path: '_synapse/client', site: 'lax' });
  }
}
