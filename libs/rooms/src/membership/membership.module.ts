import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { SendingModule } from '../sending/sending.module.js';
import { ServersModule } from '../servers/servers.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { ComplexRooms } from './complex-rooms.js';
import { IdentityServers } from './identity-servers.js';
import { InvitePolicy } from './invite-policy.js';
import { InvitePermissions } from './invite-permissions.js';
import { JoinService } from './join.service.js';
import { LeaveService } from './leave.service.js';
import { MemberEvents } from './member-events.js';
import { MemberProfiles } from './member-profiles.js';
import { MembershipService } from './membership.service.js';
import { OutOfBandMemberships } from './out-of-band.js';
import { ProfilePrivacy } from './profile-privacy.js';
import { RestrictedJoins } from './restricted-joins.js';
import { RoomForgetting } from './room-forgetting.js';
import { ThreepidClaims } from './threepid-claims.js';
import { ThreepidInvites } from './threepid-invites.js';

/** Joining, leaving, inviting, knocking, banning. */
@Module({
  imports: [UsersModule, PipelineModule, ReadingModule, RoomStateModule, RoomStoreModule, SendingModule, ServersModule],
  providers: [
    ComplexRooms,
    IdentityServers,
    InvitePolicy,
    InvitePermissions,
    JoinService,
    LeaveService,
    MemberEvents,
    MemberProfiles,
    MembershipService,
    OutOfBandMemberships,
    ProfilePrivacy,
    RestrictedJoins,
    RoomForgetting,
    ThreepidClaims,
    ThreepidInvites,
  ],
  exports: [
    ComplexRooms,
    InvitePolicy,
    InvitePermissions,
    JoinService,
    LeaveService,
    MemberEvents,
    MemberProfiles,
    MembershipService,
    RestrictedJoins,
    RoomForgetting,
    ThreepidClaims,
    ThreepidInvites,
  ],
})
export class MembershipModule {}
