import { federationGuardOf, IpGuard } from '@rookery/http';
import type { Config } from '@rookery/platform';
import { connect, isIP, type Socket } from 'node:net';
import { DialError } from './dial-error.js';
import type { Endpoint, NameResolver, SrvRecord } from './name-resolver.js';
import { Proxy } from './proxies.js';
import { untilAborted } from './until-aborted.js';
import { type Errand, type Route, WayOut } from './way-out.js';

/** Addresses of one route that are tried. */
const maxEndpoints = 8;
/** When the next address gets its chance beside one that has not answered yet, milliseconds. */
const staggerMs = 300;

/** What stands between this machine and the others. */
interface Exit {
  readonly guard: IpGuard;
  readonly proxy: Proxy | undefined;
}

/** Out of this process: it looks names up and connects by itself. */
export class DirectWay extends WayOut {
  readonly limitMs = 10_000;

  private constructor(
    private readonly resolver: NameResolver,
    private readonly exits: Readonly<Record<Errand, Exit>>,
  ) {
    super();
  }

  /** The way that the settings describe: ranges of addresses, and proxies. */
  static of(config: Config, resolver: NameResolver): DirectWay {
    const guard = new IpGuard(config.get('ip_range_blacklist'), config.get('ip_range_whitelist'));
    const proxy = Proxy.of(config, 'https_proxy');
    return new DirectWay(resolver, {
      federation: { guard: federationGuardOf(config), proxy },
      https: { guard, proxy },
      http: { guard, proxy: Proxy.of(config, 'http_proxy') },
    });
  }

  srv(name: string): Promise<readonly SrvRecord[]> {
    return this.resolver.srv(name);
  }

  connect(route: Route, errand: Errand, signal: AbortSignal): Promise<Socket> {
    return untilAborted(this.#reach(route, this.exits[errand], signal), signal, (late) => late.destroy());
  }

  async #reach({ host, port }: Route, { guard, proxy }: Exit, signal: AbortSignal): Promise<Socket> {
    if (isIP(host) !== 0 && !guard.allows(host)) throw blocked(host);
    if (proxy !== undefined && !proxy.isDirect(host)) return proxy.connect(host, port, signal);
    const found = isIP(host) === 0 ? await this.resolver.endpoints(host, port) : [{ address: host, port }];
    if (found.length === 0) throw new DialError('unreachable', `${host} has no address`);
    const allowed = found.filter(({ address }) => guard.allows(address));
    if (allowed.length === 0) throw blocked(host);
    return firstOf(alternating(allowed).slice(0, maxEndpoints), signal);
  }
}

const blocked = (host: string): DialError =>
  new DialError('blocked', `${host} is at an address that requests may not reach`);

/** IPv4 and IPv6 in turn, so that a family that does not work here costs one try. */
function alternating(endpoints: readonly Endpoint[]): Endpoint[] {
  const four = endpoints.filter(({ address }) => isIP(address) === 4);
  const six = endpoints.filter(({ address }) => isIP(address) === 6);
  const mixed: Endpoint[] = [];
  for (let i = 0; i < Math.max(four.length, six.length); i++)
    mixed.push(...[four[i], six[i]].filter((one) => one !== undefined));
  return mixed;
}

/** The connection that comes about first; those after the first start when one fails or takes its time. */
function firstOf(endpoints: readonly Endpoint[], signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const open = new Set<Socket>();
    let next = 0;
    let timer: NodeJS.Timeout | undefined;
    let failure: Error = new DialError('unreachable', 'There is no address to connect to');
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      for (const socket of open) socket.destroy();
    };
    const abort = (): void => {
      end();
      reject(new DialError('timeout', 'The connection took too long'));
    };
    const start = (): void => {
      clearTimeout(timer);
      const endpoint = endpoints[next++];
      if (endpoint === undefined) {
        if (open.size > 0) return;
        end();
        return reject(failure);
      }
      const socket = connect({ host: endpoint.address, port: endpoint.port });
      open.add(socket);
      socket.once('connect', () => {
        open.delete(socket);
        socket.removeAllListeners('error').on('error', () => undefined);
        end();
        resolve(socket);
      });
      socket.once('error', (error) => {
        failure = error;
        open.delete(socket);
        start();
      });
      timer = setTimeout(start, staggerMs);
    };
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    start();
  });
}
