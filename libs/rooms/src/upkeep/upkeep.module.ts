import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { CreationModule } from '../creation/creation.module.js';
import { MembershipModule } from '../membership/membership.module.js';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { GroupRemoval } from './group-removal.js';
import { HistoryRemoval } from './history-removal.js';
import { PurgeService } from './purge.service.js';
import { ReplacementRooms } from './replacement-rooms.js';
import { RoomAccountData } from './room-account-data.js';
import { RoomBlocking } from './room-blocking.service.js';
import { RoomRepair } from './room-repair.service.js';
import { RoomShutdown } from './room-shutdown.service.js';
import { RoomTasks } from './room-tasks.js';

/** Purging, shutting down, blocking and mending rooms. */
@Module({
  imports: [
    CreationModule,
    MembershipModule,
    PipelineModule,
    ReadingModule,
    RoomStateModule,
    RoomStoreModule,
    UsersModule,
  ],
  providers: [
    GroupRemoval,
    HistoryRemoval,
    PurgeService,
    ReplacementRooms,
    RoomAccountData,
    RoomBlocking,
    RoomRepair,
    RoomShutdown,
    RoomTasks,
  ],
  exports: [PurgeService, RoomBlocking, RoomRepair, RoomShutdown, RoomTasks],
})
export class UpkeepModule {}
