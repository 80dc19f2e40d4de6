import { Injectable } from '@nestjs/common';
import { Config } from '@rookery/platform';
import { type RemoteRoomGateway, RoomPorts } from '@rookery/rooms';
import { MissingAncestors } from './missing-ancestors.js';
import { PolicyRequests } from './policy-requests.js';
import { RemoteDirectory } from './remote-directory.js';
import { RemoteHistory } from './remote-history.js';
import { RemoteMembership } from './remote-membership.js';

/** Connects rooms with other servers, unless the settings allow to speak with none. */
@Injectable()
export class FederationGateway implements RemoteRoomGateway {
  constructor(
    readonly membership: RemoteMembership,
    readonly directory: RemoteDirectory,
    readonly history: RemoteHistory,
    readonly policyServers: PolicyRequests,
    missing: MissingAncestors,
    ports: RoomPorts,
    config: Config,
  ) {
    if (config.get('federation_domain_whitelist')?.length === 0) return;
    ports.remoteRooms.give(this);
    ports.missingEvents.give(missing);
  }
}
