import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { domainOf, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { RemoteRooms } from '../remote-rooms.js';
import { MemberEvents } from './member-events.js';
import { ThreepidInvites } from './threepid-invites.js';

/** Proof that a user owns an address that was invited, as an identity server gives it out. */
export interface SignedClaim extends Readonly<JsonObject> {
  /** Who left the invite. */
  readonly sender: string;
  /** Who has claimed it. */
  readonly mxid: string;
  readonly token: string;
}

/** Invites to addresses that users of this server claim with a join. */
@Injectable()
export class ThreepidClaims {
  constructor(
    private readonly invites: ThreepidInvites,
    private readonly members: MemberEvents,
    private readonly remote: RemoteRooms,
    private readonly limiter: RateLimiter,
    private readonly config: Config,
  ) {}

  /**
   * Invites a user of this server who shows that an invite to an address is theirs, so that they can join. Only the server of whoever
   * left it can do so, in their name: another one is asked. Where this server talks with no other nothing is done. The limits of
   * joins are all that holds whoever was invited to many rooms.
   * @throws MatrixError 403 `M_FORBIDDEN`, 429 `M_LIMIT_EXCEEDED`; other refusals of the other server
   * @spec client-server-api#post_matrixclientv3roomsroomidjoin
   */
  async claim(requester: Requester, roomId: string, signed: SignedClaim): Promise<void> {
    const { userId } = requester;
    const { sender, mxid } = signed;
    if (mxid !== userId) throw MatrixError.forbidden('The invite was claimed by somebody else');
    const membership = (await this.members.localMembership(roomId, userId))?.membership;
    if (membership === 'join' || membership === 'invite' || !isValidUserId(sender)) return;
    if (domainOf(sender) === this.config.serverName) return this.invites.exchangeInvite(roomId, sender, userId, signed);
    const { gateway } = this.remote;
    if (!gateway) return;
    await this.limiter.take('rc_joins.remote', userId, requester);
    try {
      await gateway.membership.claimInvite(roomId, sender, userId, signed);
    } catch (error) {
      // Where nobody can be asked the join says what comes of it: they may be let in all the same.
      if (!MatrixError.is(error) || error.status < 500) throw error;
    }
  }
}
