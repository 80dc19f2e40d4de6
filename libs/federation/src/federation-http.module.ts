import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { FederationModule } from './federation.module.js';
import { FederationGuard } from './inbound/federation-guard.js';
import { RequestVerifier } from './inbound/request-verifier.js';
import { KeyPublisher } from './keys/key-publisher.js';
import { KeyServerController } from './keys/key-server.controller.js';
import { OpenIdUserinfoController } from './queries/openid-userinfo.controller.js';
import { FederationQueryController } from './queries/query.controller.js';
import { FederationVersionController } from './queries/server-version.controller.js';

/** The API for other servers. */
@Module({
  imports: [FederationModule, FederationClientModule, UsersModule, RoomsModule],
  providers: [RequestVerifier, FederationGuard, KeyPublisher],
  controllers: [KeyServerController, FederationVersionController, OpenIdUserinfoController, FederationQueryController],
})
export class FederationHttpModule {}
