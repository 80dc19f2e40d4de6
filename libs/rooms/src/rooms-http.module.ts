import { Module } from '@nestjs/common';
import { CreateRoomController } from './creation/create-room.controller.js';
import { AliasController } from './directory/alias.controller.js';
import { HistoryController } from './history/history.controller.js';
import { MembershipController } from './membership/membership.controller.js';
import { RoomsModule } from './rooms.module.js';
import { SendController } from './sending/send.controller.js';

/** The rooms part of the client API. */
@Module({
  imports: [RoomsModule],
  controllers: [AliasController, CreateRoomController, HistoryController, MembershipController, SendController],
})
export class RoomsHttpModule {}
