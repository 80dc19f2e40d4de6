import { Module } from '@nestjs/common';
import { RoomStoreModule } from '../store/store.module.js';
import { ResolutionBudget } from './resolution-budget.js';
import { RoomStateReader } from './room-state-reader.js';
import { StateGroups } from './state-groups-cache.js';
import { StateResolver } from './state-resolver.js';

/** The state of rooms: groups, resolution, reading. */
@Module({
  imports: [RoomStoreModule],
  providers: [ResolutionBudget, RoomStateReader, StateGroups, StateResolver],
  exports: [RoomStateReader, StateGroups, StateResolver],
})
export class RoomStateModule {}
