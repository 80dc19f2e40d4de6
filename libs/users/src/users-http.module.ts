import { Module } from '@nestjs/common';
import { AccountDataController } from './account-data/account-data.controller.js';
import { AccountController } from './accounts/account.controller.js';
import { AccountModerationController } from './accounts/account-moderation.controller.js';
import { AccountStatusController } from './accounts/account-status.controller.js';
import { AccountRenewalController } from './accounts/account-renewal.controller.js';
import { AdminRegistrationController } from './accounts/admin-registration.controller.js';
import { RegistrationController } from './accounts/registration.controller.js';
import { ConsentController } from './consent/consent.controller.js';
import { DeviceController } from './devices/device.controller.js';
import { OpenIdController } from './openid/openid.controller.js';
import { ProfileController } from './profiles/profile.controller.js';
import { AuthMetadataController } from './sessions/auth-metadata.controller.js';
import { LoginFallbackController } from './sessions/login-fallback.controller.js';
import { LoginController } from './sessions/login.controller.js';
import { SessionController } from './sessions/session.controller.js';
import { SubmitTokenController } from './threepids/submit-token.controller.js';
import { ThreepidController } from './threepids/threepid.controller.js';
import { FallbackController } from './uia/fallback.controller.js';
import { UsersModule } from './users.module.js';

/** The client API of accounts, and shared-secret registration; needs `Pages` from the app's global modules. */
@Module({
  imports: [UsersModule],
  controllers: [
    AccountController,
    AccountDataController,
    AccountModerationController,
    AccountRenewalController,
    AccountStatusController,
    AdminRegistrationController,
    AuthMetadataController,
    ConsentController,
    DeviceController,
    FallbackController,
    LoginController,
    LoginFallbackController,
    OpenIdController,
    ProfileController,
    RegistrationController,
    SessionController,
    SubmitTokenController,
    ThreepidController,
  ],
})
export class UsersHttpModule {}
