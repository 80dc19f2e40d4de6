import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, batchesOf, Cache, Config, Logger, ownTurn, Semaphore } from '@rookery/platform';
import { defineRpc, Rpc } from '@rookery/replication';
import { UserHooks } from '../hooks.js';
import { MonthlyActiveUsers } from '../usage/monthly-active-users.service.js';
import { recordActivity, type Sighting } from './client-activity.query.js';

/** How exact "last seen" is. */
const granularityMs = 120_000;
const flushEveryMs = 5_000;
/** Sightings kept between two flushes; more are dropped, and noted again with the next request. */
const maxPending = 50_000;
/** Sightings that are written before others get a turn. */
const writtenPerTurn = 500;

const writeActivity = defineRpc<null, null>('write_client_activity');

/** Notes when and from where users were last active: in memory at once, in the database in batches. */
@Injectable()
export class ClientActivity implements OnModuleInit, OnModuleDestroy {
  /** When each was last noted, by this process. */
  readonly #noted: Cache<string, number>;
  #pending = new Map<string, Sighting>();
  readonly #flushing = new Semaphore(1);

  constructor(
    private readonly database: Database,
    private readonly logger: Logger,
    private readonly monthly: MonthlyActiveUsers,
    private readonly hooks: UserHooks,
    private readonly tasks: BackgroundTasks,
    private readonly rpc: Rpc,
    config: Config,
  ) {
    this.#noted = new Cache(config, 'client_ip_last_seen', { invalidation: 'expires', max: 2 * maxPending });
  }

  onModuleInit(): void {
    this.rpc.handle(writeActivity, async () => {
      await this.#write();
      return null;
    });
    const run = (): Promise<void> => this.#write();
    this.tasks.add({ name: 'write_client_activity', role: 'every_process', everyMs: flushEveryMs, run }).start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.#write();
  }

  /** Costs one look-up while the sighting is younger than two minutes. */
  seen(userId: string, deviceId: string | undefined, ip: string, userAgent: string, nowMs: number): void {
    const key = `${userId}\n${deviceId ?? ''}\n${ip}`;
    const notedMs = this.#noted.get(key);
    if ((notedMs !== undefined && nowMs - notedMs < granularityMs) || this.#pending.size >= maxPending) return;
    this.#noted.set(key, nowMs);
    this.#pending.set(key, {
      userId,
      deviceId,
      ip: ip.slice(0, 64),
      userAgent: userAgent.slice(0, 512).toWellFormed().replaceAll('\0', ''),
      seenMs: nowMs,
    });
  }

  /** Has every process write what it noted; resolves when it is durable. A failure costs what is not written yet, and is logged. */
  async flush(): Promise<void> {
    await Promise.all([this.#write(), this.rpc.callOthers(writeActivity, null)]);
  }

  #write(): Promise<void> {
    return this.#flushing.run(() => this.#flush());
  }

  async #flush(): Promise<void> {
    if (this.#pending.size === 0) return;
    const sightings = [...this.#pending.values()];
    this.#pending = new Map();
    let written = 0;
    try {
      for (const batch of batchesOf(sightings, writtenPerTurn)) {
        if (written > 0) await ownTurn();
        await this.database.write((tx) => recordActivity(tx, batch), { name: 'client_activity', anyProcess: true });
        const userIds = [...new Set(batch.map((one) => one.userId))];
        await this.monthly.seen(userIds);
        await this.hooks.active.afterCommit({ userIds });
        written += batch.length;
      }
    } catch (error) {
      const lost = sightings.length - written;
      this.logger.error('Could not note when users were last active', { err: error, sightings: lost });
    }
  }
}
