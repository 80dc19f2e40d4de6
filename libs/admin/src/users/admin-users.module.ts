import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { MediaModule } from '@rookery/media';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { DevicesController } from '../devices/devices.controller.js';
import { AdminKitModule } from '../http/admin-kit.module.js';
import { LookupsController } from '../lookups/lookups.controller.js';
import { RegistrationTokensController } from '../registration-tokens/registration-tokens.controller.js';
import { UserActivityController } from './user-activity.controller.js';
import { UserAllowancesController, UserValidityController } from './user-allowances.controller.js';
import { UserChanges } from './user-changes.service.js';
import { UserController, UserCredentialsController } from './user.controller.js';
import { UserDetails } from './user-details.service.js';
import { UserListController } from './user-list.controller.js';
import { UserMediaController } from './user-media.controller.js';
import { UserRedactionsController } from './user-redactions.controller.js';

/** The admin API of accounts and what belongs to them. */
@Module({
  imports: [AdminKitModule, UsersModule, RoomsModule, PushModule, E2eeModule],
  controllers: [
    UserListController,
    UserController,
    UserActivityController,
    UserAllowancesController,
    UserRedactionsController,
    DevicesController,
    LookupsController,
  ],
  providers: [UserChanges, UserDetails],
  exports: [UserChanges],
})
export class AdminUsersModule {}

/** What there is where this server checks passwords and makes accounts itself, not an authentication service. */
@Module({
  imports: [AdminKitModule, AdminUsersModule, UsersModule],
  controllers: [UserCredentialsController, UserValidityController, RegistrationTokensController],
})
export class AdminCredentialsModule {}

/** The files of users, where this process serves media. */
@Module({ imports: [AdminKitModule, MediaModule], controllers: [UserMediaController] })
export class AdminUserMediaModule {}
