import { Module } from '@nestjs/common';
import { EphemeralModule } from '@rookery/ephemeral';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { EventFeed } from './sender/event-feed.js';
import { EventTexts } from './sender/event-texts.js';
import { FederationSender } from './sender/federation-sender.js';
import { RemoteAudience } from './sender/remote-audience.js';

/** Brings other servers what happens here. */
@Module({
  imports: [FederationClientModule, RoomsModule, EphemeralModule],
  providers: [EventTexts, RemoteAudience, EventFeed, FederationSender],
  exports: [RemoteAudience, FederationSender],
})
export class FederationSenderModule {}
