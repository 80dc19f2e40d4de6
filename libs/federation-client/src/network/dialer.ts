import type { IpGuard } from '@rookery/http';
import { Cache, type Config } from '@rookery/platform';
import { connect, isIP, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { Endpoint, NameResolver } from './name-resolver.js';
import type { Proxy } from './proxies.js';
import type { TlsTrust } from './tls-trust.js';
import { untilAborted } from './until-aborted.js';

/** A port of a host: DNS name or IP address without brackets. */
export interface Route {
  readonly host: string;
  readonly port: number;
}

/** What to connect to. */
export interface DialTarget {
  /** Tried one after the other. */
  readonly routes: readonly Route[];
  /** DNS name or IP address that the certificate must be for. */
  readonly tlsName: string;
  /** Whether the certificate is checked at all. */
  readonly verify: boolean;
}

/** Why there is no connection. */
export type DialFailure = 'unreachable' | 'blocked' | 'certificate' | 'timeout';

/** No connection came about. */
export class DialError extends Error {
  override readonly name = 'DialError';
  constructor(
    readonly reason: DialFailure,
    message: string,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

/** Routes, and addresses of one route, that are tried. */
const maxRoutes = 6;
const maxEndpoints = 8;
/** When the next address gets its chance beside one that has not answered yet, milliseconds. */
const staggerMs = 300;
const routeTimeoutMs = 10_000;

const certificateErrors =
  /^(?:ERR_TLS_CERT|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_(?:CA|PURPOSE)|HOSTNAME_MISMATCH|ERROR_IN_CERT|PATH_LENGTH|CRL_)/;

/** What connections need. */
export interface DialerOptions {
  readonly config: Config;
  readonly resolver: NameResolver;
  readonly guard: IpGuard;
  readonly trust: TlsTrust;
  readonly proxy?: Proxy | undefined;
}

/** Makes TLS connections to other servers, never to an address that is blocked. */
export class Dialer {
  /** Sessions by which a server recognizes us; only for the same name and the same care. */
  readonly #sessions: Cache<string, Buffer>;

  constructor(private readonly options: DialerOptions) {
    this.#sessions = new Cache(options.config, 'tls_sessions', {
      ...{ invalidation: 'expires', max: 4_000_000 },
      sizeOf: (session) => session.length + 100,
    });
  }

  /** @throws DialError with what the last route failed of */
  async dial(target: DialTarget): Promise<TLSSocket> {
    let failure = new DialError('unreachable', 'There is no address to connect to');
    for (const route of target.routes.slice(0, maxRoutes)) {
      try {
        return await this.#dialRoute(route, target);
      } catch (error) {
        failure = asDialError(error, route);
      }
    }
    throw failure;
  }

  async #dialRoute(route: Route, target: DialTarget): Promise<TLSSocket> {
    const signal = AbortSignal.timeout(routeTimeoutMs);
    const socket = await untilAborted(this.#reach(route, signal), signal, (late) => late.destroy());
    return this.#secure(socket, target, signal);
  }

  async #reach({ host, port }: Route, signal: AbortSignal): Promise<Socket> {
    const { resolver, guard, proxy } = this.options;
    if (isIP(host) !== 0 && !guard.allows(host)) throw blocked(host);
    if (proxy !== undefined && !proxy.isDirect(host)) return proxy.connect(host, port, signal);
    const found = isIP(host) === 0 ? await resolver.endpoints(host, port) : [{ address: host, port }];
    if (found.length === 0) throw new DialError('unreachable', `${host} has no address`);
    const allowed = found.filter(({ address }) => guard.allows(address));
    if (allowed.length === 0) throw blocked(host);
    return firstOf(alternating(allowed).slice(0, maxEndpoints), signal);
  }

  #secure(socket: Socket, { tlsName, verify }: DialTarget, signal: AbortSignal): Promise<TLSSocket> {
    const key = `${verify ? 'v' : 'u'} ${tlsName}`;
    const session = this.#sessions.get(key);
    return new Promise((resolve, reject) => {
      const tls = connectTls({
        socket,
        // The name that the certificate is compared with; only names are sent, addresses may not be.
        host: tlsName,
        ...(isIP(tlsName) === 0 ? { servername: tlsName } : {}),
        secureContext: this.options.trust.context,
        rejectUnauthorized: verify,
        ALPNProtocols: ['http/1.1'],
        ...(session === undefined ? {} : { session }),
      });
      const give = (error: Error): void => {
        signal.removeEventListener('abort', late);
        this.#sessions.delete(key);
        tls.destroy();
        socket.destroy();
        reject(error);
      };
      const late = (): void => give(new DialError('timeout', 'The connection took too long'));
      signal.addEventListener('abort', late, { once: true });
      tls.once('error', give);
      tls.on('session', (ticket) => this.#sessions.set(key, ticket));
      tls.once('secureConnect', () => {
        signal.removeEventListener('abort', late);
        // From here on failures are its user's, who may not listen yet.
        tls.off('error', give).on('error', () => undefined);
        tls.setNoDelay(true).setKeepAlive(true, 60_000);
        resolve(tls);
      });
    });
  }
}

const blocked = (host: string): DialError =>
  new DialError('blocked', `${host} is at an address that requests may not reach`);

function asDialError(error: unknown, { host }: Route): DialError {
  if (error instanceof DialError) return error;
  const { code, name, message } = error as NodeJS.ErrnoException;
  const text = typeof code === 'string' ? code : '';
  const late = name === 'TimeoutError' || text === 'ETIMEDOUT';
  const reason = certificateErrors.test(text) ? 'certificate' : late ? 'timeout' : 'unreachable';
  return new DialError(reason, `${host}: ${message}`, error);
}

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
