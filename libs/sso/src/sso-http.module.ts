import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { CasController } from './cas/cas.controller.js';
import { NewUserController } from './login/new-user.controller.js';
import { SsoRedirectController } from './login/sso-redirect.controller.js';
import { SsoFallbackController } from './login/uia-fallback.controller.js';
import { ModuleLogoutController } from './modules/module-logout.controller.js';
import { ModuleProviderController } from './modules/module-provider.controller.js';
import { OidcController } from './oidc/oidc.controller.js';
import { SamlController } from './saml/saml.controller.js';
import { SsoModule } from './sso.module.js';

/** The endpoints of single sign-on. All belong to one process. */
@Module({
  imports: [UsersModule, SsoModule],
  controllers: [
    SsoRedirectController,
    SsoFallbackController,
    NewUserController,
    OidcController,
    SamlController,
    CasController,
    ModuleProviderController,
    ModuleLogoutController,
  ],
})
export class SsoHttpModule {}
