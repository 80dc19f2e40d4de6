import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { AdminKitModule } from '../http/admin-kit.module.js';
import { RoomDeletionController } from './room-deletion.controller.js';
import { RoomHistoryController } from './room-history.controller.js';
import { RoomJoining } from './room-joining.js';
import { RoomListController } from './room-list.controller.js';
import { RoomTargets } from './room-targets.js';
import { RoomUpkeepController } from './room-upkeep.controller.js';

/** The admin API's part about rooms. */
@Module({
  imports: [RoomsModule, AdminKitModule],
  controllers: [RoomListController, RoomHistoryController, RoomDeletionController, RoomUpkeepController],
  providers: [RoomJoining, RoomTargets],
  exports: [RoomTargets],
})
export class AdminRoomsModule {}
