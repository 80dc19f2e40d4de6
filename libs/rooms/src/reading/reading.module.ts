import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { Aggregations } from './aggregations.js';
import { EventSerializer } from './event-serializer.js';
import { MembershipHistory } from './membership-history.js';
import { MembershipReader } from './membership-reader.js';
import { ReaderStates } from './reader-states.js';
import { HiddenSenders } from './hidden-senders.js';
import { RetentionPolicies } from './retention-policies.js';
import { RoomFactsReader } from './room-facts.js';
import { RoomHeroes } from './room-heroes.js';
import { TimelineReader } from './timeline-reader.js';
import { UserMemberships } from './user-memberships.js';
import { VisibilityFilter } from './visibility-filter.js';

/** What is read of rooms, for whom, and how it is served. */
@Module({
  imports: [UsersModule, RoomStateModule, RoomStoreModule],
  providers: [
    Aggregations,
    EventSerializer,
    MembershipHistory,
    MembershipReader,
    ReaderStates,
    HiddenSenders,
    RetentionPolicies,
    RoomFactsReader,
    RoomHeroes,
    TimelineReader,
    UserMemberships,
    VisibilityFilter,
  ],
  exports: [
    EventSerializer,
    MembershipHistory,
    MembershipReader,
    HiddenSenders,
    RetentionPolicies,
    RoomFactsReader,
    RoomHeroes,
    TimelineReader,
    UserMemberships,
    VisibilityFilter,
  ],
})
export class ReadingModule {}
