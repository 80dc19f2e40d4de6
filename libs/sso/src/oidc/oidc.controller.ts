import { Controller, Get, Post } from '@nestjs/common';
import { Access, FormBody, formOf, HttpReply, Inbound, type InboundRequest, type InferForm } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { cookieOf, SealedCookies } from '../common/sealed-cookies.js';
import { lostSession, providerError, SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { SsoLogin } from '../login/sso-login.service.js';
import { SsoPages, withCookies } from '../login/sso-pages.js';
import { BackchannelLogout } from './backchannel-logout.service.js';
import { oidcCookies, oidcSeal, type OidcSession, oidcSessionMs } from './oidc-provider.js';
import { OidcProviders } from './oidc-providers.service.js';

const bodyLimitBytes = 65_536;
const maxValueLength = 16_384;
/** What an answer may say; the rest is nobody's business. */
const answerForm = formOf({
  code: 'What the provider gives tokens for.',
  state: 'Says which sign-in it answers.',
  iss: 'The issuer that answers.',
  error: 'Why the user was not signed in.',
  error_description: 'The same for people.',
  session_state: 'The state of the session at the provider.',
});
const parameters = Object.keys(answerForm.fields) as (keyof InferForm<typeof answerForm>)[];
const logoutForm = formOf({ logout_token: 'Says whose sessions end: signed by the provider.' });

/** Where providers send browsers back to. */
@Controller()
export class OidcController {
  constructor(
    private readonly providers: OidcProviders,
    private readonly cookies: SealedCookies,
    private readonly sessions: SsoSessions,
    private readonly logins: SsoLogin,
    private readonly pages: SsoPages,
    private readonly logouts: BackchannelLogout,
  ) {}

  /** GET /_synapse/client/oidc/callback */
  @Get('/_synapse/client/oidc/callback')
  @Access({ auth: 'none' })
  callback(@Inbound() request: InboundRequest): Promise<HttpReply> {
    return this.#finish(request, (name) => request.query[name]);
  }

  /** POST /_synapse/client/oidc/callback: for providers that answer with a form */
  @Post('/_synapse/client/oidc/callback')
  @Access({ auth: 'none', bodyLimitBytes })
  formCallback(
    @Inbound() request: InboundRequest,
    @FormBody(answerForm) form: InferForm<typeof answerForm>,
  ): Promise<HttpReply> {
    return this.#finish(request, (name) => (form[name].length > 1 ? form[name] : form[name][0]));
  }

  /** POST /_synapse/client/oidc/backchannel_logout: a provider ends sessions */
  @Post('/_synapse/client/oidc/backchannel_logout')
  @Access({ auth: 'none', bodyLimitBytes })
  async logOut(@FormBody(logoutForm) form: InferForm<typeof logoutForm>): Promise<HttpReply> {
    const headers = { 'cache-control': 'no-store' };
    try {
      const [token, ...others] = form.logout_token;
      if (token === undefined) throw MatrixError.missingParam("Missing parameter 'logout_token'");
      if (others.length > 0) throw MatrixError.invalidParam("'logout_token' may be given once only");
      await this.logouts.logOut(token);
      return new HttpReply(200, headers, undefined);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      return HttpReply.json(error.status, error.toBody(), headers);
    }
  }

  async #finish(
    request: InboundRequest,
    read: (name: (typeof parameters)[number]) => string | readonly string[] | undefined,
  ): Promise<HttpReply> {
    let removals: readonly string[] = [];
    const reply = await this.pages.guard(async () => {
      const answer = new URLSearchParams();
      for (const name of parameters) {
        const value = read(name);
        if (value === undefined) continue;
        if (typeof value !== 'string' || value.length > maxValueLength)
          throw new SsoError('invalid_request', 'The sign-in provider sent an answer of the wrong kind.');
        answer.set(name, value);
      }
      const session = this.#sessionOf(request, answer);
      // An answer to another sign-on leaves the one of this browser alone.
      removals = oidcCookies.map(([name, options]) => this.cookies.removal(name, options));
      const error = answer.get('error');
      if (error !== null) throw providerError(error, answer.get('error_description') ?? undefined);
      if (!answer.has('code'))
        throw new SsoError('invalid_request', 'The sign-in provider sent an answer of the wrong kind.');
      const provider = this.providers.find(session.idp);
      if (!provider) throw new SsoError('unknown_idp', 'There is no such sign-in provider here.');
      // An answer counts once, whatever becomes of it.
      if (!(await this.sessions.useOnce(`oidc ${session.state}`, oidcSessionMs))) throw lostSession('invalid_session');
      return this.logins.finish(await provider.signOn(answer, session, request, []));
    });
    return withCookies(reply, removals);
  }

  /** The sign-on that this browser began. */
  #sessionOf(request: InboundRequest, answer: URLSearchParams): OidcSession {
    const kept = oidcCookies.map(([name]) => cookieOf(request, name)).find((one) => one !== undefined && one !== '');
    // What the provider has to complain of may be why there is no session.
    if (kept === undefined && answer.has('error'))
      throw providerError(answer.get('error') ?? '', answer.get('error_description') ?? undefined);
    if (kept === undefined) throw lostSession('missing_session');
    const session = this.cookies.open(oidcSeal, kept) as unknown as OidcSession | undefined;
    if (!session) throw lostSession('invalid_session');
    if (answer.get('state') !== session.state) throw lostSession('mismatching_session');
    return session;
  }
}
