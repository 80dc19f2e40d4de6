import { undici } from '@rookery/http';
import type { Clock, Config, Timer } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import type { TLSSocket } from 'node:tls';
import type { Pool } from 'undici';
import type { ServerDiscovery } from '../discovery/server-discovery.js';
import type { Dialer } from '../network/dialer.js';
import type { TlsTrust } from '../network/tls-trust.js';

/** Requests to one server at once, beside files that are fetched from it. */
export const maxRequests = 16;
/**
 * How long an unused connection, and a server that nothing is sent to, are kept. A new connection costs ten times what a request
 * by an old one does, and an idle one 150 KiB; what talks in a room of many servers shall find it.
 */
const connectionIdleMs = 60_000;
const serverIdleMs = 120_000;
/** With more than these in one room the connections of each are closed when its turn comes. */
const maxServers = 2_000;

/** What connections are made with. */
export interface ConnectionsParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly discovery: ServerDiscovery;
  readonly dialer: Dialer;
  readonly trust: TlsTrust;
}

/** The connections to other servers: by server name, so that two names never share one. */
export class ServerConnections {
  readonly #pools: LRUCache<string, Pool>;
  readonly #sweeping: Timer;

  constructor(private readonly parts: ConnectionsParts) {
    this.#pools = new LRUCache({
      ...{ max: maxServers, ttl: serverIdleMs, updateAgeOnGet: true },
      // Lets what is under way end.
      dispose: (pool) => void pool.close().catch(() => undefined),
    });
    this.#sweeping = parts.clock.every(serverIdleMs / 2, () => this.#pools.purgeStale());
  }

  /** The connections to a server; opened when they are used. */
  to(serverName: string): Pool {
    let pool = this.#pools.get(serverName);
    if (pool === undefined) this.#pools.set(serverName, (pool = this.#open(serverName)));
    return pool;
  }

  /** {@link hostHeaderOf} where the way to the server is known. */
  knownHostHeaderOf(serverName: string): string | undefined {
    return this.parts.discovery.known(serverName)?.hostHeader;
  }

  /**
   * Value of the `Host` header for a server.
   * @throws DiscoveryError
   */
  async hostHeaderOf(serverName: string): Promise<string> {
    return (await this.parts.discovery.find(serverName)).hostHeader;
  }

  /** Cuts everything. */
  async close(): Promise<void> {
    this.#sweeping.cancel();
    const pools = [...this.#pools.values()];
    this.#pools.clear();
    await Promise.all(pools.map((pool) => pool.destroy()));
  }

  #open(serverName: string): Pool {
    const connections = maxRequests + this.parts.config.get('remote_media_downloads_per_server');
    // The origin is a stand-in: names are not URLs, and two of them may share one.
    return new (undici().Pool)('https://federation.invalid', {
      ...{ connections, pipelining: 1, allowH2: false, maxHeaderSize: 32_768 },
      keepAliveTimeout: connectionIdleMs,
      keepAliveMaxTimeout: connectionIdleMs,
      // Requests bring a time limit for everything.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: (_, callback) => {
        this.#connect(serverName).then(
          (socket) => callback(null, socket),
          (error: Error) => callback(error, null),
        );
      },
    });
  }

  async #connect(serverName: string): Promise<TLSSocket> {
    const { discovery, dialer, trust } = this.parts;
    const target = await discovery.find(serverName);
    try {
      return await dialer.dial({ ...target, verify: trust.verifies(target.tlsName) });
    } catch (error) {
      discovery.forget(serverName);
      throw error;
    }
  }
}
