import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import { type BackgroundTask, BackgroundTasks, Clock, Logger } from '@rookery/platform';

const periodMs = 10 * 60_000;
/** Others write between two steps. */
const pauseMs = 20;

/** Gives the space of what was purged back to the file system, in small steps in the background. */
@Injectable()
export class SpaceReclaimer implements OnModuleInit, OnModuleDestroy {
  readonly #job: BackgroundTask;

  constructor({ main, state }: DataStores, clock: Clock, logger: Logger, tasks: BackgroundTasks) {
    const work = async (signal: AbortSignal): Promise<void> => {
      let bytes = 0;
      for (const database of new Set([main, state])) {
        while (!signal.aborted) {
          const step = await database.reclaim();
          if (step === 0) break;
          bytes += step;
          await clock.sleep(pauseMs, signal);
        }
      }
      if (bytes > 0) logger.info('Space was given back to the file system', { bytes });
    };
    this.#job = tasks.add({ name: 'reclaim_space', role: 'writer', everyMs: periodMs, run: work });
  }

  onModuleInit(): void {
    this.#job.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#job.stop();
  }

  /** Gives back all there is, now. Never rejects. */
  run(): Promise<void> {
    return this.#job.run();
  }
}
