import type { HttpReply } from '@rookery/http';
import type { AccountApi } from '@rookery/module-api';
import type { SsoHandover } from '@rookery/sso';
import type { LocalAccounts } from './module-requester.js';

/** Ends single sign-on logins that modules conducted. */
export class SsoCompletion {
  constructor(
    private readonly local: LocalAccounts,
    private readonly handover: SsoHandover,
  ) {}

  /**
   * Sends the browser back to the client with a login token: at once where the settings trust the client, otherwise after
   * a page that asks.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND`
   */
  async complete(
    ...[userId, _request, clientRedirectUrl, newUser = false, authProviderId]: Parameters<
      AccountApi['completeSsoLoginAsync']
    >
  ): Promise<Response> {
    await this.local.get(userId);
    const reply = await this.handover.complete({
      userId,
      redirectUrl: String(clientRedirectUrl),
      newUser,
      provider: authProviderId === undefined ? undefined : { id: authProviderId },
    });
    return toResponse(reply);
  }
}

function toResponse({ status, headers, body }: HttpReply): Response {
  const result = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    for (const one of typeof value === 'string' ? [value] : value) result.append(name, one);
  }
  return new Response(typeof body === 'string' ? body : null, { status, headers: result });
}
