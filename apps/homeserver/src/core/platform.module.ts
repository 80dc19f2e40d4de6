import { type DynamicModule, Global, Module } from '@nestjs/common';
import { ModuleDispatcher, ModuleHost } from '@rookery/module-host';
import { BackgroundTasks, CacheTuner, Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';

/** What a server has before there is a module graph, and when that is gone: it says how a start failed, and ends what began. */
export interface Kernel {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly lifecycle: Lifecycle;
  readonly tasks: BackgroundTasks;
  readonly modules: ModuleHost;
}

/** The kernel, and what of the platform rests on nothing else. */
@Global()
@Module({})
export class PlatformModule {
  constructor(tuner: CacheTuner, lifecycle: Lifecycle) {
    lifecycle.on('streams', {
      ...{ name: 'memory of caches', everyProcess: true },
      start: () => tuner.start(),
      stop: () => tuner.stop(),
    });
  }

  static forRoot({ config, clock, ids, logger, metrics, lifecycle, tasks, modules }: Kernel): DynamicModule {
    const providers = [
      { provide: Config, useValue: config },
      { provide: Clock, useValue: clock },
      { provide: Ids, useValue: ids },
      { provide: Logger, useValue: logger },
      { provide: Metrics, useValue: metrics },
      { provide: Lifecycle, useValue: lifecycle },
      { provide: BackgroundTasks, useValue: tasks },
      { provide: ModuleHost, useValue: modules },
      {
        provide: ModuleDispatcher,
        inject: [ModuleHost],
        useFactory: (host: ModuleHost): ModuleDispatcher => host.dispatcher,
      },
      {
        provide: CacheTuner,
        inject: [Config, BackgroundTasks, Logger],
        useFactory: (own: Config, work: BackgroundTasks, log: Logger) => new CacheTuner(own, work, log.child('caches')),
      },
    ];
    return { module: PlatformModule, providers, exports: providers.map(({ provide }) => provide) };
  }
}
