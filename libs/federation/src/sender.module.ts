import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { FederationModule } from './federation.module.js';
import { BacklogReader } from './sender/backlog-reader.js';
import { DestinationQueues } from './sender/destination-queues.js';
import { FederationEventFeed } from './sender/event-feed.js';
import { EventTexts } from './sender/event-texts.js';
import { FederationSender } from './sender/federation-sender.js';
import { RemoteAudience } from './sender/remote-audience.js';
import { SenderRouter } from './sender/sender-router.js';

/** Brings other servers events, and whatever it is given for them. */
@Module({
  imports: [FederationModule, FederationClientModule, RoomsModule],
  providers: [
    EventTexts,
    RemoteAudience,
    BacklogReader,
    FederationEventFeed,
    DestinationQueues,
    SenderRouter,
    FederationSender,
  ],
  exports: [RemoteAudience, FederationSender],
})
export class SenderModule {}
