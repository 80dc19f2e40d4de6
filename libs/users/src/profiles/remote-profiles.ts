import { Injectable } from '@nestjs/common';
import { Port } from '@rookery/platform';
import type { Profile } from '../common/profile.js';

/** Fetches the profile of another server's user; `undefined` when that server has none or cannot be asked. */
export type RemoteProfileSource = (userId: string, field: string | undefined) => Promise<Profile | undefined>;

/** Where the federation side attaches its look-up of profiles. Without it, users of other servers have none. */
@Injectable()
export class RemoteProfiles {
  readonly port = new Port<RemoteProfileSource>('remote_profiles', 'required');

  async fetch(userId: string, field: string | undefined): Promise<Profile | undefined> {
    return this.port.given?.(userId, field);
  }
}
