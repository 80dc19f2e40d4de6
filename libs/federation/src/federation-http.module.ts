import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { FederationClientModule } from '@rookery/federation-client';
import { MediaModule } from '@rookery/media';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { DeviceKeysForServersController } from './devices/device-keys.controller.js';
import { FederationModule } from './federation.module.js';
import { FederationSenderModule } from './federation-sender.module.js';
import { FederationGuard } from './inbound/federation-guard.js';
import { FederationRateLimiter } from './inbound/federation-rate-limiter.js';
import { RequestVerifier } from './inbound/request-verifier.js';
import { UnprovenLimits } from './inbound/unproven-limits.js';
import { KeyPublisher } from './keys/key-publisher.js';
import { KeyServerController } from './keys/key-server.controller.js';
import { MediaForServersController } from './media/media-for-servers.controller.js';
import { InboundInvites } from './membership/inbound-invites.js';
import { InvitesForServersController } from './membership/invites.controller.js';
import { JoinAnswers } from './membership/join-answers.js';
import { MembershipForServersController } from './membership/membership.controller.js';
import { MembershipRequests } from './membership/membership-requests.js';
import { RestrictedAdmissions } from './membership/restricted-admissions.js';
import { TakenInvites } from './membership/taken-invites.js';
import { ThreepidExchange } from './membership/threepid-exchange.js';
import { FederationWhitelistController } from './queries/federation-whitelist.controller.js';
import { OpenIdUserinfoController } from './queries/openid-userinfo.controller.js';
import { PublicRoomsForServersController } from './queries/public-rooms.controller.js';
import { AccountStatusesForServersController } from './queries/account-statuses.controller.js';
import { FederationQueryController } from './queries/query.controller.js';
import { FederationVersionController } from './queries/server-version.controller.js';
import { ComplexityController } from './remote-rooms/complexity.controller.js';
import { ExtremitiesController } from './rooms/extremities.controller.js';
import { EventDeliveries } from './rooms/event-deliveries.js';
import { PduReplies } from './rooms/pdu-replies.js';
import { ResidentRooms } from './rooms/resident-rooms.js';
import { RoomHistory } from './rooms/room-history.js';
import { RoomHistoryForServersController } from './rooms/room-history.controller.js';
import { InboundTransactionsModule } from './transactions/transactions.module.js';
import { SendTransactionController } from './transactions/send.controller.js';

/** The API for other servers, and what becomes of their transactions. */
@Module({
  imports: [
    FederationModule,
    InboundTransactionsModule,
    FederationSenderModule,
    FederationClientModule,
    UsersModule,
    RoomsModule,
    MediaModule,
    E2eeModule,
    EphemeralModule,
  ],
  providers: [
    RequestVerifier,
    UnprovenLimits,
    FederationRateLimiter,
    FederationGuard,
    KeyPublisher,
    ResidentRooms,
    RoomHistory,
    EventDeliveries,
    PduReplies,
    RestrictedAdmissions,
    MembershipRequests,
    JoinAnswers,
    InboundInvites,
    TakenInvites,
    ThreepidExchange,
  ],
  controllers: [
    KeyServerController,
    FederationVersionController,
    FederationWhitelistController,
    OpenIdUserinfoController,
    AccountStatusesForServersController,
    FederationQueryController,
    DeviceKeysForServersController,
    PublicRoomsForServersController,
    MediaForServersController,
    SendTransactionController,
    RoomHistoryForServersController,
    ExtremitiesController,
    ComplexityController,
    MembershipForServersController,
    InvitesForServersController,
  ],
  exports: [RequestVerifier, FederationRateLimiter, FederationGuard],
})
export class FederationHttpModule {}
