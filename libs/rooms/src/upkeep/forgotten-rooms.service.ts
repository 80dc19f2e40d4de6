import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type BackgroundTask, BackgroundTasks, Clock, Config, Logger } from '@rookery/platform';
import { isRemembered, selectForgottenRooms, unlistForgottenRoom } from '../membership/membership.query.js';
import { RoomHooks } from '../hooks.js';
import { mayRemoveHistory } from './history-removal.js';
import { PurgeService } from './purge.service.js';
import { TaskInterrupted } from './room-tasks.js';

const periodMs = 3_600_000;
const batchSize = 100;

/** Deletes rooms that every user of this server has forgotten, a while after: `forgotten_room_retention_period`. */
@Injectable()
export class ForgottenRooms implements OnModuleInit, OnModuleDestroy {
  readonly #job: BackgroundTask;

  constructor(
    private readonly database: Database,
    private readonly purge: PurgeService,
    private readonly hooks: RoomHooks,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
    tasks: BackgroundTasks,
  ) {
    const work = (signal: AbortSignal): Promise<void> => this.#purgeDue(signal);
    this.#job = tasks.add({ name: 'purge_forgotten_rooms', role: 'writer', everyMs: periodMs, run: work });
  }

  onModuleInit(): void {
    this.#job.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#job.stop();
  }

  /** Deletes what is due, now. Never rejects. */
  run(): Promise<void> {
    return this.#job.run();
  }

  async #purgeDue(signal: AbortSignal): Promise<void> {
    const keptMs = this.config.get('forgotten_room_retention_period');
    if (keptMs == null) return;
    const before = this.clock.nowMs() - keptMs;
    const tried: string[] = [];
    for (;;) {
      const due = await selectForgottenRooms(this.database, before, tried, batchSize);
      for (const roomId of due) {
        if (signal.aborted) return;
        tried.push(roomId);
        await this.#tryPurge(roomId, signal);
      }
      if (due.length < batchSize) return;
    }
  }

  /** Somebody may have come back meanwhile. A failure holds up no other room. */
  async #tryPurge(roomId: string, signal: AbortSignal): Promise<void> {
    try {
      if (!(await mayRemoveHistory(this.hooks, roomId, 'forgotten'))) return;
      const isDue = async (): Promise<boolean> => !(await isRemembered(this.database, roomId));
      const isPurged = await this.purge.purgeRoom(roomId, isDue, signal);
      if (isPurged) return this.logger.info('A room that everybody had forgotten was deleted', { roomId });
      await this.database.write((tx) => unlistForgottenRoom(tx, roomId), { name: 'remember_room' });
    } catch (error) {
      if (error instanceof TaskInterrupted) return;
      this.logger.error('A room that everybody had forgotten could not be deleted', { roomId, err: error });
    }
  }
}
