import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, Clock } from '@rookery/platform';
import { deleteConnections, selectUnused } from './connections.query.js';
import { expiryMs } from './connections.js';

const sweepEveryMs = 3_600_000;
const sweepBatch = 200;

/** Deletes connections of sliding sync that nobody has used for long. */
@Injectable()
export class ConnectionSweep implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    const run = (): Promise<void> => this.#sweep();
    this.tasks.add({ name: 'delete_unused_sync_connections', role: 'background', everyMs: sweepEveryMs, run }).start();
  }

  async #sweep(): Promise<void> {
    const keys = await selectUnused(this.database, this.clock.nowMs() - expiryMs, sweepBatch);
    if (keys.length === 0) return;
    const options = { name: 'sliding_sync_sweep', anyProcess: true };
    await this.database.write((tx) => deleteConnections(tx, keys), options);
  }
}
