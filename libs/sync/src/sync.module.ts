import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { RoomFactsCache } from './caches/room-facts.js';
import { LazyMemberMemories } from './request/device-members.js';
import { KeptAnswers } from './request/kept-answers.js';
import { TokenPlaces } from './request/token-places.js';
import { LegacySyncController } from './legacy/legacy-sync.controller.js';
import { LegacySyncService } from './legacy/legacy-sync.service.js';
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
import { SyncController } from './sync.controller.js';
import { SyncResponses } from './sync-responses.js';
import { SyncService } from './sync.service.js';

/** `/sync`. */
@Module({
  imports: [
    SectionsModule,
    UnstableExtensionsModule,
    UsersModule,
    RoomsModule,
    PushModule,
    EphemeralModule,
    E2eeModule,
  ],
  controllers: [SyncController, SlidingSyncController, ThreadUpdatesController, LegacySyncController],
  providers: [
    KeptAnswers,
    LazyMemberMemories,
    SyncResponses,
    TokenPlaces,
    SyncService,
    LegacySyncService,
    RoomFactsCache,
    RoomsOfUser,
    SlidingConnections,
    RoomDetailsReader,
    RoomAnswerWriter,
    Extensions,
    SlidingDrafts,
    SlidingSyncService,
  ],
})
export class SyncModule {}
