import { LogContext, type Metrics } from '@rookery/platform';
import { lookup as dnsLookup, type LookupAddress } from 'node:dns';
import { BlockList, isIP, type LookupFunction, type Socket } from 'node:net';
import { Readable, Transform, type TransformCallback } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import type { Agent, buildConnector, Dispatcher, H2CClient, ProxyAgent } from 'undici';
import { IpGuard } from './ip-guard.js';
import { loadUndici, undici } from './undici.js';

/** Why an outgoing request failed. */
export type OutboundFailure =
  | 'bad_url'
  | 'blocked'
  | 'timeout'
  | 'aborted'
  | 'too_large'
  | 'too_many_redirects'
  | 'connection'
  | 'bad_status'
  | 'bad_json';

/** An outgoing request did not bring what was wanted. Messages name the host, never the query. */
export class OutboundError extends Error {
  /** @param status of the answer, for `bad_status` */
  constructor(
    readonly reason: OutboundFailure,
    message: string,
    readonly status?: number,
  ) {
    super(message);
    this.name = 'OutboundError';
  }
}

/** One outgoing request. */
export interface OutboundRequest {
  readonly method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly url: string | URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  /** For everything: resolving, connecting, redirects, body. Default 30 s. */
  readonly timeoutMs?: number;
  /** Largest body accepted, bytes, after decompression. Default 10 MiB. */
  readonly maxBytes?: number;
  /** Redirects followed; 0 hands over the redirect itself. Default 5 for `GET` and `HEAD`, else 0. */
  readonly maxRedirects?: number;
  /** The address stands in the settings and often lies in the operator's own network: no range of addresses is closed. */
  readonly operatorsChoice?: boolean;
  readonly signal?: AbortSignal;
}

/** An answer, headers first. */
export interface OutboundStream {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Fails with {@link OutboundError} when it grows too large, takes too long or breaks off. Must be read or destroyed. */
  readonly body: Readable;
  /** Where the redirects ended. */
  readonly url: URL;
}

/** An answer with its whole body. */
export interface OutboundResponse extends Omit<OutboundStream, 'body'> {
  readonly body: Buffer;
}

/** Opens a connection to a port of a host (DNS name or address without brackets), and judges itself whether that may be reached. */
export type OutboundConnect = (to: {
  readonly host: string;
  readonly port: number;
  /** Whether TLS comes upon it. */
  readonly isSecure: boolean;
}) => Promise<Socket>;

/** How a client reaches the world. */
export interface OutboundOptions {
  readonly guard: IpGuard;
  /** In place of `guard` for identity servers, see {@link OutboundHttp.toIdentityServers}. */
  readonly federationGuard?: IpGuard | undefined;
  /** In place of `guard` and of proxies, see {@link OutboundHttp.connectingBy}. */
  readonly connect?: OutboundConnect | undefined;
  readonly userAgent: string;
  /** Proxy for `http:` addresses, for example `http://user:password@proxy:3128`. */
  readonly httpProxy?: string | undefined;
  /** Proxy for `https:` addresses. */
  readonly httpsProxy?: string | undefined;
  /** Hosts (with their subdomains), addresses and ranges reached without proxy; `*` for all. */
  readonly noProxyHosts?: readonly string[] | undefined;
  /** More certificate authorities, PEM. */
  readonly ca?: readonly string[] | undefined;
  /** Speak HTTP/2 with whoever is reached directly, also without TLS, where it has to be known before that they understand it. */
  readonly forceHttp2?: boolean | undefined;
  /** Most connections to one place. Default 16. */
  readonly connections?: number | undefined;
  readonly metrics?: Metrics | undefined;
}

const redirectStatus = new Set([301, 302, 303, 307, 308]);
/** Not to be carried to another origin. */
const privateHeaders = new Set(['authorization', 'cookie', 'proxy-authorization']);

const blockedError = (host: string): OutboundError =>
  new OutboundError('blocked', `${host} is at an address that requests may not reach`);

/** Resolves names to the addresses the guard allows; undici connects to nothing else. */
function guardedLookup(guard: IpGuard): LookupFunction {
  return (hostname, options, callback) => {
    dnsLookup(hostname, { ...options, all: true }, (error, found: LookupAddress[]) => {
      if (error !== null) return callback(error, '', 0);
      const addresses = found.filter(({ address }) => guard.allows(address));
      const first = addresses[0];
      if (first === undefined) callback(blockedError(hostname), '', 0);
      else if (options.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}

function bypassOf(hosts: readonly string[]): (host: string) => boolean {
  const ranges = new BlockList();
  const names: string[] = [];
  for (const entry of hosts.map((host) => host.trim().toLowerCase()).filter((host) => host !== '')) {
    const [network = '', prefix] = entry.split('/');
    const family = isIP(network);
    if (family !== 0)
      ranges.addSubnet(network, Number(prefix ?? (family === 4 ? 32 : 128)), family === 4 ? 'ipv4' : 'ipv6');
    else names.push(entry.replace(/^\*?\./, '').replace(/:\d+$/, ''));
  }
  return (host) => {
    const bare = host.replace(/^\[|\]$/g, '').toLowerCase();
    const family = isIP(bare);
    if (family !== 0) return names.includes('*') || ranges.check(bare, family === 4 ? 'ipv4' : 'ipv6');
    return names.some((name) => name === '*' || bare === name || bare.endsWith(`.${name}`));
  };
}

/** Lets `limit` bytes through. */
class AnswerSizeLimit extends Transform {
  #seen = 0;
  constructor(private readonly limit: number) {
    super();
  }
  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#seen += chunk.length;
    if (this.#seen > this.limit) done(new OutboundError('too_large', `The answer is larger than ${this.limit} bytes`));
    else done(null, chunk);
  }
}

const decoders: ReadonlyMap<string, () => Transform> = new Map<string, () => Transform>([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);

const codingOf = (headers: OutboundStream['headers']): string =>
  String(headers['content-encoding'] ?? '').toLowerCase();

/** Whether the body of an answer is no longer as its headers say, for it was unpacked. */
export const isDecoded = (headers: OutboundStream['headers']): boolean => decoders.has(codingOf(headers));

/**
 * Requests to the outside: push gateways, previews, identity providers. Never reaches a blocked address, whatever the name
 * resolves to and wherever a redirect leads; every answer is bounded in size and time. Certificates are checked.
 */
export class OutboundHttp {
  #dispatchers: Dispatchers | undefined;
  #toIdentityServers: OutboundHttp | undefined;
  #unguarded: OutboundHttp | undefined;
  readonly #bypasses: (host: string) => boolean;
  readonly #h2c = new Map<string, H2CClient>();

  constructor(private readonly options: OutboundOptions) {
    this.#bypasses = bypassOf(options.noProxyHosts ?? []);
  }

  /** The same for identity servers, which may be at addresses where other servers may be. Ends with this one. */
  get toIdentityServers(): OutboundHttp {
    const { federationGuard, ...options } = this.options;
    if (federationGuard === undefined) return this;
    this.#toIdentityServers ??= new OutboundHttp({ ...options, guard: federationGuard });
    return this.#toIdentityServers;
  }

  /** The same by connections that somebody else makes; to be closed by itself. */
  connectingBy(connect: OutboundConnect): OutboundHttp {
    const { httpProxy: _http, httpsProxy: _https, ...options } = this.options;
    return new OutboundHttp({ ...options, connect, forceHttp2: false });
  }

  /**
   * Sends a request and hands over the answer as it arrives, whatever its status.
   * @throws OutboundError
   */
  async stream(request: OutboundRequest): Promise<OutboundStream> {
    if (request.operatorsChoice) {
      this.#unguarded ??= new OutboundHttp({ ...this.options, guard: new IpGuard([]) });
      return this.#unguarded.stream({ ...request, operatorsChoice: false });
    }
    const timeoutMs = request.timeoutMs ?? 30_000;
    const timeout = AbortSignal.timeout(timeoutMs);
    const signal = request.signal === undefined ? timeout : AbortSignal.any([timeout, request.signal]);
    const explain = (error: unknown, host: string): OutboundError => {
      if (error instanceof OutboundError) return error;
      if (timeout.aborted) return new OutboundError('timeout', `${host} did not answer within ${timeoutMs} ms`);
      if (signal.aborted) return new OutboundError('aborted', `The request to ${host} was given up`);
      const cause = (error as { cause?: unknown }).cause;
      if (cause instanceof OutboundError) return cause;
      return new OutboundError('connection', `${host}: ${error instanceof Error ? error.message : String(error)}`);
    };

    let url = parseUrl(request.url);
    let method = request.method ?? 'GET';
    let { body } = request;
    let headers: Record<string, string> = {
      'user-agent': this.options.userAgent,
      'accept-encoding': 'gzip, deflate, br',
      ...lowerCased(request.headers),
    };
    const maxRedirects = request.maxRedirects ?? (method === 'GET' || method === 'HEAD' ? 5 : 0);
    let redirects = 0;
    await loadUndici();
    for (;;) {
      const { host } = url;
      let answer: Dispatcher.ResponseData;
      const startedAtMs = performance.now();
      try {
        this.options.metrics?.counter('synapse_http_client_requests').inc({ method });
        answer = await undici().request(url, {
          method,
          headers,
          body: body ?? null,
          dispatcher: this.#dispatcherFor(url),
          signal,
        });
      } catch (error) {
        throw explain(error, host);
      } finally {
        LogContext.spent('serversMs', performance.now() - startedAtMs, () => `${method} ${host}`);
      }
      this.options.metrics?.counter('synapse_http_client_responses').inc({ method, code: String(answer.statusCode) });
      const location = answer.headers['location'];
      if (redirectStatus.has(answer.statusCode) && typeof location === 'string' && maxRedirects > 0) {
        answer.body.on('error', () => undefined).destroy();
        if (++redirects > maxRedirects) throw new OutboundError('too_many_redirects', `${host} redirects too often`);
        const next = parseUrl(location, url);
        if (answer.statusCode === 303 || (method === 'POST' && answer.statusCode < 303)) {
          method = method === 'HEAD' ? 'HEAD' : 'GET';
          body = undefined;
          headers = without(headers, (name) => name.startsWith('content-'));
        }
        if (next.origin !== url.origin) headers = without(headers, (name) => privateHeaders.has(name));
        url = next;
        continue;
      }
      return {
        status: answer.statusCode,
        headers: answer.headers,
        url,
        body: bounded(answer, request.maxBytes ?? 10_485_760, (error) => explain(error, host)),
      };
    }
  }

  /**
   * Sends a request and reads the whole answer, whatever its status.
   * @throws OutboundError
   */
  async request(request: OutboundRequest): Promise<OutboundResponse> {
    const { body, ...answer } = await this.stream(request);
    const chunks: Buffer[] = [];
    for await (const chunk of body) chunks.push(chunk as Buffer);
    return { ...answer, body: Buffer.concat(chunks) };
  }

  /**
   * Sends an optional JSON body and reads a JSON answer of status 2xx.
   * @throws OutboundError `bad_status` or `bad_json` where the answer is not that
   */
  async json(request: Omit<OutboundRequest, 'body'> & { readonly json?: unknown }): Promise<unknown> {
    const { json, ...rest } = request;
    const { status, body, url } = await this.request({
      ...rest,
      headers: {
        accept: 'application/json',
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        ...rest.headers,
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    if (status < 200 || status > 299)
      throw new OutboundError('bad_status', `${url.host} answered with status ${status}`, status);
    try {
      return JSON.parse(body.toString('utf8')) as unknown;
    } catch {
      throw new OutboundError('bad_json', `${url.host} did not answer with JSON`, status);
    }
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    await this.#toIdentityServers?.close();
    const { direct, proxies } = this.#dispatchers ?? { direct: undefined, proxies: new Map<string, ProxyAgent>() };
    await Promise.all([
      this.#unguarded?.close(),
      direct?.destroy(),
      ...[...this.#h2c.values()].map((client) => client.destroy()),
      ...[...proxies.values()].map((proxy) => proxy.destroy()),
    ]);
  }

  #dispatcherFor(url: URL): Dispatcher {
    const { direct, proxies } = (this.#dispatchers ??= openDispatchers(this.options));
    if (this.options.forceHttp2 && url.protocol === 'http:') return this.#h2cTo(url);
    const proxy = proxies.get(url.protocol);
    if (proxy === undefined || this.#bypasses(url.hostname)) return direct;
    // The proxy resolves names; addresses written out are still ours to judge.
    const literal = url.hostname.replace(/^\[|\]$/g, '');
    if (isIP(literal) !== 0 && !this.options.guard.allows(literal)) throw blockedError(url.hostname);
    return proxy;
  }

  /** One connection for each place: these are few, and chosen by the operator. */
  #h2cTo({ origin }: URL): Dispatcher {
    let client = this.#h2c.get(origin);
    if (client === undefined) {
      const { H2CClient } = undici();
      this.#h2c.set(origin, (client = new H2CClient(origin, { keepAliveTimeout: 15_000, maxConcurrentStreams: 100 })));
    }
    return client;
  }
}

/** The ways out: by protocol, and past the proxies. */
interface Dispatchers {
  readonly direct: Agent;
  readonly proxies: ReadonlyMap<string, ProxyAgent>;
}

function openDispatchers(options: OutboundOptions): Dispatchers {
  const { Agent, buildConnector, ProxyAgent } = undici();
  const tls = options.ca === undefined ? {} : { ca: [...options.ca] };
  const allowH2 = options.forceHttp2 === true;
  const connect = buildConnector({ timeout: 10_000, allowH2, lookup: guardedLookup(options.guard), ...tls });
  const direct = new Agent({
    connections: options.connections ?? 16,
    pipelining: 1,
    allowH2,
    keepAliveTimeout: 15_000,
    maxHeaderSize: 32_768,
    connect: (target, callback) => {
      const host = target.hostname.replace(/^\[|\]$/g, '');
      if (options.connect !== undefined) return connectBy(options.connect, target, host, connect, callback);
      // Names are checked when they are resolved; for literals nothing is resolved.
      if (isIP(host) !== 0 && !options.guard.allows(host)) callback(blockedError(host), null);
      else connect(target, callback);
    },
  });
  const proxies = new Map<string, ProxyAgent>();
  for (const [protocol, uri] of [
    ['http:', options.httpProxy],
    ['https:', options.httpsProxy],
  ] as const) {
    if (uri === undefined || uri === '') continue;
    const address = /^[a-z]+:\/\//i.test(uri) ? uri : `http://${uri}`;
    proxies.set(protocol, new ProxyAgent({ uri: address, allowH2: false, requestTls: tls }));
  }
  return { direct, proxies };
}

/** TLS, where it is wanted, upon a connection that somebody else makes. */
function connectBy(
  open: OutboundConnect,
  target: buildConnector.Options,
  host: string,
  secure: buildConnector.connector,
  callback: buildConnector.Callback,
): void {
  const isSecure = target.protocol === 'https:';
  const port = target.port === '' ? (isSecure ? 443 : 80) : Number(target.port);
  open({ host, port, isSecure }).then(
    (socket) => {
      if (isSecure) secure({ ...target, httpSocket: socket }, callback);
      else callback(null, socket);
    },
    (error: Error) => callback(error, null),
  );
}

function parseUrl(text: string | URL, base?: URL): URL {
  const url =
    typeof text === 'string' ? (URL.canParse(text, base?.href) ? new URL(text, base) : undefined) : new URL(text);
  if (url === undefined) throw new OutboundError('bad_url', 'The address is not a URL');
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new OutboundError('bad_url', `Requests with ${url.protocol} are not made`);
  return url;
}

function bounded(
  answer: Dispatcher.ResponseData,
  maxBytes: number,
  explain: (error: unknown) => OutboundError,
): Readable {
  const limit = new AnswerSizeLimit(maxBytes);
  const fail = (error: unknown): void => void limit.destroy(explain(error));
  const decoder = decoders.get(codingOf(answer.headers))?.();
  answer.body.on('error', fail);
  // Readers see the failure all the same; nobody may be reading yet.
  limit.on('error', () => undefined);
  // Whoever stops reading frees the connection.
  limit.on('close', () => answer.body.destroy());
  if (decoder === undefined) answer.body.pipe(limit);
  else {
    decoder.on('error', fail);
    limit.on('close', () => decoder.destroy());
    answer.body.pipe(decoder).pipe(limit);
  }
  if (Number(answer.headers['content-length'] ?? 0) > maxBytes && decoder === undefined) {
    limit.destroy(new OutboundError('too_large', `The answer is larger than ${maxBytes} bytes`));
  }
  return limit;
}

const lowerCased = (headers: Readonly<Record<string, string>> = {}): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

const without = (headers: Readonly<Record<string, string>>, drop: (name: string) => boolean): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !drop(name)));
