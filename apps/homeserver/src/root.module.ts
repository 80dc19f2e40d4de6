import { type DynamicModule, Module } from '@nestjs/common';
import type { BackgroundUpdate } from '@rookery/database';
import {
  AppservicesHttpModule,
  AppservicesSenderModule,
  proxiedPathsOf,
  ProxiedRequestsModule,
} from '@rookery/appservices';
import { AdminHttpModule, ServerNoticesModule } from '@rookery/admin';
import { E2eeHttpModule } from '@rookery/e2ee';
import { EphemeralHttpModule } from '@rookery/ephemeral';
import { FederationHttpModule, FederationSenderModule, ProxiedFederationModule } from '@rookery/federation';
import { MediaHttpModule, MediaUpkeepModule, servesMedia } from '@rookery/media';
import type { Config } from '@rookery/platform';
import { ModuleServicesModule, RateLimitsModule } from '@rookery/module-services';
import { PushHttpModule } from '@rookery/push';
import { RoomsHttpModule, RoomsWriterModule } from '@rookery/rooms';
import { SearchHttpModule } from '@rookery/search';
import { SsoHttpModule } from '@rookery/sso';
import { SyncModule } from '@rookery/sync';
import { UsersHttpModule, UsersModule } from '@rookery/users';
import { AvatarsToMediaModule } from './avatars-to-media.js';
import { DatabaseModule } from './core/database.module.js';
import { OutsideModule, type OutsideOptions } from './core/outside.module.js';
import { type Kernel, PlatformModule } from './core/platform.module.js';
import { ReplicationModule } from './core/replication.module.js';
import type { ServedDatabase } from './core/served-database.js';
import { TemplatesModule } from './core/templates.module.js';
import { ActivityMetricsModule, EventMetricsModule, ServerMetricsModule } from './metrics.module.js';
import type { ProcessPlace } from './process-place.js';
import { ReceiptsToPushModule } from './receipts-to-push.js';
import { SsoAvatarsModule } from './sso-avatars.js';
import { ServerInfoModule } from './server-info/server-info.module.js';

/** Application services answer in place of the server, under paths of theirs. */
function proxyModules(config: Config): readonly DynamicModule[] {
  const proxied = proxiedPathsOf(config);
  return [ProxiedRequestsModule.with(proxied), ProxiedFederationModule.with(proxied)];
}

/** What makes one server differ from another, beside its settings. */
export interface RootOptions extends OutsideOptions {
  readonly kernel: Kernel;
  readonly database: ServedDatabase;
  readonly backgroundUpdates: readonly BackgroundUpdate[];
  readonly place: ProcessPlace | undefined;
}

/** The whole server in one process. */
@Module({})
export class RootModule {
  static forRoot({ kernel, database, backgroundUpdates, place, ...outside }: RootOptions): DynamicModule {
    const { config } = kernel;
    return {
      module: RootModule,
      imports: [
        PlatformModule.forRoot(kernel),
        DatabaseModule.forRoot(database, backgroundUpdates),
        ReplicationModule.forRoot(place),
        OutsideModule.forRoot(outside),
        TemplatesModule,
        ServerMetricsModule,
        RateLimitsModule,
        ServerInfoModule,
        UsersModule,
        UsersHttpModule,
        SsoHttpModule,
        ...(servesMedia(config) ? [SsoAvatarsModule] : []),
        RoomsHttpModule,
        RoomsWriterModule,
        AvatarsToMediaModule,
        ...(servesMedia(config) ? [MediaHttpModule, MediaUpkeepModule] : []),
        EphemeralHttpModule,
        E2eeHttpModule,
        PushHttpModule,
        ReceiptsToPushModule,
        SearchHttpModule,
        SyncModule,
        FederationHttpModule,
        FederationSenderModule,
        ServerNoticesModule,
        AdminHttpModule.with(config),
        AppservicesHttpModule,
        AppservicesSenderModule,
        ...(config.get('experimental_features.msc4512_enabled') ? proxyModules(config) : []),
        ModuleServicesModule,
        ActivityMetricsModule,
        EventMetricsModule,
      ],
      // Whoever answers requests asks it who they are from.
      exports: [UsersModule],
    };
  }
}
