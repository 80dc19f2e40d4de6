import { Module } from '@nestjs/common';
import { AccountDataModule } from './account-data/account-data.module.js';
import { AccountsModule } from './accounts/accounts.module.js';
import { AuthenticationModule } from './authentication/authentication.module.js';
import { ExperimentalFeatures } from './experimental/experimental-features.js';
import { LoginModule } from './login/login.module.js';
import { OpenIdService } from './openid/openid.service.js';
import { ProfilesModule } from './profiles/profiles.module.js';
import { RegistrationModule } from './registration/registration.module.js';
import { SessionsModule } from './sessions/sessions.module.js';
import { ThreepidsModule } from './threepids/threepids.module.js';
import { UiaModule } from './uia/uia.module.js';
import { ExpiredRows } from './upkeep/expired-rows.js';
import { UsageModule } from './usage/usage.module.js';
import { UserHooksModule } from './user-hooks.module.js';

const activities = [
  UserHooksModule,
  ProfilesModule,
  AccountDataModule,
  ThreepidsModule,
  UsageModule,
  SessionsModule,
  AccountsModule,
  AuthenticationModule,
  LoginModule,
  UiaModule,
  RegistrationModule,
];

/**
 * Accounts, sessions, profiles and what belongs to them; safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`,
 * `Logger`, `RateLimiter`, `Notifier`, `OutboundHttp` and `ModuleDispatcher` from the app's global modules.
 */
@Module({
  imports: activities,
  providers: [ExperimentalFeatures, ExpiredRows, OpenIdService],
  exports: [...activities, ExperimentalFeatures, OpenIdService],
})
export class UsersModule {}
