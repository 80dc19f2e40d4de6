import { Module } from '@nestjs/common';
import { CapabilitiesController } from './capabilities.controller.js';
import { FrontPageController } from './front-page.controller.js';
import { ServerVersionController } from './server-version.controller.js';
import { VersionsController } from './versions.controller.js';
import { WellKnownController } from './well-known.controller.js';

/** What this server says about itself. */
@Module({
  controllers: [
    VersionsController,
    CapabilitiesController,
    WellKnownController,
    ServerVersionController,
    FrontPageController,
  ],
})
export class ServerInfoModule {}
