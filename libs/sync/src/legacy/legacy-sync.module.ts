import { Module } from '@nestjs/common';
import { EphemeralModule } from '@rookery/ephemeral';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { SectionsModule } from '../sections/sections.module.js';
import { SyncAnswersModule } from '../sync-answers.module.js';
import { LegacySyncController } from './legacy-sync.controller.js';
import { LegacySyncService } from './legacy-sync.service.js';
import { RoomCompany } from './room-company.js';
import { RoomInitialSync } from './room-initial-sync.js';
import { RoomNews } from './room-news.js';

/** What clients used before `/sync`. */
@Module({
  imports: [SyncAnswersModule, SectionsModule, UsersModule, RoomsModule, EphemeralModule],
  controllers: [LegacySyncController],
  providers: [LegacySyncService, RoomCompany, RoomInitialSync, RoomNews],
})
export class LegacySyncModule {}
