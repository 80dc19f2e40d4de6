import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { EventByTime } from './event-by-time.service.js';
import { RedactedContent } from './redacted-content.service.js';
import { RoomAccess } from './room-access.js';
import { RoomReadingService } from './room-reading.service.js';

/** Reading a room as one of its users, or as whoever may look in. */
@Module({
  imports: [UsersModule, ReadingModule, RoomStateModule, RoomStoreModule],
  providers: [EventByTime, RedactedContent, RoomAccess, RoomReadingService],
  exports: [EventByTime, RedactedContent, RoomAccess, RoomReadingService],
})
export class HistoryModule {}
