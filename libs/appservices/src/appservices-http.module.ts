import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { AppservicesModule } from './appservices.module.js';
import { PingController } from './queries/ping.controller.js';
import { RoomMembershipController } from './queries/room-membership.controller.js';
import { ThirdPartyController } from './queries/third-party.controller.js';

/** The client API of application services and third-party networks. */
@Module({
  imports: [AppservicesModule, RoomsModule],
  controllers: [PingController, RoomMembershipController, ThirdPartyController],
})
export class AppservicesHttpModule {}
