import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import type { RoomApi } from '@rookery/module-api';
import { ModuleDispatcher } from '@rookery/module-host';
import { MemberEvents, RoomCreation } from '@rookery/rooms';
import { LocalAccounts } from '../accounts/local-accounts.js';
import { plainJson } from '../plain-json.js';

/** How modules make rooms. */
@Injectable()
export class ModuleRoomCreation {
  constructor(
    private readonly local: LocalAccounts,
    private readonly limiter: RateLimiter,
    private readonly creation: RoomCreation,
    private readonly members: MemberEvents,
    private readonly modules: ModuleDispatcher,
  ) {}

  async createRoom(
    ...[userId, roomConfig, { ratelimit = true, creatorJoinProfile } = {}]: Parameters<RoomApi['createRoom']>
  ): ReturnType<RoomApi['createRoom']> {
    const request = plainJson(roomConfig, 'The configuration of a room');
    const wanted = this.creation.requestFrom(request);
    const requester = await this.local.actingAs(userId);
    if (ratelimit) {
      await this.limiter.take('rc_room_creation', userId, { ...requester, rateLimitExempt: false });
    }
    const unchecked = this.modules.chains.actor ?? true;
    const { roomId, alias } = await this.creation.create(requester, wanted, { unchecked });
    if (creatorJoinProfile) {
      const { displayName, avatarUrl } = creatorJoinProfile;
      const profile = {
        ...(displayName === undefined ? {} : { displayname: displayName }),
        ...(avatarUrl === undefined ? {} : { avatar_url: avatarUrl }),
      };
      await this.members.send(requester, roomId, userId, 'join', profile, { unchecked });
    }
    return Object.freeze({ roomId, roomAlias: alias });
  }
}
