import { Controller, Get } from '@nestjs/common';
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
import { Config } from '@rookery/platform';
import { UiaService } from '@rookery/users';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { idpValues, SsoPages } from './sso-pages.js';

const showQuery = queryOf({
  session: param.string('The session of interactive auth.', { required: true }),
  'io.element.idp_id': param.string('The provider to use, of several (MSC4450).'),
});

/** Confirming an operation of interactive auth by single sign-on. @spec client-server-api#single-sign-on */
@Controller()
export class SsoFallbackController {
  constructor(
    private readonly uia: UiaService,
    private readonly providers: IdentityProviders,
    private readonly addresses: SsoAddresses,
    private readonly pages: SsoPages,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/v3/auth/m.login.sso/fallback/web */
  @Get(stable('/auth/m.login.sso/fallback/web'))
  @Access({ auth: 'none' })
  async show(
    @Inbound() request: InboundRequest,
    @Query(showQuery) query: InferQuery<typeof showQuery>,
  ): Promise<HttpReply> {
    const { session } = query;
    // MSC4450: somebody who has several providers may say which.
    const wanted = this.config.get('experimental_features.msc4450_enabled') ? query['io.element.idp_id'] : undefined;
    const begun = await this.uia.describe(session);
    if (!begun) throw MatrixError.noSuchSession();
    const elsewhere = this.addresses.redirectFor(request);
    if (elsewhere !== undefined) return HttpReply.redirect(elsewhere);
    return this.pages.guard(async () => {
      const known = begun.userId === undefined ? [] : await this.providers.ofUser(begun.userId);
      const provider = wanted === undefined ? known[0] : known.find(({ id }) => id === wanted);
      if (!provider) throw new SsoError('no_user', 'Your account is not known by a sign-in provider of this server.');
      const { location, cookies } = await provider.begin({ kind: 'uia', session }, request);
      return this.pages.page(
        200,
        'sso_auth_confirm.html',
        { redirect_url: location, description: begun.description, idp: idpValues(provider) },
        { cookies },
      );
    });
  }
}
