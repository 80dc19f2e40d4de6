import { Module } from '@nestjs/common';
import { RoomHooks } from '../hooks.js';
import { RoomPorts } from '../ports.js';
import { RemoteRooms } from '../remote-rooms.js';
import { BackwardGaps } from './backward-gaps.js';
import { StoredElsewhere } from './elsewhere.js';
import { EventStore } from './event-store.js';
import { PartialRooms } from './partial-rooms.js';
import { RecentEvents } from './recent-events.js';
import { RoomIds } from './room-ids.js';
import { TimelineGaps } from './timeline-gaps.js';

/** What is stored of rooms, its counters, and where higher libs attach to it. */
@Module({
  providers: [
    BackwardGaps,
    EventStore,
    PartialRooms,
    RecentEvents,
    RemoteRooms,
    RoomHooks,
    RoomIds,
    RoomPorts,
    StoredElsewhere,
    TimelineGaps,
  ],
  exports: [
    BackwardGaps,
    EventStore,
    PartialRooms,
    RecentEvents,
    RemoteRooms,
    RoomHooks,
    RoomIds,
    RoomPorts,
    TimelineGaps,
  ],
})
export class RoomStoreModule {}
