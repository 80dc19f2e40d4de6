import { Injectable } from '@nestjs/common';
import { domainOf, isValidRoomId, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import { RoomPorts, ThreepidInvites } from '@rookery/rooms';
import { AccountService } from '@rookery/users';
import { UnprovenLimits } from '../inbound/unproven-limits.js';
import { ResidentRooms } from '../rooms/resident-rooms.js';

/** An invite to an address that somebody has claimed. */
export interface BoundInvite {
  readonly roomId: string;
  /** Who left the invite. */
  readonly sender: string;
  /** Who has claimed it. */
  readonly userId: string;
  /** What the identity server says to that. */
  readonly signed: JsonObject;
}

/** Turns invites to addresses into invites of users. @spec server-server-api#third-party-invites */
@Injectable()
export class ThreepidExchange {
  readonly #logger: Logger;

  constructor(
    private readonly rooms: ResidentRooms,
    private readonly invites: ThreepidInvites,
    private readonly accounts: AccountService,
    private readonly ports: RoomPorts,
    private readonly unproven: UnprovenLimits,
    private readonly config: Config,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /**
   * Invites a user of another server who has claimed an invite of a local user.
   * @throws MatrixError 400 `M_BAD_JSON` or `M_INVALID_PARAM`, 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED`
   */
  async forServer(origin: string, roomId: string, invite: BoundInvite): Promise<void> {
    if (invite.roomId !== roomId) throw MatrixError.invalidParam('The invite is for another room');
    if (!isValidUserId(invite.userId) || domainOf(invite.userId) !== origin)
      throw MatrixError.forbidden('The invited user is not one of your server');
    await this.rooms.open(origin, roomId);
    await this.unproven.claim(origin);
    await this.#invite(invite);
  }

  /**
   * Claims invites for a local user, as an identity server says: it does not sign its requests, so what it says is believed
   * only as far as its signatures in the invites go. What fails is logged.
   * @param ip of the request: an address is helped no oftener than unproven requests are. Not by the limit for those who invite:
   *   one server speaks for all users, who may have been invited to any number of rooms
   * @throws MatrixError 400 `M_INVALID_PARAM`, 429 `M_LIMIT_EXCEEDED`: some of it may have been done, and nothing is done twice
   */
  async claim(ip: string, userId: string, invites: readonly BoundInvite[]): Promise<void> {
    if (!isValidUserId(userId) || domainOf(userId) !== this.config.serverName || !(await this.accounts.find(userId)))
      throw MatrixError.invalidParam('The user is not one of this server');
    for (const invite of invites) {
      if (invite.userId !== userId || !isValidRoomId(invite.roomId) || !isValidUserId(invite.sender)) continue;
      try {
        await this.unproven.lookUp(ip, JSON.stringify(invite), () => this.#claim(invite));
      } catch (error) {
        if (!MatrixError.is(error) || error.status === 429) throw error;
        this.#logger.info('An invite to an address could not be claimed', {
          ...{ room_id: invite.roomId, user_id: userId, reason: error.message },
        });
      }
    }
  }

  async #claim(invite: BoundInvite): Promise<void> {
    const { roomId, sender, userId, signed } = invite;
    if (domainOf(sender) === this.config.serverName) return this.#invite(invite);
    await this.ports.remoteRooms.given?.membership.claimInvite(roomId, sender, userId, signed);
  }

  async #invite({ roomId, sender, userId, signed }: BoundInvite): Promise<void> {
    if (domainOf(sender) !== this.config.serverName)
      throw MatrixError.forbidden('Whoever left the invite is not a user of this server');
    if (signed['mxid'] !== userId) throw MatrixError.forbidden('The invite was claimed by somebody else');
    await this.invites.exchangeInvite(roomId, sender, userId, signed);
  }
}
