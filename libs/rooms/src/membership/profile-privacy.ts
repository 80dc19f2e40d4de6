import { Injectable, type OnModuleInit } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { MembershipReader } from '../reading/membership-reader.js';

/** Shows profiles only to users in a common room, where `limit_profile_requests_to_users_who_share_rooms` is set. */
@Injectable()
export class ProfilePrivacy implements OnModuleInit {
  constructor(
    private readonly hooks: UserHooks,
    private readonly memberships: MembershipReader,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    this.hooks.profileLookUp.subscribe({
      prepare: async ({ requesterId, userId }) => {
        if (!this.config.get('limit_profile_requests_to_users_who_share_rooms') || requesterId === userId) return;
        // Who does not say who they are shares no room with anybody.
        if (requesterId !== undefined && (await this.memberships.sharing(requesterId, [userId])).has(userId)) return;
        throw MatrixError.forbidden('This profile is shown to users in a common room only');
      },
    });
  }
}
