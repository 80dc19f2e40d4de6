import { Injectable } from '@nestjs/common';
import { HttpReply } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { AccountService, LoginTokens, ProfileService } from '@rookery/users';
import { checkClientAddress, displayedAddress, isTrustedClient } from '../common/client-addresses.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { cookieHeaders, redirectWith, SsoPages } from './sso-pages.js';

/** The browser goes on within this time. */
const tokenMs = 120_000;

/** A sign-on that has found its account. */
export interface Handover {
  readonly userId: string;
  /** Where the client waits. */
  readonly redirectUrl: string;
  readonly newUser?: boolean | undefined;
  /** By whom and in which session of theirs the user signed on. */
  readonly provider?: { readonly id: string; readonly sessionId?: string | undefined } | undefined;
  /** More fields for the answer to the login. */
  readonly extraFields?: JsonObject | undefined;
  /** `Set-Cookie` headers of the answer. */
  readonly cookies?: readonly string[] | undefined;
}

/** Hands a sign-on to the client that asked for it: a login token, in an address of the client. */
@Injectable()
export class SsoHandover {
  constructor(
    private readonly config: Config,
    private readonly addresses: SsoAddresses,
    private readonly accounts: AccountService,
    private readonly tokens: LoginTokens,
    private readonly profiles: ProfileService,
    private readonly sessions: SsoSessions,
    private readonly pages: SsoPages,
  ) {}

  /**
   * Sends the browser back to the client: at once where the settings trust the client, otherwise after a page that asks.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND`
   */
  async complete({ userId, redirectUrl, newUser, provider, extraFields, cookies = [] }: Handover): Promise<HttpReply> {
    const target = checkClientAddress(redirectUrl);
    const account = await this.accounts.find(userId);
    if (!account) throw MatrixError.noSuchUser();
    if (account.deactivated) return this.pages.page(403, 'sso_account_deactivated.html', {}, { cookies });
    const authProvider = provider && { id: provider.id, sessionId: provider.sessionId ?? '' };
    const token = await this.tokens.create(userId, tokenMs, authProvider);
    if (extraFields && Object.keys(extraFields).length > 0)
      await this.sessions.put('login_fields', token, extraFields, tokenMs);
    target.searchParams.set('loginToken', token);
    if (this.#isTrusted(redirectUrl)) return redirectWith(target.href, cookies);
    const profile = await this.profiles.get(userId);
    return this.pages.page(
      200,
      'sso_redirect_confirm.html',
      {
        display_url: displayedAddress(redirectUrl),
        redirect_url: target.href,
        new_user: newUser ?? false,
        user_id: userId,
        user_profile: { display_name: profile?.displayname, avatar_url: profile?.avatar_url },
      },
      cookieHeaders(cookies),
    );
  }

  #isTrusted(url: string): boolean {
    const own = this.addresses.urlOf('_matrix/static/client/login');
    return isTrustedClient(url, [...this.config.get('sso.client_whitelist'), own]);
  }
}
