import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { RoomActivity } from './caches/room-activity.js';
import { AccountDataSection } from './sections/account-data.js';
import { RoomList } from './sections/room-list.js';
import { DevicesSection } from './sections/devices.js';
import { EphemeralSection } from './sections/ephemeral.js';
import { PrejoinSection } from './sections/prejoin.js';
import { PresenceSection } from './sections/presence.js';
import { RoomsSection } from './sections/rooms.js';
import { EventWriter } from './sections/written-events.js';
import { RoomStates } from './sections/state.js';
import { StickySection } from './sections/sticky.js';
import { SummarySection } from './sections/summary.js';
import { Timelines } from './sections/timeline.js';
import { RoomFactsCache } from './caches/room-facts.js';
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
import { StickyUpdates } from './sliding/sticky-updates.js';
import { ThreadUpdatesController } from './sliding/thread-updates.controller.js';
import { ThreadUpdatesReader } from './sliding/thread-updates.js';
import { SyncController } from './sync.controller.js';
import { SyncResponses } from './sync-responses.js';
import { SyncService } from './sync.service.js';

/** `/sync`. */
@Module({
  imports: [UsersModule, RoomsModule, PushModule, EphemeralModule, E2eeModule],
  controllers: [SyncController, SlidingSyncController, ThreadUpdatesController, LegacySyncController],
  providers: [
    RoomActivity,
    RoomList,
    Timelines,
    RoomStates,
    SummarySection,
    RoomsSection,
    AccountDataSection,
    EphemeralSection,
    PrejoinSection,
    StickySection,
    PresenceSection,
    DevicesSection,
    EventWriter,
    SyncResponses,
    SyncService,
    LegacySyncService,
    RoomFactsCache,
    RoomsOfUser,
    SlidingConnections,
    RoomDetailsReader,
    RoomAnswerWriter,
    Extensions,
    StickyUpdates,
    ThreadUpdatesReader,
    SlidingDrafts,
    SlidingSyncService,
  ],
})
export class SyncModule {}
