import { Module } from '@nestjs/common';
import { UsageModule } from '../usage/usage.module.js';
import { UserHooksModule } from '../user-hooks.module.js';
import { AppserviceDirectory } from './appservice-directory.js';
import { ClientActivity } from './client-activity.js';
import { DeviceService } from './device.service.js';
import { SessionService } from './session.service.js';
import { SessionCaches } from './user-cache.js';

/** Sessions and the devices that have them. */
@Module({
  imports: [UsageModule, UserHooksModule],
  providers: [AppserviceDirectory, ClientActivity, DeviceService, SessionCaches, SessionService],
  exports: [AppserviceDirectory, ClientActivity, DeviceService, SessionService],
})
export class SessionsModule {}
