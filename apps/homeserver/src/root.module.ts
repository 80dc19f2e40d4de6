import { type DynamicModule, Module } from '@nestjs/common';
import { AppservicesHttpModule, AppservicesSenderModule } from '@rookery/appservices';
import { AdminHttpModule, ServerNoticesModule } from '@rookery/admin';
import { E2eeHttpModule } from '@rookery/e2ee';
import { EphemeralHttpModule } from '@rookery/ephemeral';
import { FederationHttpModule, FederationSenderModule } from '@rookery/federation';
import { MediaHttpModule, MediaUpkeepModule } from '@rookery/media';
import { ModuleServicesModule, RateLimitsModule } from '@rookery/module-services';
import { PushHttpModule } from '@rookery/push';
import { RoomsHttpModule, RoomsWriterModule } from '@rookery/rooms';
import { SearchHttpModule } from '@rookery/search';
import { SsoHttpModule } from '@rookery/sso';
import { SyncModule } from '@rookery/sync';
import { UsersHttpModule, UsersModule } from '@rookery/users';
import { AvatarsToMediaModule } from './avatars-to-media.js';
import { PlatformModule, type PlatformParts } from './platform.module.js';
import { ReceiptsToPushModule } from './receipts-to-push.js';
import { SsoAvatarsModule } from './sso-avatars.js';
import { ServerInfoModule } from './server-info/server-info.module.js';

/** The whole server in one process. */
@Module({})
export class RootModule {
  static with(parts: PlatformParts): DynamicModule {
    return {
      module: RootModule,
      imports: [
        PlatformModule.with(parts),
        RateLimitsModule,
        ServerInfoModule,
        UsersModule,
        UsersHttpModule,
        SsoHttpModule,
        ...(parts.config.get('enable_media_repo') ? [SsoAvatarsModule] : []),
        RoomsHttpModule,
        RoomsWriterModule,
        AvatarsToMediaModule,
        ...(parts.config.get('enable_media_repo') ? [MediaHttpModule, MediaUpkeepModule] : []),
        EphemeralHttpModule,
        E2eeHttpModule,
        PushHttpModule,
        ReceiptsToPushModule,
        SearchHttpModule,
        SyncModule,
        FederationHttpModule,
        FederationSenderModule,
        ServerNoticesModule,
        AdminHttpModule.with(parts.config),
        AppservicesHttpModule,
        AppservicesSenderModule,
        ModuleServicesModule,
      ],
      // Whoever answers requests asks it who they are from.
      exports: [UsersModule],
    };
  }
}
