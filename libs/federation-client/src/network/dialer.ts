import { Cache, type Config } from '@rookery/platform';
import { isIP, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { asDialError, DialError, NoWayOutError } from './dial-error.js';
import type { TlsTrust } from './tls-trust.js';
import type { Route, WayOut } from './way-out.js';

/** What to connect to. */
export interface DialTarget {
  /** Tried one after the other. */
  readonly routes: readonly Route[];
  /** DNS name or IP address that the certificate must be for. */
  readonly tlsName: string;
  /** Whether the certificate is checked at all. */
  readonly verify: boolean;
}

/** Routes that are tried. */
const maxRoutes = 6;

/** What connections need. */
export interface DialerOptions {
  readonly config: Config;
  readonly way: WayOut;
  readonly trust: TlsTrust;
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
        failure = asDialError(error, route.host);
        if (failure instanceof NoWayOutError) break;
      }
    }
    throw failure;
  }

  async #dialRoute(route: Route, target: DialTarget): Promise<TLSSocket> {
    const { way } = this.options;
    const signal = AbortSignal.timeout(way.limitMs);
    return this.#secure(await way.connect(route, 'federation', signal), target, signal);
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
