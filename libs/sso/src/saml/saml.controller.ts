import { Controller, Get, Post } from '@nestjs/common';
import { Access, FormBody, formOf, HttpReply, Inbound, type InboundRequest, type InferForm } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { checkClientAddress } from '../common/client-addresses.js';
import { cookieOf, SealedCookies } from '../common/sealed-cookies.js';
import { lostSession, SsoError } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { SsoLogin } from '../login/sso-login.service.js';
import { SsoPages, withCookies } from '../login/sso-pages.js';
import type { SamlClient } from './saml-client.js';
import { samlCookies, SamlProvider, samlSeal, type SamlSession } from './saml-provider.service.js';

const bodyLimitBytes = 262_144;
/** An assertion counts once, longer than any is valid. */
const rememberMs = 86_400_000;

const responseForm = formOf({
  SAMLResponse: 'The answer of the provider, in base64.',
  RelayState: 'The address of the client that is signed in, where the provider began by itself.',
});

/** The addresses of a SAML service provider. */
@Controller()
export class SamlController {
  constructor(
    private readonly provider: SamlProvider,
    private readonly cookies: SealedCookies,
    private readonly sessions: SsoSessions,
    private readonly logins: SsoLogin,
    private readonly pages: SsoPages,
  ) {}

  /** GET /_synapse/client/saml2/metadata.xml */
  @Get('/_synapse/client/saml2/metadata.xml')
  @Access({ auth: 'none' })
  async metadata(): Promise<HttpReply> {
    const xml = await this.#client.metadata();
    return new HttpReply(200, { 'content-type': 'text/xml; charset=utf-8', 'x-content-type-options': 'nosniff' }, xml);
  }

  /** GET /_synapse/client/saml2/authn_response: somebody opened the address by hand */
  @Get('/_synapse/client/saml2/authn_response')
  @Access({ auth: 'none' })
  unexpected(): HttpReply {
    void this.#client;
    return this.pages.error(
      new SsoError('unexpected_get', 'This address is for sign-in providers. Start again in your app.'),
    );
  }

  /** POST /_synapse/client/saml2/authn_response */
  @Post('/_synapse/client/saml2/authn_response')
  @Access({ auth: 'none', bodyLimitBytes })
  async consume(
    @Inbound() request: InboundRequest,
    @FormBody(responseForm) form: InferForm<typeof responseForm>,
  ): Promise<HttpReply> {
    const client = this.#client;
    let removals: readonly string[] = [];
    const reply = await this.pages.guard(async () => {
      const [response, ...others] = form.SAMLResponse;
      if (response === undefined || others.length > 0)
        throw new SsoError('invalid_request', 'The sign-in provider sent an answer of the wrong kind.');
      const session = this.#sessionOf(request);
      const checked = await client.check(response, session?.requestId);
      if (session && checked.inResponseTo !== undefined)
        removals = samlCookies.map(([name, options]) => this.cookies.removal(name, options));
      const purpose =
        checked.inResponseTo !== undefined && session
          ? session.purpose
          : ({ kind: 'login', redirectUrl: clientOf(form.RelayState[0]) } as const);
      if (!(await this.sessions.useOnce(`saml ${checked.id}`, rememberMs))) throw lostSession('invalid_session');
      return this.logins.finish(await this.provider.signOn(checked.response, purpose, request));
    });
    return withCookies(reply, removals);
  }

  get #client(): SamlClient {
    const { client } = this.provider;
    if (!client) throw MatrixError.unrecognized('This server has no sign-in through SAML');
    return client;
  }

  /** The sign-on that this browser began: somebody else's response logs nobody in here. */
  #sessionOf(request: InboundRequest): SamlSession | undefined {
    const kept = samlCookies.map(([name]) => cookieOf(request, name)).find((one) => one !== undefined && one !== '');
    const session = kept === undefined ? undefined : (this.cookies.open(samlSeal, kept) as SamlSession | undefined);
    if (session || this.provider.allowsUnsolicited) return session;
    throw lostSession(kept === undefined ? 'missing_session' : 'invalid_session');
  }
}

/** Where somebody goes who came unasked: the provider says it. @throws SsoError `bad_param` */
function clientOf(relayState: string | undefined): string {
  try {
    checkClientAddress(relayState ?? '');
  } catch (cause) {
    throw new SsoError('bad_param', 'The sign-in provider did not say which app to go to.', 400, { cause });
  }
  return relayState ?? '';
}
