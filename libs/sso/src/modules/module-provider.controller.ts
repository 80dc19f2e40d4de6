import { Controller, Get, Param, Post } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Access, HttpReply, Inbound, type InboundRequest, RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Ids, Logger } from '@rookery/platform';
import { SessionService, userOfExternalId } from '@rookery/users';
import { lostSession, SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { SsoLogin } from '../login/sso-login.service.js';
import { cookieHeaders, redirectWith, SsoPages, withCookies } from '../login/sso-pages.js';
import { type ModuleProvider, moduleSessionMs } from './module-provider.js';
import { ModuleProviders } from './module-providers.service.js';
import { ProviderTokens } from './provider-tokens.service.js';

const bodyLimitBytes = 262_144;
/** A request for a logout counts once, for so long. */
const rememberMs = 2 * 3_600_000;

/** Where browsers are while they sign on at a provider of a module. */
@Controller()
export class ModuleProviderController {
  constructor(
    private readonly database: Database,
    private readonly providers: ModuleProviders,
    private readonly logins: SsoLogin,
    private readonly pages: SsoPages,
    private readonly remembered: SsoSessions,
    private readonly tokens: ProviderTokens,
    private readonly sessions: SessionService,
    private readonly limiter: RateLimiter,
    private readonly ids: Ids,
    private readonly logger: Logger,
  ) {}

  /** GET /_synapse/client/sso/{id}/begin: the first page of a provider that has one of its own */
  @Get('/_synapse/client/sso/:id/begin')
  @Access({ auth: 'none' })
  begin(@Inbound() request: InboundRequest, @Param('id') id: string): Promise<HttpReply> {
    return this.#step(request, id, 'begin');
  }

  /** GET /_synapse/client/sso/{id}/callback */
  @Get('/_synapse/client/sso/:id/callback')
  @Access({ auth: 'none' })
  callback(@Inbound() request: InboundRequest, @Param('id') id: string): Promise<HttpReply> {
    return this.#step(request, id, 'callback');
  }

  /** POST /_synapse/client/sso/{id}/callback: forms, of the provider or of its page */
  @Post('/_synapse/client/sso/:id/callback')
  @Access({ auth: 'none', bodyLimitBytes })
  formCallback(@Inbound() request: InboundRequest, @Param('id') id: string): Promise<HttpReply> {
    return this.#step(request, id, 'callback');
  }

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

  async #step(request: InboundRequest, id: string, method: 'begin' | 'callback'): Promise<HttpReply> {
    const provider = this.providers.find(id);
    let cookies: readonly string[] = [];
    const reply = await this.pages.guard(async () => {
      if (!provider) throw new SsoError('unknown_idp', 'There is no such sign-in provider here.', 404);
      const session = provider.sessionOf(request);
      const isGuess = request.method === 'POST';
      const key = `sso ${id} ${request.ip}`;
      // Whoever guesses at names and passwords here is slowed down as at the login.
      if (isGuess && !(await this.limiter.mayTake('rc_login.failed_attempts', key)))
        await this.limiter.take('rc_login.failed_attempts', key);
      const step = await provider.ask(request, session, method);
      if (isGuess && step.kind !== 'identity' && step.kind !== 'redirect')
        await this.limiter.take('rc_login.failed_attempts', key).catch(() => undefined);
      if (step.kind === 'redirect')
        return redirectWith(step.location, provider.keep({ ...session, state: step.state }));
      if (step.kind === 'page') {
        const kept = cookieHeaders(provider.keep({ ...session, state: step.state }));
        // The answer to its form may lead to the client.
        return HttpReply.page(step.status, { html: step.html }, { ...kept, formsLeadAway: true });
      }
      cookies = provider.forget();
      if (step.kind === 'refused') throw new SsoError(step.error, step.description, step.status);
      if (!(await this.remembered.useOnce(`module ${id} ${session.nonce}`, moduleSessionMs)))
        throw lostSession('invalid_session');
      const { person, tokens } = step;
      const sessionId = person.sessionId ?? (tokens === undefined ? undefined : this.ids.bytes(24).toString('hex'));
      if (tokens !== undefined && session.purpose.kind === 'login') await this.tokens.put(id, sessionId!, tokens);
      return this.logins.finish(provider.signOn({ ...person, sessionId }, session, request, []));
    });
    return withCookies(reply, cookies);
  }

  async #logOut(provider: ModuleProvider, request: InboundRequest): Promise<void> {
    const { id: providerId } = provider;
    const wanted = await provider.logout(request);
    if (!wanted) throw MatrixError.invalidParam('The logout request is not valid');
    const { sessionId, remoteId, id } = wanted;
    if (id !== undefined && !(await this.remembered.useOnce(`logout ${providerId} ${id}`, rememberMs)))
      throw MatrixError.invalidParam('The logout request was used before');
    const userId = remoteId === undefined ? undefined : await userOfExternalId(this.database, providerId, remoteId);
    if (remoteId !== undefined && userId === undefined) throw MatrixError.invalidParam('Nobody of that name is here');
    const closed = await this.sessions.closeProviderLogins(
      sessionId === undefined ? { providerId, userId: userId! } : { providerId, sessionId, userId },
    );
    this.logger.info('A provider logged sessions out', {
      provider: providerId,
      devices: [...closed.values()].reduce((sum, devices) => sum + devices.length, 0),
    });
  }
}
