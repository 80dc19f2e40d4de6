import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { CreationModule } from '../creation/creation.module.js';
import { DirectoryModule } from '../directory/directory.module.js';
import { MembershipModule } from '../membership/membership.module.js';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { AutoAcceptInvites } from './auto-accept.service.js';
import { AutoJoinRooms } from './auto-join-rooms.js';
import { AutoJoins } from './auto-joins.js';
import { InviteAcceptance } from './invite-acceptance.js';
import { LeaveOnDeactivation } from './leave-on-deactivation.js';
import { GuestEviction } from './guest-eviction.service.js';
import { ProfilePropagation } from './profile-propagation.js';
import { ShownProfiles } from './shown-profiles.js';

/** What becomes of rooms when accounts come, change and go, in the process that writes events. */
@Module({
  imports: [
    UsersModule,
    CreationModule,
    DirectoryModule,
    MembershipModule,
    PipelineModule,
    ReadingModule,
    RoomStateModule,
    RoomStoreModule,
  ],
  providers: [
    AutoAcceptInvites,
    InviteAcceptance,
    AutoJoinRooms,
    AutoJoins,
    LeaveOnDeactivation,
    GuestEviction,
    ProfilePropagation,
    ShownProfiles,
  ],
  exports: [ProfilePropagation],
})
export class RoomAccountsModule {}
