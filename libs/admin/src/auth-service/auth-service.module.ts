import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { UsersModule } from '@rookery/users';
import { AuthServiceController } from './auth-service.controller.js';
import { ServiceAccounts } from './service-accounts.service.js';
import { ServiceDevices } from './service-devices.service.js';

/** The endpoints for the service that authenticates users, where there is one. */
@Module({
  imports: [UsersModule, E2eeModule],
  controllers: [AuthServiceController],
  providers: [ServiceAccounts, ServiceDevices],
})
export class AuthServiceModule {}
