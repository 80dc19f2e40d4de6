import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { ProfileUpdates } from './profile-updates.js';

/** Changes of profiles, as syncs tell them. */
@Module({ imports: [UsersModule, RoomsModule, E2eeModule], providers: [ProfileUpdates], exports: [ProfileUpdates] })
export class ProfileUpdatesModule {}
