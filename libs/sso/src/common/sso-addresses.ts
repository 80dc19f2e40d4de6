import { Injectable } from '@nestjs/common';
import { ownBaseUrl, ownPath, ownUrl } from '@rookery/http';
import { Config } from '@rookery/platform';
import type { BrowserRequest } from './browser-request.js';

const marker = 'canonical';

/** The server's own addresses as browsers and providers see them. */
@Injectable()
export class SsoAddresses {
  /** With a slash at its end. */
  readonly base: string;
  readonly #isGiven: boolean;

  constructor(private readonly config: Config) {
    this.base = ownBaseUrl(config);
    this.#isGiven = config.get('public_baseurl') !== undefined;
  }

  /** Whether browsers come by https. */
  get isSecure(): boolean {
    return this.base.startsWith('https:');
  }

  /** The full address of a path with the standard prefixes: `_synapse/client/oidc/callback`. */
  urlOf(path: string, query: Readonly<Record<string, string>> = {}): string {
    return ownUrl(this.config, path, query);
  }

  /** Where a path lies on the server's host, for cookies. */
  pathOf(path: string): string {
    return ownPath(this.config, path);
  }

  /**
   * Where a request has to go before a sign-on begins: cookies that are set under another host name would not come back.
   * `undefined` when it is in the right place.
   */
  redirectFor(request: Pick<BrowserRequest, 'headers' | 'query' | 'url'>): string | undefined {
    const { host } = request.headers;
    const wanted = new URL(this.base).host;
    if (!this.#isGiven || typeof host !== 'string' || host.toLowerCase() === wanted) return undefined;
    // A proxy that does not pass the name on would send the browser in circles.
    if (request.query[marker] !== undefined) return undefined;
    const [path = '', search = ''] = request.url.slice(1).split(/\?(.*)/s, 2);
    return `${ownUrl(this.config, path)}?${search}${search === '' ? '' : '&'}${marker}=1`;
  }
}
