import { Injectable } from '@nestjs/common';
import { OutboundError } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Logger } from '@rookery/platform';
import { ExternalIds, SessionService } from '@rookery/users';
import { SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { checkLogoutToken, type LogoutRequest, type ParsedToken, parseToken } from './logout-token.js';
import type { OidcProvider } from './oidc-provider.js';
import { OidcProviders } from './oidc-providers.service.js';

/** A token counts once; longer than it is accepted at all. */
const rememberMs = 2 * 3_600_000;
const usualAlgorithms = ['RS256'];

/** Logouts that providers ask for (`backchannel_logout_enabled`). */
@Injectable()
export class BackchannelLogout {
  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly providers: OidcProviders,
    private readonly sessions: SessionService,
    private readonly externalIds: ExternalIds,
    private readonly remembered: SsoSessions,
  ) {}

  /**
   * Ends the sessions that a provider names, and no others.
   * @throws MatrixError 400 `M_INVALID_PARAM` when the token is not valid, 502 when the provider's keys cannot be had
   */
  async logOut(logoutToken: string): Promise<void> {
    const token = parseToken(logoutToken);
    if (!token) throw invalid('not a token');
    const provider = this.#providerOf(token);
    if (!provider) throw invalid('no provider that may log out sent it');
    const request = await this.#check(token, provider);
    const use = `logout ${provider.id} ${request.id}`;
    if (await this.remembered.isUsed(use)) throw invalid('used before');
    const userId = await this.#userOf(request, provider);
    const { sessionId } = request;
    if (sessionId === undefined && userId === undefined) return;
    const closed = await this.sessions.closeProviderLogins(
      sessionId === undefined
        ? { providerId: provider.id, userId: userId! }
        : { providerId: provider.id, sessionId, userId },
    );
    // Not before: a provider whose request came to nothing sends it again.
    await this.remembered.useOnce(use, rememberMs);
    this.logger.info('A provider logged sessions out', {
      provider: provider.id,
      devices: [...closed.values()].reduce((sum, devices) => sum + devices.length, 0),
    });
  }

  /** By what the token says of itself; the signature shows whether that is true. */
  #providerOf({ claims }: ParsedToken): OidcProvider | undefined {
    const audience = Array.isArray(claims['aud']) ? claims['aud'] : [claims['aud']];
    const bare = (issuer: unknown): string => String(issuer).replace(/\/$/, '');
    const candidates = this.providers.all.filter(
      ({ setting }) => setting.backchannel_logout_enabled && audience.includes(setting.client_id),
    );
    return (
      candidates.find(({ setting }) => bare(setting.issuer) === bare(claims['iss'])) ??
      // Where the metadata are not checked, the issuer may go by another name there.
      candidates.find(({ setting }) => setting.skip_verification)
    );
  }

  async #check(token: ParsedToken, provider: OidcProvider): Promise<LogoutRequest> {
    try {
      const { issuer, id_token_signing_alg_values_supported: algorithms } = await provider.client.metadata();
      const asymmetric = (algorithms ?? usualAlgorithms).filter((one) => !/^(none|HS)/.test(one));
      const checked = checkLogoutToken(token, await provider.client.keys(), {
        issuer,
        clientId: provider.setting.client_id,
        algorithms: asymmetric.length > 0 ? asymmetric : usualAlgorithms,
        nowMs: this.clock.nowMs(),
      });
      if (typeof checked === 'string') throw invalid(checked);
      return checked;
    } catch (error) {
      if (!(error instanceof SsoError) && !(error instanceof OutboundError)) throw error;
      throw MatrixError.badGateway('The keys of the provider cannot be had');
    }
  }

  /** The account of the subject, to which a logout is confined. `undefined`: the session alone decides. */
  async #userOf({ subject, sessionId }: LogoutRequest, provider: OidcProvider): Promise<string | undefined> {
    if (subject === undefined || (provider.setting.backchannel_logout_ignore_sub && sessionId !== undefined))
      return undefined;
    let remoteId: string;
    try {
      remoteId = await provider.mapping.remoteId({ sub: subject });
    } catch (error) {
      if (!(error instanceof SsoError)) throw error;
      throw invalid('its subject cannot be mapped; backchannel_logout_ignore_sub would pass over that');
    }
    const userId = await this.externalIds.userOf(provider.id, remoteId);
    if (userId === undefined) throw invalid('its subject is not known here');
    return userId;
  }
}

const invalid = (reason: string): MatrixError => MatrixError.invalidParam(`The logout token is not valid: ${reason}`);
