import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { Backfiller } from './backfiller.js';
import { Candidates } from './candidates.js';
import { FederationGateway } from './gateway.js';
import { HandedOver } from './handed-over.js';
import { MembershipHandshake } from './membership-handshake.js';
import { MissingEvents } from './missing-events.js';
import { PastEvents } from './past-events.js';
import { PduChecker } from './pdu-checker.js';
import { PolicyRequests } from './policy-requests.js';
import { RemoteLeaves } from './remote-leaves.js';
import { RemoteDirectory } from './remote-directory.js';
import { RemoteEventByTime } from './remote-event-by-time.js';
import { RemoteInvites } from './remote-invites.js';
import { RemoteJoins } from './remote-joins.js';
import { RemoteState } from './remote-state.js';
import { RoomHosts } from './room-hosts.js';

/** Rooms of other servers: what this one can do in them only with the help of others. */
@Module({
  imports: [FederationClientModule, RoomsModule],
  providers: [
    Backfiller,
    Candidates,
    FederationGateway,
    HandedOver,
    MembershipHandshake,
    MissingEvents,
    PastEvents,
    PduChecker,
    PolicyRequests,
    RemoteLeaves,
    RemoteDirectory,
    RemoteEventByTime,
    RemoteInvites,
    RemoteJoins,
    RemoteState,
    RoomHosts,
  ],
  exports: [FederationGateway, HandedOver, PduChecker, RoomHosts],
})
export class RemoteRoomsModule {}
