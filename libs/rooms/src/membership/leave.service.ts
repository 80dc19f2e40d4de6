import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import type { SentEvent } from '../model/stored-event.js';
import { RemoteRooms } from '../remote-rooms.js';
import { Participation } from '../sending/participation.js';
import { MemberEvents, type MembershipOptions } from './member-events.js';
import { hasEverBeenNear, isBlocked } from './membership.query.js';
import { OutOfBandMemberships } from './out-of-band.js';
import { RoomForgetting } from './room-forgetting.js';

/** Leaving: rooms, invites and knocks. */
@Injectable()
export class LeaveService {
  constructor(
    private readonly change: MemberEvents,
    private readonly forgetting: RoomForgetting,
    private readonly remote: RemoteRooms,
    private readonly outOfBand: OutOfBandMemberships,
    private readonly database: Database,
    private readonly config: Config,
    private readonly participation: Participation,
  ) {}

  /**
   * Leaves a room, or gives up an invite or a knock. Leaving again changes nothing.
   * @throws MatrixError 403 `M_FORBIDDEN` when the user is banned or never was in the room,
   *   `M_CANNOT_LEAVE_SERVER_NOTICE_ROOM`; 429 `M_LIMIT_EXCEEDED`
   */
  async leave(requester: Requester, roomId: string, options: MembershipOptions = {}): Promise<SentEvent | undefined> {
    const { userId } = requester;
    const current = await this.change.localMembership(roomId, userId);
    const before = current?.membership ?? 'leave';
    if (!current || before === 'leave') {
      if (!(await hasEverBeenNear(this.database, userId, roomId))) throw MatrixError.notInRoom();
      // Whoever had left before that was set.
      if (this.config.get('forget_rooms_on_leave')) await this.forgetting.forgetLeft(userId, roomId);
      return undefined;
    }
    if (before === 'ban') throw MatrixError.forbidden('You are banned from this room');
    if (before === 'invite' && !options.unchecked) await this.participation.assertMayReject(requester, roomId);
    if (!options.unchecked) await this.participation.takeEvent(requester);
    if (!(await this.change.isOurs(roomId))) {
      await this.#leaveElsewhere(roomId, userId, options);
      return undefined;
    }
    // What the room has not heard of ends here alone: it would refuse to hear of the end.
    const isPending = before === 'invite' || before === 'knock';
    if (isPending && (await this.change.isBeside(roomId, userId, current.eventId))) {
      await this.outOfBand.reject(userId, current.eventId, reasonIn(options));
      return undefined;
    }
    return this.change.send(requester, roomId, userId, 'leave', {}, options);
  }

  /**
   * Leaves a room again that was blocked, or is being taken off the server, since another server was asked to let the user in or to take
   * a knock; as {@link leaveClosed}, too.
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_USER_DEACTIVATED` where that is so; as {@link leave}
   */
  async leaveBlocked(requester: Requester, roomId: string): Promise<void> {
    if (await isBlocked(this.database, roomId)) {
      await this.leave(requester, roomId, { unchecked: true });
      throw MatrixError.roomBlocked();
    }
    await this.leaveClosed(requester, roomId);
  }

  /**
   * Leaves a room again, and forgets it, that a user has entered or knocked at whose account was closed meanwhile: who left the rooms of the
   * account may have looked before.
   * @throws MatrixError 403 `M_USER_DEACTIVATED` where that is so; as {@link leave}
   */
  async leaveClosed(requester: Requester, roomId: string): Promise<void> {
    const { userId } = requester;
    if (!(await this.participation.isClosed(userId))) return;
    await this.leave(requester, roomId, { unchecked: true });
    await this.forgetting.forgetLeft(userId, roomId);
    throw MatrixError.userDeactivated();
  }

  /** Tells another server; when none will listen the membership ends here all the same. */
  async #leaveElsewhere(roomId: string, userId: string, options: MembershipOptions): Promise<void> {
    const current = await this.change.localMembership(roomId, userId);
    const inviter = current?.membership === 'invite' ? current.sender : '';
    const servers = [...new Set([domainOf(inviter), domainOf(roomId)])];
    const reason = reasonIn(options);
    const { gateway } = this.remote;
    try {
      if (gateway) return await gateway.membership.leave(userId, roomId, servers.filter(Boolean), reason);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
    }
    if (current) await this.outOfBand.reject(userId, current.eventId, reason);
  }
}

const reasonIn = ({ reason }: MembershipOptions): JsonObject => (reason === undefined ? {} : { reason });
