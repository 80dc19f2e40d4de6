import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { BackfillRequests } from './backfill-requests.js';
import { Backfiller } from './backfiller.js';
import { Candidates } from './candidates.js';
import { MissingEvents } from './missing-events.js';
import { PastEvents } from './past-events.js';
import { PduChecker } from './pdu-checker.js';
import { RemoteEventByTime } from './remote-event-by-time.js';
import { RemoteHistory } from './remote-history.js';
import { RemoteState } from './remote-state.js';
import { RoomHosts } from './room-hosts.js';
import { StoredStates } from './stored-states.js';

/** Events that only other servers have, and which servers those are. */
@Module({
  imports: [FederationClientModule, RoomsModule],
  providers: [
    BackfillRequests,
    Backfiller,
    Candidates,
    MissingEvents,
    PastEvents,
    PduChecker,
    RemoteEventByTime,
    RemoteHistory,
    RemoteState,
    RoomHosts,
    StoredStates,
  ],
  exports: [Candidates, MissingEvents, PduChecker, RemoteHistory, RemoteState, RoomHosts, StoredStates],
})
export class RemoteHistoryModule {}
