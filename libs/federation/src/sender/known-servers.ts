import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, Clock, Config, Lifecycle, Metrics } from '@rookery/platform';
import { countServers } from './sender.query.js';

const periodMs = 3_600_000;

/** Counts the servers that share a room with this one, itself among them, for who wants that number. */
@Injectable()
export class KnownServers {
  constructor(
    database: Database,
    clock: Clock,
    config: Config,
    lifecycle: Lifecycle,
    tasks: BackgroundTasks,
    metrics: Metrics,
  ) {
    if (!config.get('metrics_flags.known_servers')) return;
    const gauge = metrics.gauge('synapse_federation_known_servers');
    const name = 'count_known_servers';
    const work = async (): Promise<void> => gauge.set({}, await countServers(database));
    const job = tasks.add({ name, role: 'writer', everyMs: periodMs, run: work });
    lifecycle.on('streams', {
      name,
      start: () => {
        job.start();
        void job.run();
      },
      stop: () => job.stop(),
    });
  }
}
