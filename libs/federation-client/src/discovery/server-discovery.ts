import { parseServerName } from '@rookery/matrix-types';
import { Cache, type Clock, type Config, type Ids, SingleFlight } from '@rookery/platform';
import type { Route, WayOut } from '../network/way-out.js';
import { NoWayOutError } from '../network/dial-error.js';
import type { SrvRecord } from '../network/name-resolver.js';
import type { WellKnown } from './well-known.js';

const defaultPort = 8448;
/** How long the way to a server is used before it is looked for again. */
const keptMs = 300_000;
const maxTargets = 6;

/** How a server is reached. */
export interface ServerTarget {
  /** In order of preference; never empty. */
  readonly routes: readonly Route[];
  /** Value of the `Host` header. */
  readonly hostHeader: string;
  /** DNS name or IP address that the certificate must be for. */
  readonly tlsName: string;
}

/** What is needed to find servers. */
export interface DiscoveryParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly way: WayOut;
  readonly wellKnown: WellKnown;
}

/** No server can be found under a name. */
export class DiscoveryError extends Error {
  override readonly name = 'DiscoveryError';
}

/** Finds the way from server names to servers. @spec server-server-api#resolving-server-names */
export class ServerDiscovery {
  readonly #found: Cache<string, { readonly target: ServerTarget; readonly untilMs: number }>;
  readonly #finding = new SingleFlight<ServerTarget>();

  constructor(private readonly parts: DiscoveryParts) {
    this.#found = new Cache(parts.config, 'server_discovery', { invalidation: 'expires', max: 10_000 });
  }

  /** The way to a server where it was found lately. */
  known(serverName: string): ServerTarget | undefined {
    const known = this.#found.get(serverName);
    return known !== undefined && known.untilMs > this.parts.clock.nowMs() ? known.target : undefined;
  }

  /**
   * @throws DiscoveryError for a text that is no server name, and for a server that says it is not there
   * @throws NoWayOutError
   */
  async find(serverName: string): Promise<ServerTarget> {
    const known = this.known(serverName);
    if (known !== undefined) return known;
    return this.#finding.run(serverName, async () => {
      const target = await this.#look(serverName);
      this.#found.set(serverName, { target, untilMs: this.parts.clock.nowMs() + keptMs });
      return target;
    });
  }

  /** Looks again at the next use: the way that was known leads nowhere. */
  forget(serverName: string): void {
    this.#found.delete(serverName);
  }

  async #look(serverName: string): Promise<ServerTarget> {
    const direct = literalTarget(serverName);
    if (direct !== undefined) return direct;
    const delegate = await this.parts.wellKnown.delegateOf(serverName);
    if (delegate === undefined) return this.#bySrv(serverName);
    return literalTarget(delegate) ?? this.#bySrv(delegate);
  }

  /** A host without port: as its SRV records say, else the default port. */
  async #bySrv(host: string): Promise<ServerTarget> {
    for (const service of ['_matrix-fed._tcp', '_matrix._tcp']) {
      const records = await this.#records(`${service}.${host}`);
      if (records.length === 0) continue;
      const routes = this.#inOrder(records).map(({ name, port }) => ({ host: name.replace(/\.$/, ''), port }));
      const usable = routes.filter((route) => route.host !== '' && route.port > 0);
      // A single record that points to the root is the word that there is no such service.
      if (usable.length === 0) throw new DiscoveryError(`${host} says that it is not reachable`);
      return { routes: usable.slice(0, maxTargets), hostHeader: host, tlsName: host };
    }
    return { routes: [{ host, port: defaultPort }], hostHeader: host, tlsName: host };
  }

  /** Without an answer of DNS there are no records: the default port may still be right. */
  async #records(name: string): Promise<readonly SrvRecord[]> {
    try {
      return await this.parts.way.srv(name);
    } catch (error) {
      if (error instanceof NoWayOutError) throw error;
      return [];
    }
  }

  /** By priority, and within one at random by weight. RFC 2782 */
  #inOrder(records: readonly SrvRecord[]): SrvRecord[] {
    const left = records.slice(0, 64);
    const ordered: SrvRecord[] = [];
    while (left.length > 0) {
      const priority = Math.min(...left.map((record) => record.priority));
      const group = left.filter((record) => record.priority === priority);
      const total = group.reduce((sum, { weight }) => sum + weight, 0);
      let pick = total === 0 ? 0 : this.parts.ids.integer(total + 1);
      const chosen = group.find(({ weight }) => (pick -= weight) <= 0) ?? group[0];
      if (chosen === undefined) break;
      ordered.push(chosen);
      left.splice(left.indexOf(chosen), 1);
    }
    return ordered;
  }
}

/** The way to a server whose name says all: an address, or a port. `undefined` when the name must be looked up. */
function literalTarget(serverName: string): ServerTarget | undefined {
  const parts = parseServerName(serverName);
  if (parts === undefined || parts.port === 0) throw new DiscoveryError('This is not the name of a server');
  const { host, kind, port } = parts;
  if (kind === 'dns' && port === undefined) return undefined;
  return { routes: [{ host, port: port ?? defaultPort }], hostHeader: serverName, tlsName: host };
}
