import { type DynamicModule, Global, Module, type OnApplicationBootstrap } from '@nestjs/common';
import {
  type BackgroundUpdate,
  BackgroundUpdates,
  backgroundUpdateSettingsOf,
  Database,
  DataStores,
} from '@rookery/database';
import { Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';
import type { ServedDatabase } from './served-database.js';

/** The server's database, which is opened and brought up to date when the module graph is made, and long work on its data. */
@Global()
@Module({})
export class DatabaseModule implements OnApplicationBootstrap {
  constructor(
    private readonly updates: BackgroundUpdates,
    private readonly lifecycle: Lifecycle,
  ) {}

  static forRoot(served: ServedDatabase, updates: readonly BackgroundUpdate[]): DynamicModule {
    return {
      module: DatabaseModule,
      providers: [
        {
          provide: DataStores,
          inject: [Config, Clock, Ids, Logger, Metrics],
          useFactory: (config: Config, clock: Clock, ids: Ids, logger: Logger, metrics: Metrics) =>
            served.open({ config, clock, ids, logger, metrics }),
        },
        { provide: Database, inject: [DataStores], useFactory: ({ main }: DataStores) => main },
        {
          provide: BackgroundUpdates,
          inject: [DataStores, Clock, Config, Logger],
          useFactory: ({ main, state, isSplit }: DataStores, clock: Clock, config: Config, logger: Logger) =>
            new BackgroundUpdates({
              ...{ database: main, clock, updates, state: isSplit ? state : undefined },
              logger: logger.child('background_updates'),
              settings: backgroundUpdateSettingsOf(config),
            }),
        },
      ],
      exports: [Database, DataStores, BackgroundUpdates],
    };
  }

  onApplicationBootstrap(): void {
    const { updates } = this;
    this.lifecycle.on('streams', {
      name: 'background updates',
      start: () => updates.start(),
      stop: () => updates.stop(),
    });
  }
}
