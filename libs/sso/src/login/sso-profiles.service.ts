import { Injectable } from '@nestjs/common';
import { Config } from '@rookery/platform';
import { ProfileService } from '@rookery/users';
import type { SignOn } from '../providers/identity-provider.js';
import { Avatars } from './avatars.service.js';

const maxNameLength = 256;

/** Keeps names and pictures as the provider has them (`sso.update_profile_information`). */
@Injectable()
export class SsoProfiles {
  constructor(
    private readonly config: Config,
    private readonly profiles: ProfileService,
    private readonly avatars: Avatars,
  ) {}

  /**
   * Takes over what the provider says, where the settings want that; what it does not say stays.
   * @throws MatrixError 403 `M_USER_DEACTIVATED`
   */
  async update(userId: string, signOn: SignOn): Promise<void> {
    if (!this.config.get('sso.update_profile_information')) return;
    const { displayName, picture } = await signOn.attributes(0);
    const origin = { request: signOn.request };
    if (displayName !== undefined && displayName !== '') {
      const displayname = displayName.replaceAll('\0', '').toWellFormed().slice(0, maxNameLength);
      await this.profiles.update(userId, { displayname }, { origin, byAdmin: true, onlyWhileOpen: true });
    }
    await this.avatars.apply(userId, picture, origin);
  }
}
