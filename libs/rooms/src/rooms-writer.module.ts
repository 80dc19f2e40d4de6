import { Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { ProfilePropagation } from './membership/profile-propagation.js';
import { RoomsModule } from './rooms.module.js';
import { SuccessorData } from './upgrade/successor-data.js';
import { ChainCovers } from './upkeep/chain-covers.service.js';
import { RedactionCensor } from './upkeep/redaction-censor.js';
import { Retention } from './upkeep/retention.service.js';
import { RoomTasks } from './upkeep/room-tasks.js';

/** What only the process that writes a room's events does: background work. */
@Module({
  imports: [UsersModule, RoomsModule],
  providers: [ChainCovers, ProfilePropagation, RedactionCensor, Retention, SuccessorData],
  exports: [ChainCovers, ProfilePropagation, RedactionCensor, Retention, SuccessorData],
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
