import { Module } from '@nestjs/common';
import { RoomStateModule } from '../state/state.module.js';
import { ReportLibrary } from './report-library.service.js';
import { RoomLibrary } from './room-library.service.js';

/** Rooms and reports as administrators list them. */
@Module({
  imports: [RoomStateModule],
  providers: [ReportLibrary, RoomLibrary],
  exports: [ReportLibrary, RoomLibrary],
})
export class AdministrationModule {}
