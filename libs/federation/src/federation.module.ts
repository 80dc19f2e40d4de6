import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { UsersModule } from '@rookery/users';
import { ProfileFetcher } from './queries/profile-fetcher.js';

/** What this server asks of others on behalf of its domains; safe in any process. */
@Module({ imports: [FederationClientModule, UsersModule], providers: [ProfileFetcher] })
export class FederationModule {}
