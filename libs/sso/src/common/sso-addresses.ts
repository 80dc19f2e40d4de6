import { Injectable } from '@nestjs/common';
import type { InboundRequest } from '@rookery/http';
import { Config } from '@rookery/platform';

const marker = 'canonical';

/** The server's own addresses as browsers and providers see them. */
@Injectable()
export class SsoAddresses {
  /** With a slash at its end. */
  readonly base: string;
  readonly #protocol: string;
  readonly #service: string;
  readonly #isGiven: boolean;

  constructor(config: Config) {
    this.base = config.get('public_baseurl') ?? `https://${config.serverName}/`;
    if (!this.base.endsWith('/')) this.base += '/';
    this.#protocol = config.get('protocol_prefix');
    this.#service = config.get('service_prefix');
    this.#isGiven = config.get('public_baseurl') !== undefined;
  }

  /** Whether browsers come by https. */
  get isSecure(): boolean {
    return this.base.startsWith('https:');
  }

  /** The full address of a path with the standard prefixes: `_synapse/client/oidc/callback`. */
  urlOf(path: string, query: Readonly<Record<string, string>> = {}): string {
    const search = new URLSearchParams(query).toString();
    return this.base + this.#prefixed(path) + (search === '' ? '' : `?${search}`);
  }

  /** Where a path lies on the server's host, for cookies. */
  pathOf(path: string): string {
    return new URL(this.base).pathname + this.#prefixed(path);
  }

  /**
   * Where a request has to go before a sign-on begins: cookies that are set under another host name would not come back.
   * `undefined` when it is in the right place.
   */
  redirectFor(request: Pick<InboundRequest, 'headers' | 'query' | 'url'>): string | undefined {
    const { host } = request.headers;
    const wanted = new URL(this.base).host;
    if (!this.#isGiven || typeof host !== 'string' || host.toLowerCase() === wanted) return undefined;
    // A proxy that does not pass the name on would send the browser in circles.
    if (request.query[marker] !== undefined) return undefined;
    const [path = '', search = ''] = request.url.slice(1).split(/\?(.*)/s, 2);
    return `${this.base}${this.#prefixed(path)}?${search}${search === '' ? '' : '&'}${marker}=1`;
  }

  #prefixed(path: string): string {
    return path.replace(/^_matrix(?=\/|$)/, this.#protocol).replace(/^_synapse(?=\/|$)/, this.#service);
  }
}
