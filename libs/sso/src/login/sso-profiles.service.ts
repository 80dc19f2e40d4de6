import { Injectable } from '@nestjs/common';
import { ProfileService } from '@rookery/users';
import type { SignOn } from '../providers/identity-provider.js';
import { Avatars } from './avatars.service.js';

const maxNameLength = 256;

/** Keeps names and pictures as the provider has them (`sso.update_profile_information`). */
@Injectable()
export class SsoProfiles {
  constructor(
    private readonly profiles: ProfileService,
    private readonly avatars: Avatars,
  ) {}

  /** Takes over what the provider says; what it does not say stays. */
  async update(userId: string, signOn: SignOn): Promise<void> {
    const { displayName, picture } = await signOn.attributes(0);
    const change: Record<string, string> = {};
    if (displayName !== undefined && displayName !== '') {
      change['displayname'] = displayName.replaceAll('\0', '').toWellFormed().slice(0, maxNameLength);
    }
    const avatarUrl = await this.avatars.take(picture);
    if (avatarUrl !== undefined) change['avatar_url'] = avatarUrl;
    if (Object.keys(change).length === 0) return;
    await this.profiles.update(userId, change, { origin: { request: signOn.request }, byAdmin: true });
  }
}
