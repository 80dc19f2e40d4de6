import { Module } from '@nestjs/common';
import { HistoryModule } from '../history/history.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { Reports } from './reports.service.js';

/** Reports of events, rooms and users. */
@Module({
  imports: [HistoryModule, ReadingModule, RoomStoreModule],
  providers: [Reports],
  exports: [Reports],
})
export class ReportsModule {}
