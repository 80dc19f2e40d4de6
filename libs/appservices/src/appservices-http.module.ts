import { Module } from '@nestjs/common';
import { AppservicesModule } from './appservices.module.js';
import { PingController } from './queries/ping.controller.js';
import { ThirdPartyController } from './queries/third-party.controller.js';

/** The client API of application services and third-party networks. */
@Module({ imports: [AppservicesModule], controllers: [PingController, ThirdPartyController] })
export class AppservicesHttpModule {}
