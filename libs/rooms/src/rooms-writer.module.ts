import { Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { type BackgroundTask, BackgroundTasks } from '@rookery/platform';
import { RoomAccountsModule } from './accounts/accounts.module.js';
import { RoomsModule } from './rooms.module.js';
import { SuccessorDataModule } from './upgrade/successor-data.module.js';
import { RoomTasks } from './upkeep/room-tasks.js';
import { UpkeepJobsModule } from './upkeep/upkeep-jobs.module.js';

const work = [RoomAccountsModule, SuccessorDataModule, UpkeepJobsModule];

const forgetEveryMs = 3_600_000;

/** What only the process that writes a room's events does: background work. */
@Module({
  imports: [RoomsModule, ...work],
  exports: work,
})
export class RoomsWriterModule implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #forgetting: BackgroundTask;

  constructor(
    private readonly roomTasks: RoomTasks,
    private readonly tasks: BackgroundTasks,
  ) {
    const run = (): Promise<void> => this.roomTasks.forgetFinished();
    this.#forgetting = tasks.add({ name: 'forget_finished_tasks', role: 'writer', everyMs: forgetEveryMs, run });
  }

  async onApplicationBootstrap(): Promise<void> {
    this.#forgetting.start();
    if (this.tasks.holds('writer')) await this.roomTasks.resume();
  }

  async onModuleDestroy(): Promise<void> {
    await this.#forgetting.stop();
    await this.roomTasks.stop();
  }
}
