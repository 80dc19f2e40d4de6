import { type DynamicModule, Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import type { ProxiedPaths } from '@rookery/http';
import { AppservicesModule } from './appservices.module.js';
import { FedProxyController } from './proxied/fed-proxy.controller.js';
import { proxiedForUsers } from './proxied/proxied-for-users.controller.js';

/** What application services answer clients, and ask other servers (MSC4512). Needs `RequestProxy` from the app. */
@Module({})
export class ProxiedRequestsModule {
  static with(proxied: readonly ProxiedPaths[]): DynamicModule {
    return {
      module: ProxiedRequestsModule,
      imports: [AppservicesModule, FederationClientModule],
      controllers: [FedProxyController, ...proxied.map((paths) => proxiedForUsers(paths))],
    };
  }
}
