import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { SsoHandover } from './login/handover.service.js';
import { SsoPorts } from './ports.js';
import { Avatars } from './login/avatars.service.js';
import { SsoPages } from './login/sso-pages.js';
import { SsoProfiles } from './login/sso-profiles.service.js';
import { NewUserSessions } from './login/new-user-sessions.js';
import { NewUsers } from './login/new-users.service.js';
import { SsoLogin } from './login/sso-login.service.js';
import { SsoProvidersModule } from './sso-providers.module.js';

const services = [SsoHandover, Avatars, SsoPages, SsoPorts, SsoProfiles, NewUserSessions, NewUsers, SsoLogin];

/**
 * Sign-on at the providers of the settings and of modules. Needs `Pages`, `Lifecycle`, `Metrics` and `ModuleDispatcher` from the app's
 * global modules, beside what `UsersModule` needs.
 */
@Module({
  imports: [UsersModule, SsoProvidersModule],
  providers: services,
  exports: [...services, SsoProvidersModule],
})
export class SsoModule {}
