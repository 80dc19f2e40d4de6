import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { isLocalUser, ProfileService } from '@rookery/users';

/** Name and avatar in member events. */
@Injectable()
export class MemberProfiles {
  constructor(
    private readonly profiles: ProfileService,
    private readonly config: Config,
  ) {}

  /** The keys that a local user's profile adds to the content of the member event; empty for users of other servers. */
  async of(userId: string): Promise<JsonObject> {
    if (!isLocalUser(userId, this.config.serverName)) return {};
    return profileContent(await this.profiles.get(userId));
  }

  /**
   * The same for who joins a room.
   * @param content what a client wrote into its own member event; the profile in it counts only where rooms may have their own
   */
  async ofJoining(userId: string, content: Readonly<JsonObject> = {}): Promise<JsonObject> {
    const { displayname, avatar_url: avatar, join_authorised_via_users_server: _, ...rest } = content;
    const mayDiffer = this.config.get('allow_per_room_profiles');
    return {
      ...(await this.of(userId)),
      ...rest,
      ...(mayDiffer && displayname !== undefined && { displayname }),
      ...(mayDiffer && avatar !== undefined && { avatar_url: avatar }),
    };
  }

  /** The same for whom somebody invites, where the settings allow that. */
  async ofInvited(userId: string): Promise<JsonObject> {
    return this.config.get('include_profile_data_on_invite') ? this.of(userId) : {};
  }

  /** The same for several users, in one query. */
  async ofInvitedMany(userIds: readonly string[]): Promise<Map<string, JsonObject>> {
    if (!this.config.get('include_profile_data_on_invite')) return new Map();
    const local = userIds.filter((userId) => isLocalUser(userId, this.config.serverName));
    if (local.length === 0) return new Map();
    const profiles = await this.profiles.getMany(local);
    return new Map([...profiles].map(([userId, profile]) => [userId, profileContent(profile)]));
  }
}

function profileContent(profile: Readonly<Record<string, unknown>> | undefined): JsonObject {
  const content: JsonObject = {};
  if (typeof profile?.['displayname'] === 'string') content['displayname'] = profile['displayname'];
  if (typeof profile?.['avatar_url'] === 'string') content['avatar_url'] = profile['avatar_url'];
  return content;
}
