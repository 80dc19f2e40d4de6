import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type BackgroundTask, BackgroundTasks, Clock, Config, Logger } from '@rookery/platform';
import { EventStore } from '../store/event-store.js';
import { RetentionPolicies } from '../reading/retention-policies.js';
import { PurgeService } from './purge.service.js';
import { selectPolicies, selectRoomIds } from '../reading/retention.query.js';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

interface Job {
  readonly shortestMs: number;
  readonly longestMs: number;
  readonly intervalMs: number;
  /** When it is to run next. */
  dueMs: number;
}

/** Purges messages that have outlived their room's policy. */
@Injectable()
export class Retention implements OnModuleInit, OnModuleDestroy {
  readonly #jobs: Job[];
  readonly #ticker: BackgroundTask;

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly purge: PurgeService,
    private readonly policies: RetentionPolicies,
    private readonly clock: Clock,
    private readonly logger: Logger,
    tasks: BackgroundTasks,
    config: Config,
  ) {
    const given = config.get('retention.purge_jobs') as readonly Record<string, number | undefined>[];
    const jobs = given.length > 0 ? given : [{ interval: dayMs }];
    const now = clock.nowMs();
    this.#jobs = jobs.map((job) => {
      const intervalMs = job['interval'] ?? dayMs;
      return {
        shortestMs: job['shortest_max_lifetime'] ?? -1,
        longestMs: job['longest_max_lifetime'] ?? Infinity,
        intervalMs,
        dueMs: now + intervalMs,
      };
    });
    const periodMs = Math.max(1000, Math.min(hourMs, ...this.#jobs.map((job) => job.intervalMs)));
    const work = (signal: AbortSignal): Promise<void> => this.#runDue(signal);
    this.#ticker = tasks.add({ name: 'purge_expired', role: 'background', everyMs: periodMs, run: work });
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
    for (const [roomId, lifetimeMs] of await this.#lifetimes()) {
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

  /** How long messages of each room may live; rooms without a limit are absent. */
  async #lifetimes(): Promise<Map<string, number>> {
    const usual = this.policies.lifetimeMs(undefined);
    const lifetimes = new Map<string, number>();
    if (usual !== undefined) {
      for (const roomId of await selectRoomIds(this.database)) lifetimes.set(roomId, usual);
    }
    const policies = await selectPolicies(this.database);
    const events = await this.events.events(policies.values());
    for (const [roomId, eventId] of policies) {
      const lifetimeMs = this.policies.lifetimeMs(events.get(eventId)?.content);
      if (lifetimeMs !== undefined) lifetimes.set(roomId, lifetimeMs);
    }
    return lifetimes;
  }
}
