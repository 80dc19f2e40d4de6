import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { FederationModule } from '../federation.module.js';
import { FederationSenderModule } from '../federation-sender.module.js';
import { OutOfBandLeaves } from '../membership/out-of-band-leaves.js';
import { PduIntake } from './pdu-intake.js';
import { PduRooms } from './pdu-rooms.js';
import { GapFillers } from './gap-fillers.js';
import { GapRetries } from './gap-retries.js';
import { StagedEvents } from './staged-events.js';
import { AfterEvents } from './after-events.js';
import { EduHandlers } from './edu-handlers.js';
import { TransactionAnswers } from './transaction-answers.js';
import { InboundTransactions } from './inbound-transactions.js';

/** What becomes of the transactions of other servers. */
@Module({
  imports: [FederationModule, FederationSenderModule, FederationClientModule, RoomsModule, E2eeModule, EphemeralModule],
  providers: [
    OutOfBandLeaves,
    PduIntake,
    PduRooms,
    GapFillers,
    GapRetries,
    StagedEvents,
    AfterEvents,
    EduHandlers,
    TransactionAnswers,
    InboundTransactions,
  ],
  exports: [InboundTransactions],
})
export class InboundTransactionsModule {}
