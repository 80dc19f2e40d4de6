import { Module } from '@nestjs/common';
import { AccountDataController } from './account-data/account-data.controller.js';
import { AccountController } from './accounts/account.controller.js';
import { AdminRegistrationController } from './accounts/admin-registration.controller.js';
import { RegistrationController } from './accounts/registration.controller.js';
import { DeviceController } from './devices/device.controller.js';
import { OpenIdController } from './openid/openid.controller.js';
import { ProfileController } from './profiles/profile.controller.js';
import { LoginController } from './sessions/login.controller.js';
import { SessionController } from './sessions/session.controller.js';
import { UsersModule } from './users.module.js';

/** The client API of accounts, and shared-secret registration. */
@Module({
  imports: [UsersModule],
  controllers: [
    AccountController,
    AccountDataController,
    AdminRegistrationController,
    DeviceController,
    LoginController,
    OpenIdController,
    ProfileController,
    RegistrationController,
    SessionController,
  ],
})
export class UsersHttpModule {}
