import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type BackgroundTask, BackgroundTasks, Clock } from '@rookery/platform';
import { MessageIndex } from './message-index.js';
import { mergeIndex } from './message-index.query.js';

const periodMs = 3_600_000;
/** Others write between two steps. */
const pauseMs = 20;

/**
 * SQLite's index keeps the words of what was taken out of it until the part that holds them is merged with others. Does that
 * in small steps in the background, so that nothing of a redacted or deleted message stays in the file.
 */
@Injectable()
export class MessageIndexEraser implements OnModuleInit, OnModuleDestroy {
  readonly #job: BackgroundTask;

  constructor(
    private readonly database: Database,
    private readonly index: MessageIndex,
    clock: Clock,
    tasks: BackgroundTasks,
  ) {
    const work = async (signal: AbortSignal): Promise<void> => {
      if (!this.index.hasTakenOut) return;
      this.index.hasTakenOut = false;
      let isDone = false;
      try {
        for (let step = 0; !isDone && !signal.aborted; step++) {
          if (step > 0) await clock.sleep(pauseMs, signal);
          isDone = await this.database.write((tx) => mergeIndex(tx, step === 0), { name: 'merge_index', erase: true });
        }
      } finally {
        this.index.hasTakenOut ||= !isDone;
      }
    };
    this.#job = tasks.add({ name: 'erase_words', role: 'writer', everyMs: periodMs, run: work });
  }

  onModuleInit(): void {
    if (this.database.dialect.name === 'sqlite') this.#job.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#job.stop();
  }

  /** Does all there is to do, now. Never rejects. */
  run(): Promise<void> {
    return this.#job.run();
  }
}
