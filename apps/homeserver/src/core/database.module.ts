import { type DynamicModule, Global, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { type BackgroundUpdate, BackgroundUpdates, backgroundUpdateSettingsOf, Database } from '@rookery/database';
import { Clock, Config, Lifecycle, Logger, Metrics } from '@rookery/platform';
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
          provide: Database,
          inject: [Config, Clock, Logger, Metrics],
          useFactory: (config: Config, clock: Clock, logger: Logger, metrics: Metrics) =>
            served.open({ config, clock, logger, metrics }),
        },
        {
          provide: BackgroundUpdates,
          inject: [Database, Clock, Config, Logger],
          useFactory: (database: Database, clock: Clock, config: Config, logger: Logger) =>
            new BackgroundUpdates({
              ...{ database, clock, updates },
              logger: logger.child('background_updates'),
              settings: backgroundUpdateSettingsOf(config),
            }),
        },
      ],
      exports: [Database, BackgroundUpdates],
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
