import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { atEase, BackgroundTasks, Clock } from '@rookery/platform';
import { deleteConnections, selectUnused } from './connections.query.js';
import { expiryMs } from './connections.js';

const sweepEveryMs = 3_600_000;
/** Connections that are deleted at a time: each may have been told of thousands of rooms. */
const sweepBatch = 10;

/** Deletes connections of sliding sync that nobody has used for long. */
@Injectable()
export class ConnectionSweep implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    const run = (signal: AbortSignal): Promise<void> => this.#sweep(signal);
    this.tasks.add({ name: 'delete_unused_sync_connections', role: 'background', everyMs: sweepEveryMs, run }).start();
  }

  async #sweep(signal: AbortSignal): Promise<void> {
    const beforeMs = this.clock.nowMs() - expiryMs;
    while (!signal.aborted && (await atEase(this.clock, signal, () => this.#sweepSome(beforeMs))));
  }

  /** @returns whether there may be more */
  async #sweepSome(beforeMs: number): Promise<boolean> {
    const keys = await selectUnused(this.database, beforeMs, sweepBatch);
    if (keys.length === 0) return false;
    const options = { name: 'sliding_sync_sweep', anyProcess: true };
    await this.database.write((tx) => deleteConnections(tx, keys), options);
    return keys.length === sweepBatch;
  }
}
