import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { SuccessorData } from './successor-data.js';

/** What goes along into the room that replaces another, in the process that writes events. */
@Module({
  imports: [UsersModule, ReadingModule, RoomStateModule, RoomStoreModule],
  providers: [SuccessorData],
})
export class SuccessorDataModule {}
