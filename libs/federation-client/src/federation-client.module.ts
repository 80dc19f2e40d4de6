import { Module } from '@nestjs/common';
import { Database } from '@rookery/database';
import { federationGuardOf, OutboundHttp } from '@rookery/http';
import { Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';
import { Destinations } from './destinations/destinations.js';
import { ServerDiscovery } from './discovery/server-discovery.js';
import { WellKnown } from './discovery/well-known.js';
import { KeyFetcher } from './keys/key-fetcher.js';
import { KeyRing } from './keys/key-ring.js';
import { OwnKeys } from './signing/own-keys.js';
import { Dialer } from './network/dialer.js';
import { NameResolver } from './network/name-resolver.js';
import { Proxy } from './network/proxies.js';
import { TlsTrust } from './network/tls-trust.js';
import { ServerConnections } from './requests/connections.js';
import { FederationClient } from './requests/federation-client.js';
import { FederationMedia } from './requests/federation-media.js';
import { ServerSoftware } from './server-software.js';

/**
 * Requests to other servers and their keys; safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`, `Logger`,
 * `Metrics`, `Lifecycle`, `OutboundHttp`, `OwnKeys`, `NameResolver` and `ServerSoftware` from the app's global modules.
 */
@Module({
  providers: [
    Destinations,
    {
      provide: FederationClient,
      inject: [Config, Clock, Ids, Logger, Metrics, OwnKeys, Destinations, NameResolver, ServerSoftware, Lifecycle],
      useFactory: (
        config: Config,
        clock: Clock,
        ids: Ids,
        logger: Logger,
        metrics: Metrics,
        keys: OwnKeys,
        destinations: Destinations,
        resolver: NameResolver,
        software: ServerSoftware,
        lifecycle: Lifecycle,
      ): FederationClient => {
        const trust = TlsTrust.load(config);
        const guard = federationGuardOf(config);
        const dialer = new Dialer({ config, resolver, guard, trust, proxy: Proxy.of(config) });
        const { userAgent } = software;
        const wellKnown = new WellKnown({ config, clock, ids, dialer, trust, userAgent });
        const discovery = new ServerDiscovery({ config, clock, ids, resolver, wellKnown });
        const connections = new ServerConnections({ clock, discovery, dialer, trust });
        const client = new FederationClient({
          ...{ config, clock, ids, metrics, keys, destinations, connections, userAgent },
          logger: logger.child('federation'),
        });
        lifecycle.on('streams', { name: 'federation client', stop: () => client.close() });
        return client;
      },
    },
    {
      provide: KeyRing,
      inject: [Config, Clock, Logger, Database, OwnKeys, FederationClient],
      useFactory: (
        config: Config,
        clock: Clock,
        logger: Logger,
        database: Database,
        own: OwnKeys,
        client: FederationClient,
      ): KeyRing => {
        const fetcher = new KeyFetcher(config, clock, logger.child('federation'), client);
        const trusted = config.get('trusted_key_servers').map(({ server_name }) => server_name);
        if (trusted.join() === 'matrix.org' && !config.get('suppress_key_server_warning'))
          logger.warn(
            "Other servers' keys are believed as matrix.org tells them; choose trusted_key_servers, or set suppress_key_server_warning",
          );
        return new KeyRing({ config, clock, database, fetcher, own });
      },
    },
    {
      provide: FederationMedia,
      inject: [FederationClient, OutboundHttp],
      useFactory: (client: FederationClient, outbound: OutboundHttp): FederationMedia =>
        new FederationMedia(client, outbound),
    },
  ],
  exports: [Destinations, FederationClient, KeyRing, FederationMedia],
})
export class FederationClientModule {}
