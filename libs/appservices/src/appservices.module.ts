import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { AppserviceClient } from './queries/appservice-client.js';
import { AppserviceKeys } from './queries/appservice-keys.js';
import { AppserviceQueries } from './queries/appservice-queries.js';
import { ThirdPartyNetworks } from './queries/third-party.service.js';
import { AppserviceRegistry } from './registration/appservice-registry.js';

const services = [AppserviceRegistry, AppserviceClient, AppserviceQueries, AppserviceKeys, ThirdPartyNetworks];

/** The application services that the server knows, and questions to them; safe in any process. */
@Module({ imports: [UsersModule, RoomsModule, E2eeModule], providers: services, exports: services })
export class AppservicesModule {}
