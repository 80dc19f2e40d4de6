import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config, Lifecycle, Logger, Metrics } from '@rookery/platform';
import { PeriodicJob } from '@rookery/rooms';
import { countServers } from './sender.query.js';

const periodMs = 3_600_000;

/** Counts the servers that share a room with this one, itself among them, for who wants that number. */
@Injectable()
export class KnownServers {
  constructor(
    database: Database,
    clock: Clock,
    config: Config,
    logger: Logger,
    lifecycle: Lifecycle,
    metrics: Metrics,
  ) {
    if (!config.get('metrics_flags.known_servers')) return;
    const gauge = metrics.gauge('synapse_federation_known_servers');
    const name = 'count known servers';
    const work = async (): Promise<void> => gauge.set({}, await countServers(database));
    const job = new PeriodicJob({ clock, logger, name, periodMs, work });
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
