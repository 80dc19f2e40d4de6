import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, isMembership, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { InvitePolicy } from './invite-policy.js';
import { JoinService } from './join.service.js';
import { MemberProfiles } from './member-profiles.js';
import { MemberEvents, type MembershipOptions } from './member-events.js';
import { Participation } from '../sending/participation.js';
import type { SentEvent } from '../model/stored-event.js';
import { forget, roomExists, hasEverBeenNear } from './membership.query.js';
import { OutOfBandMemberships } from './out-of-band.js';
import { RemoteRooms } from '../remote-rooms.js';

/** Inviting, leaving, kicking, banning, forgetting. */
@Injectable()
export class MembershipService {
  // Twelve parameters: each way in and out of a room asks somebody else whether and how.
  constructor(
    private readonly change: MemberEvents,
    private readonly joins: JoinService,
    private readonly profiles: MemberProfiles,
    private readonly policy: InvitePolicy,
    private readonly remote: RemoteRooms,
    private readonly outOfBand: OutOfBandMemberships,
    private readonly hooks: RoomHooks,
    private readonly creation: EventCreation,
    private readonly database: Database,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly participation: Participation,
  ) {}

  /**
   * Invites a user. A module may have it that this only looks so: then there is no event.
   * @throws MatrixError 403 `M_FORBIDDEN` or `M_INVITE_BLOCKED`, 429 `M_LIMIT_EXCEEDED`
   */
  async invite(
    requester: Requester,
    roomId: string,
    target: string,
    options: MembershipOptions = {},
  ): Promise<SentEvent | undefined> {
    checkTarget(target);
    if (!options.unchecked) await this.participation.assertMaySend(requester);
    if (requester.shadowBanned) return this.creation.pretend(requester, roomId);
    if (!options.unchecked && !(await this.policy.check(requester, target, roomId))) {
      const isMember = (await this.change.currentOf(roomId, requester.userId)) === 'join';
      if (!isMember) throw MatrixError.notInRoom();
      return undefined;
    }
    if (domainOf(target) !== this.config.serverName) await this.#assertReachable(roomId);
    const content = await this.profiles.ofInvited(target);
    return this.change.send(requester, roomId, target, 'invite', content, options);
  }

  /**
   * Leaves a room, or gives up an invite or a knock. Leaving again changes nothing.
   * @throws MatrixError 403 `M_FORBIDDEN` when the user is banned or never was in the room,
   *   `M_CANNOT_LEAVE_SERVER_NOTICE_ROOM`
   */
  async leave(requester: Requester, roomId: string, options: MembershipOptions = {}): Promise<SentEvent | undefined> {
    const { userId } = requester;
    const before = (await this.change.localMembership(roomId, userId))?.membership ?? 'leave';
    if (before === 'leave') {
      if (await hasEverBeenNear(this.database, userId, roomId)) return undefined;
      throw MatrixError.notInRoom();
    }
    if (before === 'ban') throw MatrixError.forbidden('You are banned from this room');
    if (before === 'invite' && !options.unchecked) await this.participation.assertMayReject(requester, roomId);
    let sent: SentEvent | undefined;
    if (await this.change.isOurs(roomId)) {
      sent = await this.change.send(requester, roomId, userId, 'leave', {}, options);
    } else {
      await this.#leaveElsewhere(roomId, userId, options);
    }
    if (this.config.get('forget_rooms_on_leave')) await this.forget(requester, roomId);
    return sent;
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, also when the target is not in the room */
  async kick(
    requester: Requester,
    roomId: string,
    target: string,
    options: MembershipOptions = {},
  ): Promise<SentEvent> {
    checkTarget(target);
    if (!options.unchecked) await this.participation.assertMaySend(requester);
    const before = await this.change.currentOf(roomId, target);
    if (before === 'leave' || before === 'ban') throw MatrixError.forbidden('The user is not in the room');
    if (requester.shadowBanned) return this.creation.pretend(requester, roomId);
    return this.change.send(requester, roomId, target, 'leave', {}, options);
  }

  /** @throws MatrixError 403 `M_FORBIDDEN` */
  async ban(requester: Requester, roomId: string, target: string, options: MembershipOptions = {}): Promise<SentEvent> {
    checkTarget(target);
    if (!options.unchecked) await this.participation.assertMaySend(requester);
    if (requester.shadowBanned) return this.creation.pretend(requester, roomId);
    return this.change.send(requester, roomId, target, 'ban', {}, options);
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, also when the target is not banned */
  async unban(
    requester: Requester,
    roomId: string,
    target: string,
    options: MembershipOptions = {},
  ): Promise<SentEvent> {
    checkTarget(target);
    if (!options.unchecked) await this.participation.assertMaySend(requester);
    if ((await this.change.currentOf(roomId, target)) !== 'ban') throw MatrixError.forbidden('The user is not banned');
    return this.change.send(requester, roomId, target, 'leave', {}, options);
  }

  /**
   * Takes a room that was left out of the user's sight.
   * @throws MatrixError 400 `M_UNKNOWN` while the user is still in it, 404 `M_NOT_FOUND` when it is not known
   */
  async forget(requester: Requester, roomId: string): Promise<void> {
    const { userId } = requester;
    if (!(await roomExists(this.database, roomId))) throw MatrixError.noSuchRoom();
    const forgotten = await this.database.write((tx) => forget(tx, userId, roomId, this.clock.nowMs()), {
      name: 'forget_room',
    });
    if (!forgotten) {
      if (!(await hasEverBeenNear(this.database, userId, roomId))) return;
      throw MatrixError.badRequest('You must leave the room before you can forget it');
    }
    for (const hook of this.hooks.all) hook.onForgotten?.(userId, roomId);
  }

  /**
   * Does what a member event sent through the state endpoint asks for.
   * @param originServerTs see {@link MembershipOptions}
   * @returns the event; `undefined` where nothing changed, or another server made it
   */
  async byContent(
    requester: Requester,
    roomId: string,
    target: string,
    content: Readonly<JsonObject>,
    originServerTs?: number,
  ): Promise<SentEvent | undefined> {
    const { membership, reason, ...rest } = content;
    if (!isMembership(membership)) throw MatrixError.badJson('membership is not one of the five');
    const options = { content: rest, originServerTs, ...(typeof reason === 'string' && { reason }) };
    const isSelf = target === requester.userId;
    if (membership === 'join') {
      if (!isSelf) throw MatrixError.forbidden('Nobody can join for somebody else');
      return this.joins.join(requester, roomId, options);
    }
    if (membership === 'knock') {
      if (!isSelf) throw MatrixError.forbidden('Nobody can knock for somebody else');
      return this.joins.knock(requester, roomId, options);
    }
    if (membership === 'invite') return this.invite(requester, roomId, target, options);
    if (membership === 'ban') return this.ban(requester, roomId, target, options);
    if (isSelf) return this.leave(requester, roomId, options);
    const before = await this.change.currentOf(roomId, target);
    return before === 'ban'
      ? this.unban(requester, roomId, target, options)
      : this.kick(requester, roomId, target, options);
  }

  /** Whether users of other servers can be in a room. @throws MatrixError 403 `M_FORBIDDEN` */
  async #assertReachable(roomId: string): Promise<void> {
    if (!this.remote.gateway) throw MatrixError.forbidden('Users of other servers cannot be invited');
    if ((await this.change.stateContent(roomId, 'm.room.create'))?.['m.federate'] === false)
      throw MatrixError.forbidden('This room is for users of its own server only');
  }

  /** Tells another server; when none will listen the membership ends here all the same. */
  async #leaveElsewhere(roomId: string, userId: string, options: MembershipOptions): Promise<void> {
    const current = await this.change.localMembership(roomId, userId);
    const inviter = current?.membership === 'invite' ? current.sender : '';
    const servers = [...new Set([domainOf(inviter), domainOf(roomId)])];
    const reason = options.reason === undefined ? {} : { reason: options.reason };
    const { gateway } = this.remote;
    try {
      if (gateway) return await gateway.membership.leave(userId, roomId, servers.filter(Boolean), reason);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
    }
    if (current) await this.outOfBand.reject(userId, current.eventId, reason);
  }
}

function checkTarget(target: string): void {
  if (!isValidUserId(target)) throw MatrixError.invalidParam(`${target.slice(0, 100)} is not a user id`);
}
