import { HttpReply } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { AccountApi } from '@rookery/module-api';
import type { Config } from '@rookery/platform';
import type { Pages } from '@rookery/templates';
import type { LoginService, ProfileService } from '@rookery/users';
import type { LocalAccounts } from './module-requester.js';

/** The browser goes on within this time. */
const tokenMs = 120_000;
const maxUrlLength = 8_192;
/** Addresses that would run in the page that asks. */
const dangerous = new Set(['javascript:', 'data:', 'vbscript:', 'blob:', 'file:', 'about:']);

/** Ends single sign-on logins that modules conducted. */
export class SsoCompletion {
  constructor(
    private readonly config: Config,
    private readonly pages: Pages,
    private readonly local: LocalAccounts,
    private readonly logins: LoginService,
    private readonly profiles: ProfileService,
  ) {}

  /**
   * Sends the browser back to the client with a login token: at once where the settings trust the client, otherwise after
   * a page that asks.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND`
   */
  async complete(
    ...[userId, request, clientRedirectUrl, newUser = false, authProviderId]: Parameters<
      AccountApi['completeSsoLoginAsync']
    >
  ): Promise<Response> {
    const target = targetOf(clientRedirectUrl);
    const account = await this.local.get(userId);
    if (account.deactivated) {
      return toResponse(HttpReply.page(403, this.pages.page('sso_account_deactivated.html', {})));
    }
    const provider = authProviderId === undefined ? undefined : { id: authProviderId, sessionId: '' };
    const token = await this.logins.createToken(userId, tokenMs, provider);
    target.searchParams.set('loginToken', token);
    if (this.#isTrusted(clientRedirectUrl)) return toResponse(HttpReply.redirect(target.href));
    const profile = await this.profiles.get(userId);
    const page = this.pages.page('sso_redirect_confirm.html', {
      display_url: displayed(clientRedirectUrl),
      redirect_url: target.href,
      new_user: newUser,
      user_id: userId,
      user_profile: { display_name: profile?.displayname, avatar_url: profile?.avatar_url },
      user_agent: request.headers.get('user-agent') ?? '',
    });
    return toResponse(HttpReply.page(200, page));
  }

  #isTrusted(url: string): boolean {
    return this.config.get('sso.client_whitelist').some((start) => url.startsWith(start));
  }
}

/** @throws MatrixError 400 `M_INVALID_PARAM` */
function targetOf(url: string): URL {
  const target = typeof url === 'string' && url.length <= maxUrlLength && URL.canParse(url) ? new URL(url) : undefined;
  if (!target || dangerous.has(target.protocol)) throw MatrixError.invalidParam('No login can lead to this address');
  return target;
}

/** The part of an address that tells where it leads. */
const displayed = (url: string): string => url.split(/[?#]/, 1)[0]!;

function toResponse({ status, headers, body }: HttpReply): Response {
  const result = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    for (const one of typeof value === 'string' ? [value] : value) result.append(name, one);
  }
  return new Response(typeof body === 'string' ? body : null, { status, headers: result });
}
