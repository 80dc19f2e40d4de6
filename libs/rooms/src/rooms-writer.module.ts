import { Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { BackgroundTasks } from '@rookery/platform';
import { RoomAccountsModule } from './accounts/accounts.module.js';
import { RoomsModule } from './rooms.module.js';
import { SuccessorDataModule } from './upgrade/successor-data.module.js';
import { RoomTasks } from './upkeep/room-tasks.js';
import { UpkeepJobsModule } from './upkeep/upkeep-jobs.module.js';

const work = [RoomAccountsModule, SuccessorDataModule, UpkeepJobsModule];

/** What only the process that writes a room's events does: background work. */
@Module({
  imports: [RoomsModule, ...work],
  exports: work,
})
export class RoomsWriterModule implements OnApplicationBootstrap, OnModuleDestroy {
  constructor(
    private readonly tasks: RoomTasks,
    private readonly background: BackgroundTasks,
  ) {}

  async onApplicationBootstrap(): Promise<void> {
    if (this.background.holds('writer')) await this.tasks.resume();
  }

  onModuleDestroy(): Promise<void> {
    return this.tasks.stop();
  }
}
