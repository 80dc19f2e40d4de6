import { Controller, Get, Param, Post } from '@nestjs/common';
import { Access, HttpReply, Inbound, type InboundRequest, RateLimiter } from '@rookery/http';
import { Ids } from '@rookery/platform';
import { lostSession, SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { SsoLogin } from '../login/sso-login.service.js';
import { cookieHeaders, redirectWith, SsoPages, withCookies } from '../login/sso-pages.js';
import { moduleSessionMs } from './module-provider.js';
import { ModuleProviders } from './module-providers.service.js';
import { ProviderTokens } from './provider-tokens.service.js';

const bodyLimitBytes = 262_144;

/** Where browsers are while they sign on at a provider of a module. */
@Controller()
export class ModuleProviderController {
  constructor(
    private readonly providers: ModuleProviders,
    private readonly logins: SsoLogin,
    private readonly pages: SsoPages,
    private readonly remembered: SsoSessions,
    private readonly tokens: ProviderTokens,
    private readonly limiter: RateLimiter,
    private readonly ids: Ids,
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
}
