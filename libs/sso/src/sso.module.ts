import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { CasProvider } from './cas/cas-provider.service.js';
import { SealedCookies } from './common/sealed-cookies.js';
import { SsoAddresses } from './common/sso-addresses.js';
import { SsoSessions } from './common/sso-sessions.js';
import { Avatars } from './login/avatars.service.js';
import { SsoHandover } from './login/handover.service.js';
import { NewUsers } from './login/new-users.service.js';
import { SsoLogin } from './login/sso-login.service.js';
import { SsoPages } from './login/sso-pages.js';
import { SsoProfiles } from './login/sso-profiles.service.js';
import { ModuleProviders } from './modules/module-providers.service.js';
import { ProviderTokens } from './modules/provider-tokens.service.js';
import { BackchannelLogout } from './oidc/backchannel-logout.service.js';
import { OidcProviders } from './oidc/oidc-providers.service.js';
import { IdentityProviders } from './providers/identity-providers.js';
import { ProviderHttp } from './providers/provider-http.js';
import { SamlProvider } from './saml/saml-provider.service.js';

const exported = [SsoHandover, IdentityProviders, Avatars];

const services = [
  ...exported,
  SsoAddresses,
  SealedCookies,
  SsoSessions,
  SsoPages,
  SsoProfiles,
  NewUsers,
  SsoLogin,
  ProviderHttp,
  OidcProviders,
  BackchannelLogout,
  SamlProvider,
  CasProvider,
  ModuleProviders,
  ProviderTokens,
];

/**
 * Sign-on at the providers of the settings and of modules. Needs `Pages`, `Lifecycle`, `Metrics` and `ModuleDispatcher` from the app's
 * global modules, beside what `UsersModule` needs.
 */
@Module({ imports: [UsersModule], providers: services, exports: services })
export class SsoModule {}
