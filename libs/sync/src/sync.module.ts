import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { RoomFactsCache } from './caches/room-facts.js';
import { LegacySyncModule } from './legacy/legacy-sync.module.js';
import { ConnectionSweep } from './sliding/connection-sweep.js';
import { SlidingConnections } from './sliding/connections.js';
import { Extensions } from './sliding/extensions.js';
import { RoomAnswerWriter } from './sliding/room-answers.js';
import { RoomDetailsReader } from './sliding/room-details.js';
import { RoomsOfUser } from './sliding/rooms-of-user.js';
import { SlidingDrafts } from './sliding/sliding-drafts.js';
import { SlidingSyncController } from './sliding/sliding-sync.controller.js';
import { SlidingSyncService } from './sliding/sliding-sync.service.js';
import { ThreadUpdatesController } from './sliding/thread-updates.controller.js';
import { SectionsModule } from './sections/sections.module.js';
import { UnstableExtensionsModule } from './sliding/unstable-extensions.module.js';
import { SyncAnswersModule } from './sync-answers.module.js';
import { SyncController } from './sync.controller.js';

/** `/sync`. */
@Module({
  imports: [
    LegacySyncModule,
    SectionsModule,
    SyncAnswersModule,
    UnstableExtensionsModule,
    UsersModule,
    RoomsModule,
    PushModule,
    EphemeralModule,
    E2eeModule,
  ],
  controllers: [SyncController, SlidingSyncController, ThreadUpdatesController],
  providers: [
    RoomFactsCache,
    RoomsOfUser,
    SlidingConnections,
    ConnectionSweep,
    RoomDetailsReader,
    RoomAnswerWriter,
    Extensions,
    SlidingDrafts,
    SlidingSyncService,
  ],
})
export class SyncModule {}
