import { Injectable } from '@nestjs/common';
import type { HttpReply } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { AccountApi, RegisteredDevice } from '@rookery/module-api';
import { Clock } from '@rookery/platform';
import { SsoHandover } from '@rookery/sso';
import { LoginTokens, SessionService } from '@rookery/users';
import { LocalAccounts } from './local-accounts.js';

const defaultLoginTokenMs = 120_000;
const longestLoginTokenMs = 86_400_000;

/** How modules begin and end sessions of accounts. */
@Injectable()
export class ModuleAccountSessions {
  constructor(
    private readonly clock: Clock,
    private readonly local: LocalAccounts,
    private readonly sessions: SessionService,
    private readonly tokens: LoginTokens,
    private readonly handover: SsoHandover,
  ) {}

  async registerDevice(userId: string, deviceId?: string, initialDisplayName?: string): Promise<RegisteredDevice> {
    const { deactivated } = await this.local.get(userId);
    if (deactivated) throw MatrixError.userDeactivated();
    const session = await this.sessions.open({ userId, deviceId, initialDisplayName });
    return Object.freeze({
      deviceId: session.deviceId,
      accessToken: session.accessToken,
      accessTokenExpiresAtMs: session.expiresInMs === undefined ? undefined : this.clock.nowMs() + session.expiresInMs,
      refreshToken: session.refreshToken,
    });
  }

  async invalidateAccessToken(accessToken: string): Promise<void> {
    await this.sessions.closeByToken(accessToken, { byModule: true });
  }

  async createLoginToken(
    ...[userId, durationInMs = defaultLoginTokenMs, authProviderId, authProviderSessionId]: Parameters<
      AccountApi['createLoginToken']
    >
  ): Promise<string> {
    await this.local.get(userId);
    if (!(durationInMs >= 1 && durationInMs <= longestLoginTokenMs)) {
      throw new RangeError(`A login token lasts 1 to ${longestLoginTokenMs} milliseconds`);
    }
    const provider =
      authProviderId === undefined ? undefined : { id: authProviderId, sessionId: authProviderSessionId ?? '' };
    return this.tokens.create(userId, Math.floor(durationInMs), provider);
  }

  /**
   * Ends a single sign-on that a module conducted: sends the browser back to the client with a login token, at once where the
   * settings trust the client, otherwise after a page that asks.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND`
   */
  async completeSsoLoginAsync(
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
