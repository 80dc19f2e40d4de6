import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger, type Timer } from '@rookery/platform';
import { EventStore } from '../persistence/event-store.js';
import { RetentionPolicies } from '../reading/retention-policies.js';
import { PurgeService } from './purge.service.js';
import { RoomTasks } from './room-tasks.js';

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
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly purge: PurgeService,
    private readonly tasks: RoomTasks,
    private readonly policies: RetentionPolicies,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
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
  }

  onModuleInit(): void {
    if (!this.config.get('retention.enabled')) return;
    const tickMs = Math.min(hourMs, ...this.#jobs.map((job) => job.intervalMs));
    this.#timer = this.clock.every(Math.max(1000, tickMs), () => {
      this.#running ??= this.#runDue()
        .catch((error: unknown) => this.logger.error('Old messages could not be purged', { err: error }))
        .finally(() => (this.#running = undefined));
    });
  }

  async onModuleDestroy(): Promise<void> {
    this.#timer?.cancel();
    await this.#running;
  }

  /**
   * Starts purging every room whose lifetime lies in `shortestMs < lifetime <= longestMs`.
   * @returns how many rooms
   */
  async run(shortestMs = -1, longestMs = Infinity): Promise<number> {
    let started = 0;
    for (const [roomId, lifetimeMs] of await this.#lifetimes()) {
      if (lifetimeMs <= shortestMs || lifetimeMs > longestMs) continue;
      try {
        await this.purge.purgeHistory(roomId, { ts: this.clock.nowMs() - lifetimeMs }, true);
        started++;
      } catch (error) {
        // Nothing in the room is that old.
        if (!MatrixError.is(error) || error.status !== 404) throw error;
      }
    }
    await this.tasks.settled();
    return started;
  }

  async #runDue(): Promise<void> {
    for (const job of this.#jobs) {
      if (this.clock.nowMs() < job.dueMs) continue;
      job.dueMs = this.clock.nowMs() + job.intervalMs;
      await this.run(job.shortestMs, job.longestMs);
    }
  }

  /** How long messages of each room may live; rooms without a limit are absent. */
  async #lifetimes(): Promise<Map<string, number>> {
    const usual = this.policies.lifetimeMs(undefined);
    const lifetimes = new Map<string, number>();
    if (usual !== undefined) {
      for (const row of await this.database.query<{ room_id: string }>('SELECT room_id FROM rooms')) {
        lifetimes.set(row.room_id, usual);
      }
    }
    const rows = await this.database.query<{ room_id: string; event_id: string }>(
      `SELECT room_id, event_id FROM current_state_events WHERE type = 'm.room.retention' AND state_key = ''`,
    );
    const events = await this.events.events(rows.map((row) => row.event_id));
    for (const row of rows) {
      const lifetimeMs = this.policies.lifetimeMs(events.get(row.event_id)?.content);
      if (lifetimeMs !== undefined) lifetimes.set(row.room_id, lifetimeMs);
    }
    return lifetimes;
  }
}
