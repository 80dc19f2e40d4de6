import { type DynamicModule, Module } from '@nestjs/common';
import type { ProxiedPaths } from '@rookery/http';
import { FederationHttpModule } from './federation-http.module.js';
import { proxiedForServers } from './queries/proxied-for-servers.controller.js';

/** What application services answer other servers (MSC4512). Needs `RequestProxy` from the app. */
@Module({})
export class ProxiedFederationModule {
  static with(proxied: readonly ProxiedPaths[]): DynamicModule {
    return {
      module: ProxiedFederationModule,
      imports: [FederationHttpModule],
      controllers: proxied.map((paths) => proxiedForServers(paths)),
    };
  }
}
