import type { Database } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { type Clock, Config, type Logger, Metrics, SilentLogger, SystemClock } from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier } from '@rookery/replication';
import { FakeNames, makeTestAuthority, SeededIds } from '@rookery/testing';
import { listening } from '@rookery/testing/internal';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import type { SecureContextOptions } from 'node:tls';
import { join } from 'node:path';
import { Destinations } from './destinations/destinations.js';
import { ServerDiscovery } from './discovery/server-discovery.js';
import { WellKnown } from './discovery/well-known.js';
import { KeyFetcher } from './keys/key-fetcher.js';
import { KeyRing } from './keys/key-ring.js';
import { OwnKeys } from './signing/own-keys.js';
import { Dialer } from './network/dialer.js';
import { DirectWay } from './network/direct-way.js';
import { TlsTrust } from './network/tls-trust.js';
import type { WayOut } from './network/way-out.js';
import { ServerConnections } from './requests/connections.js';
import { FederationClient } from './requests/federation-client.js';

/** The authority that the clients of these tests trust. */
export const authority = makeTestAuthority();

/** A request as a played server saw it. */
export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  /** The name that the client sent within TLS; `false` for none. */
  readonly sni: string | false;
}

export type Answer = (request: SeenRequest, response: ServerResponse) => void;

/** A TLS server on the loopback address. */
export class PlayedServer {
  readonly seen: SeenRequest[] = [];
  connections = 0;
  /** Connections that went on with an earlier session. */
  resumed = 0;

  private constructor(
    private readonly server: Server,
    readonly address: string,
    readonly port: number,
  ) {}

  static async start(
    names: readonly string[],
    answer: Answer,
    { address = '127.0.0.1', port = 0, certificate = authority.issue(names), tls = {} as SecureContextOptions } = {},
  ): Promise<PlayedServer> {
    const server = createServer({ ...tls, cert: certificate.cert, key: certificate.key });
    await listening(server, port, address);
    const played = new PlayedServer(server, address, (server.address() as AddressInfo).port);
    server.on('secureConnection', (socket) => {
      played.connections++;
      if (socket.isSessionReused()) played.resumed++;
    });
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        const { servername } = request.socket as unknown as { servername: string | false };
        const { method = '', url = '', headers } = request;
        const seen = { method, url, headers, body, sni: servername };
        played.seen.push(seen);
        answer(seen, response);
      });
    });
    return played;
  }

  get endpoint(): { address: string; port: number } {
    return { address: this.address, port: this.port };
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

export const json = (response: ServerResponse, body: unknown, status = 200): void =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

/** What a client of these tests is made with. */
export interface ClientOptions {
  readonly database: Database;
  readonly names?: FakeNames;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** What stands in for the direct way. */
  readonly wayOf?: (direct: WayOut) => WayOut;
  /** On which other processes say what has changed. */
  readonly bus?: InProcessBus;
}

/** The whole lib around one database, as the Nest module puts it together. */
export interface TestClient {
  readonly client: FederationClient;
  readonly destinations: Destinations;
  readonly discovery: ServerDiscovery;
  readonly wellKnown: WellKnown;
  readonly keys: KeyRing;
  readonly fetcher: KeyFetcher;
  readonly own: OwnKeys;
  readonly names: FakeNames;
  readonly config: Config;
  close(): Promise<void>;
}

export function makeClient({
  database,
  names = new FakeNames(),
  settings = {},
  clock = new SystemClock(),
  logger = new SilentLogger(),
  wayOf = (direct) => direct,
  bus = new InProcessBus(),
}: ClientOptions): TestClient {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-fed-'));
  const caFile = join(folder, 'ca.pem');
  writeFileSync(caFile, authority.cert);
  const config = Config.fromObject({
    server_name: 'origin.test',
    federation_custom_ca_list: [caFile],
    ip_range_whitelist: ['127.0.0.0/8', '::1/128'],
    trusted_key_servers: [],
    'federation.max_short_retry_delay': 1,
    'federation.max_long_retry_delay': 1,
    ...settings,
  });
  const ids = new SeededIds(1);
  const own = new OwnKeys('origin.test', [SigningKey.fromSeed('own', new Uint8Array(32).fill(1))]);
  const trust = TlsTrust.load(config);
  const way = wayOf(DirectWay.of(config, names));
  const dialer = new Dialer({ config, way, trust });
  const userAgent = 'Rookery/test';
  const wellKnown = new WellKnown({ config, clock, ids, dialer, trust, userAgent });
  const discovery = new ServerDiscovery({ config, clock, ids, way, wellKnown });
  const connections = new ServerConnections({ config, clock, discovery, dialer, trust });
  const destinations = new Destinations(
    database,
    config,
    clock,
    ids,
    logger,
    new Invalidations(new Notifier(clock, bus)),
  );
  const metrics = new Metrics('origin.test');
  const client = new FederationClient({
    ...{ config, clock, ids, logger, metrics, keys: own, destinations, connections, userAgent },
  });
  const fetcher = new KeyFetcher(config, clock, logger, client);
  const keys = new KeyRing({ config, clock, database, fetcher, own });
  return {
    ...{ client, destinations, discovery, wellKnown, keys, fetcher, own, names, config },
    close: async () => {
      await client.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
