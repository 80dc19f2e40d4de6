import { Injectable } from '@nestjs/common';
import type { Profile } from '../common/profile.js';
import { UserPorts } from '../ports.js';

/** Profiles of other servers' users. */
@Injectable()
export class RemoteProfiles {
  constructor(private readonly ports: UserPorts) {}

  async fetch(userId: string, field: string | undefined): Promise<Profile | undefined> {
    return this.ports.remoteProfiles.given?.(userId, field);
  }
}
