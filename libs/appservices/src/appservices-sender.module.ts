import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { RoomsModule } from '@rookery/rooms';
import { AppservicesModule } from './appservices.module.js';
import { AppserviceDelivery } from './delivery/appservice-delivery.js';
import { DeviceFeed } from './delivery/device-feed.js';
import { EphemeralFeed } from './delivery/ephemeral-feed.js';
import { AppserviceEventFeed } from './delivery/event-feed.js';
import { RoomInterest } from './delivery/room-interest.js';
import { ServiceRouter } from './delivery/service-router.js';
import { ServiceSenders } from './delivery/service-senders.js';
import { TransactionBodies } from './delivery/transaction-bodies.js';
import { TransactionStore } from './delivery/transaction-store.js';
import { WaitingTransactions } from './delivery/waiting-transactions.js';

/**
 * Sends to application services: what is for them is found in the process that writes, and sent by whoever has the duty. Needs `Lifecycle`
 * from the app.
 */
@Module({
  imports: [AppservicesModule, RoomsModule, EphemeralModule, E2eeModule],
  providers: [
    AppserviceDelivery,
    DeviceFeed,
    EphemeralFeed,
    AppserviceEventFeed,
    RoomInterest,
    ServiceRouter,
    ServiceSenders,
    TransactionBodies,
    TransactionStore,
    WaitingTransactions,
  ],
  exports: [AppserviceDelivery],
})
export class AppservicesSenderModule {}
