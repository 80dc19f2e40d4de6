import { Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { AutoJoinRooms } from './accounts/auto-join-rooms.js';
import { AutoJoins } from './accounts/auto-joins.js';
import { Departures } from './accounts/departures.js';
import { GuestDepartures } from './accounts/guest-departures.service.js';
import { AutoAcceptInvites } from './accounts/auto-accept.service.js';
import { ProfilePropagation } from './accounts/profile-propagation.js';
import { RoomsModule } from './rooms.module.js';
import { SuccessorData } from './upgrade/successor-data.js';
import { ChainCovers } from './upkeep/chain-covers.service.js';
import { DummyEvents } from './upkeep/dummy-events.service.js';
import { ForgottenRooms } from './upkeep/forgotten-rooms.service.js';
import { RedactionCensor } from './upkeep/redaction-censor.js';
import { Retention } from './upkeep/retention.service.js';
import { RoomTasks } from './upkeep/room-tasks.js';
import { SpaceReclaimer } from './upkeep/space-reclaimer.js';

const work = [
  AutoAcceptInvites,
  AutoJoinRooms,
  AutoJoins,
  ChainCovers,
  Departures,
  DummyEvents,
  ForgottenRooms,
  GuestDepartures,
  ProfilePropagation,
  RedactionCensor,
  Retention,
  SpaceReclaimer,
  SuccessorData,
];

/** What only the process that writes a room's events does: background work. */
@Module({
  imports: [UsersModule, RoomsModule],
  providers: work,
  exports: work,
})
export class RoomsWriterModule implements OnApplicationBootstrap, OnModuleDestroy {
  constructor(private readonly tasks: RoomTasks) {}

  onApplicationBootstrap(): Promise<void> {
    return this.tasks.resume();
  }

  onModuleDestroy(): Promise<void> {
    return this.tasks.stop();
  }
}
