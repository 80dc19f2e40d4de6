import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { SsoAddresses } from './common/sso-addresses.js';
import { SealedCookies } from './common/sealed-cookies.js';
import { SsoSessions } from './common/sso-sessions.js';
import { ProviderHttp } from './providers/provider-http.js';
import { IdentityProviders } from './providers/identity-providers.js';
import { OidcProviders } from './oidc/oidc-providers.service.js';
import { BackchannelLogout } from './oidc/backchannel-logout.service.js';
import { SamlProvider } from './saml/saml-provider.service.js';
import { CasProvider } from './cas/cas-provider.service.js';
import { ModuleProviders } from './modules/module-providers.service.js';
import { ProviderTokens } from './modules/provider-tokens.service.js';

const services = [
  SsoAddresses,
  SealedCookies,
  SsoSessions,
  ProviderHttp,
  IdentityProviders,
  OidcProviders,
  BackchannelLogout,
  SamlProvider,
  CasProvider,
  ModuleProviders,
  ProviderTokens,
];

/** The providers of the settings and of modules, and what passes between them and this server. */
@Module({ imports: [UsersModule], providers: services, exports: services })
export class SsoProvidersModule {}
