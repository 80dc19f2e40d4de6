import { Injectable } from '@nestjs/common';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { RoomApi } from '@rookery/module-api';
import { Config, type Requester } from '@rookery/platform';
import { JoinService, MemberEvents, MembershipReader, MembershipService, RoomStateReader } from '@rookery/rooms';
import { LocalAccounts } from '../accounts/local-accounts.js';
import { plainJson } from '../plain-json.js';

interface ChangeOptions {
  readonly content: JsonObject;
  readonly reason?: string;
  readonly via?: readonly string[];
  readonly unchecked: true;
}

/** Memberships as modules change them: one method, whatever the membership. */
@Injectable()
export class ModuleMembershipChanges {
  constructor(
    private readonly config: Config,
    private readonly local: LocalAccounts,
    private readonly state: RoomStateReader,
    private readonly memberships: MembershipReader,
    private readonly membership: MembershipService,
    private readonly members: MemberEvents,
    private readonly joins: JoinService,
  ) {}

  /** @returns the id of the member event that holds now. @throws MatrixError 400, 403, 404 */
  async change(
    ...[sender, target, roomId, newMembership, given = {}, remoteRoomHosts]: Parameters<RoomApi['updateRoomMembership']>
  ): Promise<string> {
    const { membership: _, reason, ...content } = plainJson(given, 'The content of a member event');
    const requester = await this.local.actingAs(sender);
    if (target !== requester.userId && (newMembership === 'join' || newMembership === 'knock')) {
      throw MatrixError.forbidden(`Nobody can ${newMembership} for somebody else`);
    }
    const sent = await this.#send(requester, target, roomId, newMembership, {
      content,
      ...(typeof reason === 'string' ? { reason } : {}),
      ...(remoteRoomHosts === undefined ? {} : { via: remoteRoomHosts }),
      unchecked: true,
    });
    const eventId =
      sent?.eventId ??
      (domainOf(target) === this.config.serverName
        ? (await this.memberships.inRoom(target, roomId))?.eventId
        : await this.state.currentId(roomId, 'm.room.member', target));
    if (eventId === undefined) throw MatrixError.notFound('The user has no membership in this room');
    return eventId;
  }

  async #send(
    requester: Requester,
    target: string,
    roomId: string,
    next: Parameters<RoomApi['updateRoomMembership']>[3],
    options: ChangeOptions,
  ): ReturnType<MembershipService['leave']> {
    const { members, membership, joins } = this;
    switch (next) {
      case 'join':
        return joins.join(requester, roomId, options);
      case 'knock':
        return joins.knock(requester, roomId, options);
      case 'invite':
        return membership.invite(requester, roomId, target, options);
      case 'ban':
        return membership.ban(requester, roomId, target, options);
      case 'leave': {
        if (target === requester.userId) return membership.leave(requester, roomId, options);
        const before = await members.currentOf(roomId, target);
        return before === 'ban'
          ? membership.unban(requester, roomId, target, options)
          : membership.kick(requester, roomId, target, options);
      }
      default:
        throw MatrixError.invalidParam('A membership is one of invite, join, knock, leave and ban');
    }
  }
}
