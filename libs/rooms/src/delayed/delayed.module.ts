import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { DirectoryModule } from '../directory/directory.module.js';
import { MembershipModule } from '../membership/membership.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { SendingModule } from '../sending/sending.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { DelayedOutbox } from './delayed-outbox.js';
import { DelayedSending } from './delayed-sending.js';
import { DelayedEvents } from './delayed-events.service.js';

/** Events that are sent later (MSC4140). */
@Module({
  imports: [UsersModule, DirectoryModule, MembershipModule, ReadingModule, RoomStoreModule, SendingModule],
  providers: [DelayedSending, DelayedOutbox, DelayedEvents],
  exports: [DelayedEvents],
})
export class DelayedEventsModule {}
