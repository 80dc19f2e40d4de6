import type { Config } from '@rookery/platform';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { BlockList, isIP, type Socket } from 'node:net';

/** A proxy for connections that carry TLS. */
export class Proxy {
  readonly #url: URL;
  readonly #direct: (host: string) => boolean;

  private constructor(url: URL, direct: (host: string) => boolean) {
    this.#url = url;
    this.#direct = direct;
  }

  /** The proxy of a setting; `undefined` without one, and when what is there is no address. */
  static of(config: Config, setting: 'https_proxy' | 'http_proxy'): Proxy | undefined {
    const text = config.get(setting);
    if (text === undefined || text === '') return undefined;
    const address = /^[a-z]+:\/\//i.test(text) ? text : `http://${text}`;
    const url = URL.canParse(address) ? new URL(address) : undefined;
    if (url?.protocol !== 'http:' && url?.protocol !== 'https:') return undefined;
    return new Proxy(url, directHosts(config.get('no_proxy_hosts') ?? []));
  }

  /** Whether a host is to be reached without the proxy. */
  isDirect(host: string): boolean {
    return this.#direct(host);
  }

  /**
   * A tunnel to a port of a host, whose name the proxy resolves.
   * @throws Error when the proxy cannot be reached or refuses
   */
  connect(host: string, port: number, signal: AbortSignal): Promise<Socket> {
    const { protocol, hostname, port: proxyPort, username, password } = this.#url;
    const authority = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
    const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
    return new Promise((resolve, reject) => {
      const request = (protocol === 'https:' ? httpsRequest : httpRequest)({
        ...{ method: 'CONNECT', path: authority, agent: false, signal, maxHeaderSize: 16_384 },
        host: hostname.replace(/^\[|\]$/g, ''),
        port: proxyPort === '' ? (protocol === 'https:' ? 443 : 80) : Number(proxyPort),
        headers: {
          host: authority,
          ...(username === '' ? {} : { 'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}` }),
        },
      });
      request.once('connect', (response, socket: Socket, head) => {
        if (response.statusCode === 200 && head.length === 0) return resolve(socket);
        socket.destroy();
        reject(new Error(`The proxy refused with status ${response.statusCode}`));
      });
      request.once('response', (response) => {
        response.destroy();
        reject(new Error(`The proxy answered with status ${response.statusCode}`));
      });
      request.once('error', reject);
      request.end();
    });
  }
}

/** Names with their subdomains, addresses, ranges, or `*`. */
function directHosts(entries: readonly string[]): (host: string) => boolean {
  const ranges = new BlockList();
  const names: string[] = [];
  for (const entry of entries.map((text) => text.trim().toLowerCase()).filter((text) => text !== '')) {
    const [network = '', prefix] = entry.split('/');
    const family = isIP(network);
    if (family === 0) names.push(entry.replace(/^\*?\./, '').replace(/:\d+$/, ''));
    else ranges.addSubnet(network, Number(prefix ?? (family === 4 ? 32 : 128)), family === 4 ? 'ipv4' : 'ipv6');
  }
  return (host) => {
    const lower = host.toLowerCase();
    if (names.includes('*')) return true;
    const family = isIP(lower);
    if (family !== 0) return ranges.check(lower, family === 4 ? 'ipv4' : 'ipv6');
    return names.some((name) => lower === name || lower.endsWith(`.${name}`));
  };
}
