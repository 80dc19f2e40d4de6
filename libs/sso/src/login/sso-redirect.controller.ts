import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  stable,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { checkClientAddress } from '../common/client-addresses.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import type { IdentityProvider } from '../providers/identity-provider.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { idpValues, redirectWith, SsoPages } from './sso-pages.js';

const redirectUrl = param.string('Where the client is to be told; it has to be there.');
const redirectQuery = queryOf({ redirectUrl });
type RedirectQuery = InferQuery<typeof redirectQuery>;
const pickQuery = queryOf({
  redirectUrl,
  idp: param.string('The provider that was chosen.'),
});

/** Where clients send browsers to sign on. */
@Controller()
export class SsoRedirectController {
  constructor(
    private readonly providers: IdentityProviders,
    private readonly addresses: SsoAddresses,
    private readonly pages: SsoPages,
  ) {}

  /** GET /_matrix/client/v3/login/sso/redirect */
  @Get(stable('/login/sso/redirect'))
  @Access({ auth: 'none' })
  async redirect(@Inbound() request: InboundRequest, @Query(redirectQuery) query: RedirectQuery): Promise<HttpReply> {
    const [first, ...others] = this.providers.all;
    if (!first) throw MatrixError.unrecognized('This server has no single sign-on');
    if (others.length === 0) return this.#begin(request, query, first);
    const redirectUrl = clientAddress(query);
    return (
      this.#elsewhere(request) ?? HttpReply.redirect(this.addresses.urlOf('_synapse/client/pick_idp', { redirectUrl }))
    );
  }

  /** GET /_matrix/client/v3/login/sso/redirect/{idpId} */
  @Get(stable('/login/sso/redirect/:idpId'))
  @Access({ auth: 'none' })
  async redirectTo(
    @Inbound() request: InboundRequest,
    @Query(redirectQuery) query: RedirectQuery,
    @Param('idpId') id: string,
  ): Promise<HttpReply> {
    const provider = this.providers.find(id);
    if (!provider) return this.pages.error(new SsoError('unknown_idp', 'There is no such sign-in provider here.', 404));
    return this.#begin(request, query, provider);
  }

  /** GET /_matrix/client/v3/login/cas/redirect */
  @Get(stable('/login/cas/redirect'))
  @Access({ auth: 'none' })
  async redirectToCas(
    @Inbound() request: InboundRequest,
    @Query(redirectQuery) query: RedirectQuery,
  ): Promise<HttpReply> {
    const provider = this.providers.find('cas');
    if (!provider) throw MatrixError.unrecognized('This server has no sign-in through CAS');
    return this.#begin(request, query, provider);
  }

  /** GET /_synapse/client/pick_idp: the choice of a provider, and what was chosen */
  @Get('/_synapse/client/pick_idp')
  @Access({ auth: 'none' })
  async pick(@Query(pickQuery) query: InferQuery<typeof pickQuery>): Promise<HttpReply> {
    if (this.providers.all.length === 0) throw MatrixError.unrecognized('This server has no single sign-on');
    const redirectUrl = clientAddress(query);
    if (query.idp !== undefined) {
      const provider = this.providers.find(query.idp);
      if (!provider) return this.pages.error(new SsoError('unknown_idp', 'There is no such sign-in provider here.'));
      const path = `_matrix/client/v3/login/sso/redirect/${encodeURIComponent(provider.id)}`;
      return HttpReply.redirect(this.addresses.urlOf(path, { redirectUrl }));
    }
    const providers = this.providers.all.map(idpValues);
    // The choice leads to the provider's site.
    return this.pages.page(
      200,
      'sso_login_idp_picker.html',
      { redirect_url: redirectUrl, providers },
      { formsLeadAway: true },
    );
  }

  async #begin(request: InboundRequest, query: RedirectQuery, provider: IdentityProvider): Promise<HttpReply> {
    const redirectUrl = clientAddress(query);
    const elsewhere = this.#elsewhere(request);
    if (elsewhere) return elsewhere;
    return this.pages.guard(async () => {
      const { location, cookies } = await provider.begin({ kind: 'login', redirectUrl }, request);
      return redirectWith(location, cookies);
    });
  }

  #elsewhere(request: InboundRequest): HttpReply | undefined {
    const location = this.addresses.redirectFor(request);
    return location === undefined ? undefined : HttpReply.redirect(location);
  }
}

/** @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM` */
function clientAddress({ redirectUrl: url }: RedirectQuery): string {
  if (url === undefined) throw MatrixError.missingParam("Missing query parameter 'redirectUrl'");
  checkClientAddress(url);
  return url;
}
