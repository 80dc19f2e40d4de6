import { Controller, Param, Post } from '@nestjs/common';
import { Access, HttpReply, Inbound, type InboundRequest } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Logger } from '@rookery/platform';
import { ExternalIds, SessionService } from '@rookery/users';
import { SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import type { ModuleProvider } from './module-provider.js';
import { ModuleProviders } from './module-providers.service.js';

const bodyLimitBytes = 262_144;
/** A request for a logout counts once, for so long. */
const rememberMs = 2 * 3_600_000;

/** Where providers of modules end the sessions of those who signed out there. */
@Controller()
export class ModuleLogoutController {
  constructor(
    private readonly externalIds: ExternalIds,
    private readonly providers: ModuleProviders,
    private readonly remembered: SsoSessions,
    private readonly sessions: SessionService,
    private readonly logger: Logger,
  ) {}

  /** POST /_synapse/client/sso/{id}/logout: a provider ends sessions */
  @Post('/_synapse/client/sso/:id/logout')
  @Access({ auth: 'none', bodyLimitBytes })
  async logOut(@Inbound() request: InboundRequest, @Param('id') id: string): Promise<HttpReply> {
    const headers = { 'cache-control': 'no-store' };
    const provider = this.providers.find(id);
    if (!provider?.logsOut) throw MatrixError.unrecognized('No provider of this name ends sessions');
    try {
      await this.#logOut(provider, request);
      return new HttpReply(200, headers, undefined);
    } catch (error) {
      if (error instanceof SsoError) {
        const { cause } = error;
        if (MatrixError.is(cause)) return HttpReply.json(cause.status, cause.toBody(), headers);
        this.logger.warn('A provider could not end sessions', { provider: id, err: error });
        return HttpReply.json(502, { errcode: 'M_UNKNOWN', error: error.description }, headers);
      }
      if (!MatrixError.is(error)) throw error;
      return HttpReply.json(error.status, error.toBody(), headers);
    }
  }

  async #logOut(provider: ModuleProvider, request: InboundRequest): Promise<void> {
    const { id: providerId } = provider;
    const wanted = await provider.logout(request);
    if (!wanted) throw MatrixError.invalidParam('The logout request is not valid');
    const { sessionId, remoteId, id } = wanted;
    const use = id === undefined ? undefined : `logout ${providerId} ${id}`;
    if (use !== undefined && (await this.remembered.isUsed(use)))
      throw MatrixError.invalidParam('The logout request was used before');
    const userId = remoteId === undefined ? undefined : await this.externalIds.userOf(providerId, remoteId);
    if (remoteId !== undefined && userId === undefined) throw MatrixError.invalidParam('Nobody of that name is here');
    const closed = await this.sessions.closeProviderLogins(
      sessionId === undefined ? { providerId, userId: userId! } : { providerId, sessionId, userId },
    );
    // Not before: a provider whose request came to nothing sends it again.
    if (use !== undefined) await this.remembered.useOnce(use, rememberMs);
    this.logger.info('A provider logged sessions out', {
      provider: providerId,
      devices: [...closed.values()].reduce((sum, devices) => sum + devices.length, 0),
    });
  }
}
