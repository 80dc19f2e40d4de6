import { Module } from '@nestjs/common';
import { AccountDataController } from './http/account-data.controller.js';
import { AccountController } from './http/account.controller.js';
import { AccountModerationController } from './http/account-moderation.controller.js';
import { AccountStatusController } from './http/account-status.controller.js';
import { AccountRenewalController } from './http/account-renewal.controller.js';
import { AdminRegistrationController } from './http/admin-registration.controller.js';
import { RegistrationController } from './http/registration.controller.js';
import { ConsentController } from './http/consent.controller.js';
import { DeviceController } from './http/device.controller.js';
import { OpenIdController } from './http/openid.controller.js';
import { ProfileController } from './http/profile.controller.js';
import { AuthMetadataController } from './http/auth-metadata.controller.js';
import { LoginFallbackController } from './http/login-fallback.controller.js';
import { LoginController } from './http/login.controller.js';
import { SessionController } from './http/session.controller.js';
import { SubmitTokenController } from './http/submit-token.controller.js';
import { ThreepidController } from './http/threepid.controller.js';
import { FallbackController } from './http/fallback.controller.js';
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
