import { Injectable } from '@nestjs/common';
import { type RoomEvent, type RoomVersionRules, SigningKey } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { MembershipReader, RestrictedJoins } from '@rookery/rooms';
import { countersigned } from '../rooms/resident-rooms.js';

/** Lets users of other servers into rooms by restricted join rules, in the name of users of this one. */
@Injectable()
export class RestrictedAdmissions {
  constructor(
    private readonly restricted: RestrictedJoins,
    private readonly memberships: MembershipReader,
    private readonly key: SigningKey,
    private readonly config: Config,
  ) {}

  /**
   * The join with this server's signature, where one of its users lets somebody in.
   * @throws MatrixError 403 `M_FORBIDDEN` where nobody does, 413 `M_TOO_LARGE`
   */
  async authorised(rules: RoomVersionRules, event: RoomEvent): Promise<RoomEvent> {
    const via = event.content['join_authorised_via_users_server'];
    const { serverName } = this.config;
    if (!rules.joinRules.restricted || typeof via !== 'string' || domainOf(via) !== serverName) return event;
    await this.authorizer(rules, event.roomId, event.sender);
    return countersigned(event, serverName, this.key);
  }

  /** Who lets somebody in by a restricted join rule; nobody where the user needs nobody. */
  async authorizer(rules: RoomVersionRules, roomId: string, userId: string): Promise<string | undefined> {
    if (!rules.joinRules.restricted) return undefined;
    const membership = await this.memberships.currentOf(roomId, userId);
    // The banned are refused by the auth rules.
    if (membership === 'join' || membership === 'invite' || membership === 'ban') return undefined;
    return this.restricted.authorizerForOthers(roomId, userId);
  }
}
