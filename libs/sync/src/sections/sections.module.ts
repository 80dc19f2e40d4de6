import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { RoomActivity } from '../caches/room-activity.js';
import { ProfileUpdatesModule } from '../profiles/profile-updates.module.js';
import { AccountDataSection } from './account-data.js';
import { RoomList } from './room-list.js';
import { DevicesSection } from './devices.js';
import { EphemeralSection } from './ephemeral.js';
import { PrejoinSection } from './prejoin.js';
import { ProfilesSection } from './profiles.js';
import { PresenceSection } from './presence.js';
import { RoomsSection } from './rooms.js';
import { RoomsWithNews } from './rooms-with-news.js';
import { EventWriter } from './written-events.js';
import { RoomStates } from './state.js';
import { StickySection } from './sticky.js';
import { SummarySection } from './summary.js';
import { Timelines } from './timeline.js';

/** The parts of an answer of `/sync`. */
@Module({
  imports: [ProfileUpdatesModule, UsersModule, RoomsModule, PushModule, EphemeralModule, E2eeModule],
  providers: [
    RoomActivity,
    AccountDataSection,
    RoomList,
    DevicesSection,
    EphemeralSection,
    PrejoinSection,
    PresenceSection,
    ProfilesSection,
    RoomsSection,
    RoomsWithNews,
    EventWriter,
    RoomStates,
    StickySection,
    SummarySection,
    Timelines,
  ],
  exports: [
    RoomActivity,
    RoomsSection,
    RoomsWithNews,
    AccountDataSection,
    PresenceSection,
    DevicesSection,
    ProfilesSection,
  ],
})
export class SectionsModule {}
