import { Injectable } from '@nestjs/common';
import type { Profile } from '../common/profile.js';

/** Fetches the profile of another server's user; `undefined` when that server has none or cannot be asked. */
export type RemoteProfileSource = (userId: string, field: string | undefined) => Promise<Profile | undefined>;

/** Where the federation side attaches its look-up of profiles. Without it, users of other servers have none. */
@Injectable()
export class RemoteProfiles {
  #source: RemoteProfileSource | undefined;

  use(source: RemoteProfileSource): void {
    this.#source = source;
  }

  async fetch(userId: string, field: string | undefined): Promise<Profile | undefined> {
    return this.#source?.(userId, field);
  }
}
