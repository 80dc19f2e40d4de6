import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { type BackgroundTask, BackgroundTasks, Clock, Logger } from '@rookery/platform';
import { type PurgeJob, RetentionPolicies } from '../reading/retention-policies.js';
import { PurgeService } from './purge.service.js';

const hourMs = 3_600_000;

interface Job extends PurgeJob {
  /** When it is to run next: the first time as soon as it is looked. A server that is started anew each night would never come to it. */
  dueMs: number;
}

/** Purges messages that have outlived their room's policy. */
@Injectable()
export class Retention implements OnModuleInit, OnModuleDestroy {
  readonly #jobs: Job[];
  readonly #ticker: BackgroundTask;

  constructor(
    private readonly purge: PurgeService,
    private readonly policies: RetentionPolicies,
    private readonly clock: Clock,
    private readonly logger: Logger,
    tasks: BackgroundTasks,
  ) {
    this.#jobs = policies.jobs().map((job) => ({ ...job, dueMs: 0 }));
    const periodMs = Math.max(1000, Math.min(hourMs, ...this.#jobs.map((job) => job.intervalMs)));
    const work = (signal: AbortSignal): Promise<void> => this.#runDue(signal);
    this.#ticker = tasks.add({ name: 'purge_expired', role: 'writer', everyMs: periodMs, run: work });
  }

  onModuleInit(): void {
    if (this.policies.isEnabled) this.#ticker.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#ticker.stop();
  }

  /**
   * Purges every room whose lifetime lies in `shortestMs < lifetime <= longestMs`, one after the other.
   * @returns how many messages are gone
   */
  async run(shortestMs = -1, longestMs = Infinity, signal?: AbortSignal): Promise<number> {
    let purged = 0;
    for await (const [roomId, lifetimeMs] of this.policies.lifetimes()) {
      if (lifetimeMs <= shortestMs || lifetimeMs > longestMs) continue;
      if (signal?.aborted) break;
      try {
        purged += await this.purge.purgeOlder(roomId, this.clock.nowMs() - lifetimeMs, signal);
      } catch (error) {
        // It is tried again with the next run, and holds up no other room.
        this.logger.error('Old messages could not be purged', { roomId, err: error });
      }
    }
    return purged;
  }

  async #runDue(signal: AbortSignal): Promise<void> {
    for (const job of this.#jobs) {
      if (this.clock.nowMs() < job.dueMs || signal.aborted) continue;
      job.dueMs = this.clock.nowMs() + job.intervalMs;
      await this.run(job.shortestMs, job.longestMs, signal);
    }
  }
}
