import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { MediaModule } from '@rookery/media';
import { UsersModule } from '@rookery/users';
import { InboundEdus } from './edus/inbound-edus.js';
import { FederationMediaFetcher } from './media/remote-media.js';
import { AccountStatusFetcher } from './queries/account-status-fetcher.js';
import { ProfileFetcher } from './queries/profile-fetcher.js';
import { RemoteRoomsModule } from './remote-rooms/remote-rooms.module.js';

/** What this server asks of others on behalf of its domains; safe in any process. */
@Module({
  imports: [FederationClientModule, UsersModule, MediaModule, RemoteRoomsModule],
  providers: [InboundEdus, AccountStatusFetcher, ProfileFetcher, FederationMediaFetcher],
  exports: [InboundEdus, RemoteRoomsModule],
})
export class FederationModule {}
