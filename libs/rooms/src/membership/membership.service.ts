import { Injectable } from '@nestjs/common';
import { domainOf, isMembership, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { InvitePolicy } from './invite-policy.js';
import { JoinService } from './join.service.js';
import { LeaveService } from './leave.service.js';
import { MemberProfiles } from './member-profiles.js';
import { MemberEvents, type MembershipOptions } from './member-events.js';
import { Participation } from '../sending/participation.js';
import type { SentEvent } from '../model/stored-event.js';
import { RemoteRooms } from '../remote-rooms.js';

/** What somebody makes of the membership of another: inviting, kicking, banning. */
@Injectable()
export class MembershipService {
  // Eight parameters: beside the ways that are one's own (joining, leaving), each is asked whether and how an invite goes out.
  constructor(
    private readonly change: MemberEvents,
    private readonly joins: JoinService,
    private readonly leaves: LeaveService,
    private readonly profiles: MemberProfiles,
    private readonly policy: InvitePolicy,
    private readonly remote: RemoteRooms,
    private readonly config: Config,
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
    const isAdmitted = options.unchecked || options.duringRoomCreation;
    if (!isAdmitted) await this.participation.assertMaySend(requester);
    if (requester.shadowBanned) return this.participation.pretend(requester, roomId);
    if (!isAdmitted && !(await this.policy.check(requester, target, roomId))) {
      const isMember = (await this.change.currentOf(roomId, requester.userId)) === 'join';
      if (!isMember) throw MatrixError.notInRoom();
      return undefined;
    }
    if (domainOf(target) !== this.config.serverName) await this.#assertReachable(roomId);
    const content = await this.profiles.ofInvited(target);
    return this.change.send(requester, roomId, target, 'invite', content, options);
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, also when the target is not in the room; 429 `M_LIMIT_EXCEEDED` */
  async kick(
    requester: Requester,
    roomId: string,
    target: string,
    options: MembershipOptions = {},
  ): Promise<SentEvent> {
    checkTarget(target);
    await this.#admit(requester, options);
    const before = await this.change.currentOf(roomId, target);
    if (before === 'leave' || before === 'ban') throw MatrixError.forbidden('The user is not in the room');
    if (requester.shadowBanned) return this.participation.pretend(requester, roomId);
    return this.change.send(requester, roomId, target, 'leave', {}, options);
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, 429 `M_LIMIT_EXCEEDED` */
  async ban(requester: Requester, roomId: string, target: string, options: MembershipOptions = {}): Promise<SentEvent> {
    checkTarget(target);
    await this.#admit(requester, options);
    if (requester.shadowBanned) return this.participation.pretend(requester, roomId);
    return this.change.send(requester, roomId, target, 'ban', {}, options);
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, also when the target is not banned; 429 `M_LIMIT_EXCEEDED` */
  async unban(
    requester: Requester,
    roomId: string,
    target: string,
    options: MembershipOptions = {},
  ): Promise<SentEvent> {
    checkTarget(target);
    await this.#admit(requester, options);
    if ((await this.change.currentOf(roomId, target)) !== 'ban') throw MatrixError.forbidden('The user is not banned');
    if (requester.shadowBanned) return this.participation.pretend(requester, roomId);
    return this.change.send(requester, roomId, target, 'leave', {}, options);
  }

  /**
   * Does what the content of a member event asks for.
   * @param given what the content does not say
   * @returns the event; `undefined` where nothing changed, or another server made it
   */
  async byContent(
    requester: Requester,
    roomId: string,
    target: string,
    content: Readonly<JsonObject>,
    given: Pick<MembershipOptions, 'originServerTs' | 'via' | 'unchecked'> = {},
  ): Promise<SentEvent | undefined> {
    const { membership, reason, ...rest } = content;
    if (!isMembership(membership)) throw MatrixError.badJson('membership is not one of the five');
    const options = { ...given, content: rest, ...(typeof reason === 'string' && { reason }) };
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
    if (isSelf) return this.leaves.leave(requester, roomId, options);
    const before = await this.change.currentOf(roomId, target);
    return before === 'ban'
      ? this.unban(requester, roomId, target, options)
      : this.kick(requester, roomId, target, options);
  }

  /** {@link LeaveService.leaveClosed} */
  leaveClosed(requester: Requester, roomId: string): Promise<void> {
    return this.leaves.leaveClosed(requester, roomId);
  }

  /** @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN`, 429 `M_LIMIT_EXCEEDED` */
  async #admit(requester: Requester, { unchecked }: MembershipOptions): Promise<void> {
    if (unchecked) return;
    await this.participation.assertMaySend(requester);
    await this.participation.takeEvent(requester);
  }

  /** Whether users of other servers can be in a room. @throws MatrixError 403 `M_FORBIDDEN` */
  async #assertReachable(roomId: string): Promise<void> {
    if (!this.remote.gateway) throw MatrixError.forbidden('Users of other servers cannot be invited');
    if ((await this.change.stateContent(roomId, 'm.room.create'))?.['m.federate'] === false)
      throw MatrixError.forbidden('This room is for users of its own server only');
  }
}

function checkTarget(target: string): void {
  if (!isValidUserId(target)) throw MatrixError.invalidParam(`${target.slice(0, 100)} is not a user id`);
}
