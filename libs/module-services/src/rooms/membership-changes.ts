import { Injectable } from '@nestjs/common';
import { domainOf, isMembership, MatrixError } from '@rookery/matrix-types';
import type { RoomApi } from '@rookery/module-api';
import { ModuleDispatcher } from '@rookery/module-host';
import { Config } from '@rookery/platform';
import { MembershipReader, MembershipService, RoomStateReader } from '@rookery/rooms';
import { LocalAccounts } from '../accounts/local-accounts.js';
import { plainJson } from '../plain-json.js';

/** Memberships as modules change them: one method, whatever the membership. */
@Injectable()
export class ModuleMembershipChanges {
  constructor(
    private readonly config: Config,
    private readonly local: LocalAccounts,
    private readonly state: RoomStateReader,
    private readonly memberships: MembershipReader,
    private readonly membership: MembershipService,
    private readonly modules: ModuleDispatcher,
  ) {}

  /** @returns the id of the member event that holds now. @throws MatrixError 400, 403, 404 */
  async change(
    ...[sender, target, roomId, newMembership, given = {}, remoteRoomHosts]: Parameters<RoomApi['updateRoomMembership']>
  ): Promise<string> {
    const content = { ...plainJson(given, 'The content of a member event'), membership: newMembership };
    if (!isMembership(newMembership))
      throw MatrixError.invalidParam('A membership is one of invite, join, knock, leave and ban');
    const requester = await this.local.actingAs(sender);
    const sent = await this.membership.byContent(requester, roomId, target, content, {
      ...(remoteRoomHosts === undefined ? {} : { via: remoteRoomHosts }),
      unchecked: this.modules.chains.actor ?? true,
    });
    const eventId =
      sent?.eventId ??
      (domainOf(target) === this.config.serverName
        ? (await this.memberships.inRoom(target, roomId))?.eventId
        : await this.state.currentId(roomId, 'm.room.member', target));
    if (eventId === undefined) throw MatrixError.notFound('The user has no membership in this room');
    return eventId;
  }
}
