import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { FederationGateway } from './gateway.js';
import { MembershipHandshake } from './membership-handshake.js';
import { MissingAncestors } from './missing-ancestors.js';
import { PolicyRequests } from './policy-requests.js';
import { RemoteLeaves } from './remote-leaves.js';
import { RemoteDirectory } from './remote-directory.js';
import { RemoteHistoryModule } from './remote-history.module.js';
import { RemoteMembership } from './remote-membership.js';
import { RemoteInvites } from './remote-invites.js';
import { RemoteJoins } from './remote-joins.js';
import { StateCompleter } from './state-completer.js';

/** Rooms of other servers: what this one can do in them only with the help of others. */
@Module({
  imports: [FederationClientModule, RoomsModule, RemoteHistoryModule],
  providers: [
    FederationGateway,
    MembershipHandshake,
    MissingAncestors,
    PolicyRequests,
    RemoteLeaves,
    RemoteDirectory,
    RemoteInvites,
    RemoteJoins,
    RemoteMembership,
    StateCompleter,
  ],
  exports: [FederationGateway, RemoteHistoryModule, RemoteJoins],
})
export class RemoteRoomsModule {}
