import { Global, Module } from '@nestjs/common';
import { EphemeralModule } from '@rookery/ephemeral';
import { FederationClientModule } from '@rookery/federation-client';
import { LeakyBucketRateLimiter, RateLimiter, RateLimitOverrides, rateLimitsOf } from '@rookery/http';
import { MediaModule } from '@rookery/media';
import { ModuleDispatcher } from '@rookery/module-host';
import { Clock, Config } from '@rookery/platform';
import { Rpc, Streams } from '@rookery/replication';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { SsoModule } from '@rookery/sso';
import { StoredRateLimitOverrides, UsersModule } from '@rookery/users';
import { AccountCalls } from './accounts/account-calls.js';
import { ModuleAccountActivity } from './accounts/account-activity.js';
import { ModuleAccountChanges } from './accounts/account-changes.js';
import { ModuleAccountLookups } from './accounts/account-lookups.js';
import { ModuleAccountSessions } from './accounts/account-sessions.js';
import { LocalAccounts } from './accounts/local-accounts.js';
import { ModuleAccountData } from './accounts/module-account-data.js';
import { BackgroundUpdateControl } from './background-update-control.js';
import { ServerCapabilities, SharedCalls } from './capabilities.js';
import { JobRunner } from './jobs/jobs.js';
import { MessagingCalls } from './messaging/messaging-calls.js';
import { ModuleCopies } from './module-copies.js';
import { ModuleMail } from './messaging/module-mail.js';
import { ModulePresence } from './messaging/module-presence.js';
import { ModulePush } from './messaging/module-push.js';
import { ModuleServices } from './module-services.js';
import { NewEvents } from './new-events.js';
import { AdministratorsRateLimits, ModuleRateLimiter } from './rate-limits.js';
import { SharedRateLimiter } from './shared-rate-limiter.js';
import { ModuleMembershipChanges } from './rooms/membership-changes.js';
import { ModulePublicRoomList } from './rooms/public-room-list.js';
import { RoomCalls } from './rooms/room-calls.js';
import { ModuleRoomCreation } from './rooms/room-creation.js';
import { ModuleRoomEvents } from './rooms/room-events.js';
import { ModuleRoomLookups } from './rooms/room-lookups.js';
import { ModuleRoomMedia } from './rooms/room-media.js';
import { ModuleRoomRemoval } from './rooms/room-removal.js';
import { StatesAfterEvents } from './states-after-events.js';
import { ModuleDocuments } from './storage/documents.query.js';
import { ModuleTables } from './storage/tables.js';
import { WebResources } from './web/web-resources.js';

/** What modules may call about accounts. */
@Module({
  imports: [UsersModule, SsoModule],
  providers: [
    LocalAccounts,
    ModuleAccountLookups,
    ModuleAccountChanges,
    ModuleAccountSessions,
    ModuleAccountActivity,
    ModuleAccountData,
    AccountCalls,
  ],
  exports: [LocalAccounts, AccountCalls],
})
class AccountCallsModule {}

/** What modules may call about rooms. */
@Module({
  imports: [RoomsModule, MediaModule, AccountCallsModule],
  providers: [
    ModuleRoomLookups,
    ModuleMembershipChanges,
    ModuleRoomEvents,
    ModuleRoomCreation,
    ModuleRoomRemoval,
    ModuleRoomMedia,
    ModulePublicRoomList,
    RoomCalls,
  ],
  exports: [RoomCalls],
})
class RoomCallsModule {}

/** What modules may call to tell people and devices. */
@Module({
  imports: [EphemeralModule, PushModule, AccountCallsModule],
  providers: [ModulePresence, ModulePush, ModuleMail, MessagingCalls],
  exports: [MessagingCalls],
})
class MessagingCallsModule {}

/**
 * What runs in the server for its modules, and what they may call. Needs `ModuleHost`, `WebMounts`, `BackgroundUpdates`,
 * `OutboundHttp` and `Mailer` from the app's global modules, beside what the domains need.
 */
@Module({
  imports: [AccountCallsModule, RoomCallsModule, MessagingCallsModule, FederationClientModule, RoomsModule],
  providers: [
    SharedCalls,
    ServerCapabilities,
    ModuleDocuments,
    ModuleTables,
    ModuleCopies,
    JobRunner,
    WebResources,
    BackgroundUpdateControl,
    StatesAfterEvents,
    NewEvents,
    ModuleServices,
  ],
  exports: [ModuleServices],
})
export class ModuleServicesModule {}

/** The limits of the settings, for which administrators and modules may have other numbers. */
@Global()
@Module({
  providers: [
    StoredRateLimitOverrides,
    { provide: RateLimitOverrides, useClass: AdministratorsRateLimits },
    {
      provide: RateLimiter,
      inject: [Config, Clock, RateLimitOverrides, ModuleDispatcher, Rpc, Streams],
      useFactory: (
        config: Config,
        clock: Clock,
        overrides: RateLimitOverrides,
        dispatcher: ModuleDispatcher,
        rpc: Rpc,
        { writers }: Streams,
      ) => {
        const usual = new LeakyBucketRateLimiter(clock, rateLimitsOf(config), overrides);
        return new SharedRateLimiter(new ModuleRateLimiter(usual, overrides, dispatcher, clock), rpc, writers);
      },
    },
  ],
  exports: [StoredRateLimitOverrides, RateLimiter],
})
export class RateLimitsModule {}
