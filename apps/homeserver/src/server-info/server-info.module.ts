import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { CallsController } from './calls.controller.js';
import { CapabilitiesController } from './capabilities.controller.js';
import { FrontPageController } from './front-page.controller.js';
import { ServerVersionController } from './server-version.controller.js';
import { VersionsController } from './versions.controller.js';
import { WellKnownController } from './well-known.controller.js';

/** What this server says about itself. */
@Module({
  imports: [UsersModule],
  controllers: [
    VersionsController,
    CapabilitiesController,
    CallsController,
    WellKnownController,
    ServerVersionController,
    FrontPageController,
  ],
})
export class ServerInfoModule {}
