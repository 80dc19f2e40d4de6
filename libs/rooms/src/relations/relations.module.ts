import { Module } from '@nestjs/common';
import { HistoryModule } from '../history/history.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { RelationsService } from './relations.service.js';

/** What relates to an event. */
@Module({
  imports: [HistoryModule, ReadingModule, RoomStoreModule],
  providers: [RelationsService],
  exports: [RelationsService],
})
export class RelationsModule {}
