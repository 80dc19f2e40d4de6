import { Module } from '@nestjs/common';
import { UserHooksModule } from '../user-hooks.module.js';
import { ProfileService } from './profile.service.js';
import { RemoteProfiles } from './remote-profiles.js';

const services = [ProfileService, RemoteProfiles];

/** Names, pictures and further fields of users. */
@Module({ imports: [UserHooksModule], providers: services, exports: services })
export class ProfilesModule {}
