import { type DynamicModule, Global, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';
import {
  backgroundRole,
  Bus,
  FollowerSharing,
  InProcessBus,
  InProcessRpc,
  Invalidations,
  LeasedRoles,
  LocalRoles,
  mediaRole,
  Notifier,
  Roles,
  Rpc,
  Streams,
  StreamWriters,
  WorkSharing,
} from '@rookery/replication';
import { isBesideWriter, type ProcessPlace } from '../process-place.js';
import { countCalls, countNews, wakeMetrics } from '../server-metrics.js';
import { eagernessOf } from './duties.js';

/** How the parts of a server, in one process or several, hear of what the others changed. */
@Global()
@Module({})
export class ReplicationModule implements OnApplicationBootstrap {
  constructor(
    private readonly roles: Roles,
    private readonly lifecycle: Lifecycle,
  ) {}

  /** @param place where the process is among others; the whole server unless told */
  static forRoot(place?: ProcessPlace): DynamicModule {
    const isBeside = isBesideWriter(place);
    return {
      module: ReplicationModule,
      providers: [
        {
          provide: Bus,
          inject: [Metrics],
          useFactory: (metrics: Metrics): Bus => {
            const bus = place?.bus ?? new InProcessBus();
            countNews(metrics, bus, place?.name);
            return bus;
          },
        },
        {
          provide: Rpc,
          inject: [Metrics],
          useFactory: (metrics: Metrics): Rpc => {
            const rpc = place?.rpc ?? new InProcessRpc();
            countCalls(metrics, rpc);
            return rpc;
          },
        },
        {
          provide: Roles,
          inject: [Rpc, BackgroundTasks, Clock, Config, Logger],
          useFactory: (rpc: Rpc, tasks: BackgroundTasks, clock: Clock, config: Config, logger: Logger): Roles => {
            const roles: Roles =
              place === undefined
                ? new LocalRoles(rpc)
                : new LeasedRoles({
                    ...{ rpc, leases: place.leases, clock, logger, instance: place.name, isWriter: !isBeside },
                    eagernessOf: (role) => eagernessOf(config, role, isBeside),
                  });
            // What is no role that moves is the process's that writes.
            tasks.runOnly((role) => roles.holdsAny(role));
            for (const [role, name] of [[backgroundRole, 'background'] as const, [mediaRole, 'media'] as const])
              roles.take(role, { start: () => tasks.enter(name), stop: () => tasks.leave(name) });
            return roles;
          },
        },
        {
          provide: WorkSharing,
          inject: [Roles, Rpc, Bus, Streams, Invalidations, Clock, Ids, Logger],
          useFactory: (
            roles: Roles,
            rpc: Rpc,
            bus: Bus,
            streams: Streams,
            invalidations: Invalidations,
            clock: Clock,
            ids: Ids,
            logger: Logger,
          ) => new WorkSharing({ roles, rpc, bus, streams, invalidations, clock, ids, logger }),
        },
        {
          provide: FollowerSharing,
          inject: [Roles, Rpc, Database, Notifier, Clock, Logger],
          useFactory: (roles: Roles, rpc: Rpc, database: Database, notifier: Notifier, clock: Clock, logger: Logger) =>
            new FollowerSharing({ roles, rpc, database, notifier, clock, logger }),
        },
        {
          provide: Notifier,
          inject: [Clock, Bus, Config, Metrics],
          useFactory: (clock: Clock, bus: Bus, config: Config, metrics: Metrics) =>
            new Notifier(clock, bus, {
              instance: place?.name,
              onDelivered: config.get('enable_metrics') ? wakeMetrics(metrics) : undefined,
            }),
        },
        {
          provide: Streams,
          inject: [Database, Notifier, Rpc, Config],
          useFactory: (database: Database, notifier: Notifier, rpc: Rpc, config: Config) =>
            new Streams(database, notifier, {
              writers: new StreamWriters(place?.name, {}, place?.writer, place?.sharing),
              rpc,
              config,
            }),
        },
        {
          provide: Invalidations,
          inject: [Notifier],
          useFactory: (notifier: Notifier) => new Invalidations(notifier),
        },
      ],
      exports: [Bus, Rpc, Roles, Notifier, Streams, Invalidations, WorkSharing, FollowerSharing],
    };
  }

  onApplicationBootstrap(): void {
    const { roles } = this;
    this.lifecycle.on('listen', { name: 'roles', start: () => roles.start(), stop: () => roles.stop() });
  }
}
