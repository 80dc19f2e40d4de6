import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { AnsweredTransactions } from './answered-transactions.js';
import { EventCreation } from './event-creation.service.js';
import { Participation } from './participation.js';
import { RelatedRedactions } from './related-redactions.service.js';

/** Sending on behalf of clients. */
@Module({
  imports: [UsersModule, PipelineModule, RoomStoreModule],
  providers: [AnsweredTransactions, EventCreation, Participation, RelatedRedactions],
  exports: [AnsweredTransactions, EventCreation, Participation, RelatedRedactions],
})
export class SendingModule {}
