import { Module } from '@nestjs/common';
import { Database } from '@rookery/database';
import { OutboundHttp } from '@rookery/http';
import { Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';
import { Rpc } from '@rookery/replication';
import { Destinations } from './destinations/destinations.js';
import { ServerDiscovery } from './discovery/server-discovery.js';
import { WellKnown } from './discovery/well-known.js';
import { KeyFetcher } from './keys/key-fetcher.js';
import { KeyRing } from './keys/key-ring.js';
import { OwnKeys } from './signing/own-keys.js';
import { Dialer } from './network/dialer.js';
import { DirectWay } from './network/direct-way.js';
import { lendWay, LentWay } from './network/lent-way.js';
import { NameResolver } from './network/name-resolver.js';
import { maySpeak, speakersOf } from './network/speakers.js';
import { TlsTrust } from './network/tls-trust.js';
import { WayOut } from './network/way-out.js';
import { ServerConnections } from './requests/connections.js';
import { FederationClient } from './requests/federation-client.js';
import { FederationMedia, wayTo } from './requests/federation-media.js';
import { ServerSoftware } from './server-software.js';

/**
 * Requests to other servers and their keys; safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`, `Logger`,
 * `Metrics`, `Lifecycle`, `Rpc`, `OutboundHttp`, `OwnKeys`, `NameResolver` and `ServerSoftware` from the app's global modules.
 */
@Module({
  providers: [
    Destinations,
    {
      provide: WayOut,
      inject: [Config, NameResolver, Rpc, Clock, Logger, Metrics, Lifecycle],
      useFactory: (
        config: Config,
        resolver: NameResolver,
        rpc: Rpc,
        clock: Clock,
        logger: Logger,
        metrics: Metrics,
        lifecycle: Lifecycle,
      ): WayOut => {
        const way = DirectWay.of(config, resolver);
        const lenders = speakersOf(config);
        // A server that is a single process has nobody else to speak for it.
        if (lenders === undefined || rpc.processNumber === undefined) return way;
        if (!maySpeak(config)) return new LentWay({ rpc, clock, logger: logger.child('federation'), lenders });
        const stop = lendWay({ rpc, way, metrics });
        lifecycle.on('listen', { name: 'way to other servers', stop });
        return way;
      },
    },
    {
      provide: FederationClient,
      inject: [Config, Clock, Ids, Logger, Metrics, OwnKeys, Destinations, WayOut, ServerSoftware, Lifecycle],
      useFactory: (
        config: Config,
        clock: Clock,
        ids: Ids,
        logger: Logger,
        metrics: Metrics,
        keys: OwnKeys,
        destinations: Destinations,
        way: WayOut,
        software: ServerSoftware,
        lifecycle: Lifecycle,
      ): FederationClient => {
        const trust = TlsTrust.load(config);
        const dialer = new Dialer({ config, way, trust });
        const { userAgent } = software;
        const wellKnown = new WellKnown({ config, clock, ids, dialer, trust, userAgent });
        const discovery = new ServerDiscovery({ config, clock, ids, way, wellKnown });
        const connections = new ServerConnections({ config, clock, discovery, dialer, trust });
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
      inject: [FederationClient, OutboundHttp, WayOut, Lifecycle],
      useFactory: (
        client: FederationClient,
        outbound: OutboundHttp,
        way: WayOut,
        lifecycle: Lifecycle,
      ): FederationMedia => {
        if (way instanceof DirectWay) return new FederationMedia(client, outbound);
        const lent = outbound.connectingBy(wayTo(way));
        lifecycle.on('streams', { name: 'media of other servers', everyProcess: true, stop: () => lent.close() });
        return new FederationMedia(client, lent);
      },
    },
  ],
  exports: [Destinations, FederationClient, KeyRing, FederationMedia],
})
export class FederationClientModule {}
