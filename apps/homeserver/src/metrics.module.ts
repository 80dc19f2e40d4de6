import { Inject, Module, Optional } from '@nestjs/common';
import { BackgroundUpdates, Database } from '@rookery/database';
import { EphemeralHooks, EphemeralModule, PresenceReader, PresenceService } from '@rookery/ephemeral';
import { Clock, Config, Metrics } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import { RoomHooks, RoomsModule } from '@rookery/rooms';
import { Mailer } from '@rookery/templates';
import { MonthlyActiveUsers, UserHooks, UsersModule } from '@rookery/users';
import {
  countAccounts,
  countEvents,
  countMails,
  showActivityMetrics,
  showPresenceMetrics,
  showServerMetrics,
} from './server-metrics.js';

/** Numbers of the server itself. */
@Module({})
export class ServerMetricsModule {
  constructor(
    metrics: Metrics,
    config: Config,
    clock: Clock,
    database: Database,
    notifier: Notifier,
    backgroundUpdates: BackgroundUpdates,
  ) {
    showServerMetrics({ metrics, notifier, backgroundUpdates, config, database, clock });
  }
}

/** Numbers of what people do. */
@Module({ imports: [UsersModule, RoomsModule, EphemeralModule] })
export class ActivityMetricsModule {
  constructor(
    metrics: Metrics,
    users: MonthlyActiveUsers,
    accounts: UserHooks,
    presence: PresenceService,
    reader: PresenceReader,
    ephemeral: EphemeralHooks,
    @Optional() @Inject(Mailer) mailer: Mailer | undefined,
  ) {
    showActivityMetrics(metrics, users);
    countAccounts(metrics, accounts);
    countMails(metrics, mailer);
    showPresenceMetrics(metrics, presence, reader, ephemeral);
  }
}

/** Numbers of what is sent: kept where somebody can read them, for each event costs something. */
@Module({ imports: [RoomsModule] })
export class EventMetricsModule {
  constructor(metrics: Metrics, hooks: RoomHooks, config: Config) {
    if (config.get('enable_metrics')) countEvents(metrics, hooks, config.serverName);
  }
}
