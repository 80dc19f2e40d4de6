import type { Logger } from '@rookery/platform';
import { chmodSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import { type AddressInfo, connect, type ListenOptions, type Server as NetServer, type Socket } from 'node:net';
import { createSecureContext } from 'node:tls';

/** One entry of the setting `listeners`. */
export interface ListenerSettings {
  /** Name in logs. */
  readonly tag?: string | undefined;
  /** TCP port; 0 lets the system choose. Exactly one of `port` and `path`. */
  readonly port?: number | undefined;
  /** A Unix socket. */
  readonly path?: string | undefined;
  /** Mode of the socket file. Default 0o666. */
  readonly mode?: number | undefined;
  /** Addresses to bind; default all, IPv6 and IPv4. */
  readonly bindAddresses?: readonly string[] | undefined;
  readonly type: 'http' | 'metrics';
  readonly tls?: boolean | undefined;
  readonly xForwarded?: boolean | undefined;
  readonly requestIdHeader?: string | undefined;
  readonly resources?:
    readonly { readonly names: readonly string[]; readonly compress?: boolean | undefined }[] | undefined;
  /** Paths of web resources that only this listener names. */
  readonly extraPaths?: readonly string[] | undefined;
}

/** Files of the certificate, for listeners with `tls`. */
export interface TlsFiles {
  readonly certificatePath: string | undefined;
  readonly privateKeyPath: string | undefined;
}

/** Where a listener ended up. */
export interface BoundAddress {
  readonly tag: string | undefined;
  readonly type: ListenerSettings['type'];
  readonly tls: boolean;
  /** `undefined` for a Unix socket. */
  readonly host: string | undefined;
  readonly port: number | undefined;
  readonly path: string | undefined;
}

/** A listener could not start; the message is one line for the operator. */
export class ListenError extends Error {}

/** Times that keep slow and silent clients from holding connections, milliseconds. */
const times = {
  headersTimeout: 20_000,
  /** Whole request, uploads included; buffered bodies have a tighter limit of their own. */
  requestTimeout: 3_600_000,
  keepAliveTimeout: 75_000,
  connectionsCheckingInterval: 5_000,
} as const;
/**
 * Of a body of which nothing has been asked for no more is read than came with the head: what a thousand connections send at once is read in
 * one turn of the event loop.
 */
const limits = { maxHeaderSize: 32_768, highWaterMark: 16_384 } as const;
const maxHeadersCount = 200;

const rawError = (status: string, errcode: string, message: string): string => {
  const body = JSON.stringify({ errcode, error: message });
  return `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`;
};

/** What the parser refused, before there was a request. */
function answerClientError(error: NodeJS.ErrnoException & { readonly reason?: string }, socket: Socket): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  if (error.code === 'HPE_HEADER_OVERFLOW')
    socket.end(rawError('431 Request Header Fields Too Large', 'M_TOO_LARGE', 'The headers are too large'));
  else if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT')
    socket.end(rawError('408 Request Timeout', 'M_UNKNOWN', 'The request took too long'));
  // The parser's words for lines that end with LF alone.
  else if (/\bCR/.test(error.reason ?? ''))
    socket.end(rawError('400 Bad Request', 'M_UNKNOWN', 'The lines of a request end with CR and LF'));
  else socket.end(rawError('400 Bad Request', 'M_UNKNOWN', 'The request is not HTTP'));
}

function readTls(files: TlsFiles | undefined): { cert: Buffer; key: Buffer } {
  const { certificatePath, privateKeyPath } = files ?? {};
  if (certificatePath === undefined || privateKeyPath === undefined)
    throw new ListenError('A listener wants TLS, but tls_certificate_path and tls_private_key_path are not set');
  const read = (path: string): Buffer => {
    try {
      return readFileSync(path);
    } catch (error) {
      throw new ListenError(`Cannot read ${path}: ${(error as Error).message}`);
    }
  };
  return { cert: read(certificatePath), key: read(privateKeyPath) };
}

/** Reads the certificate where a listener needs it. @throws ListenError when it cannot be used */
export function checkTls(settings: {
  readonly listeners: readonly ListenerSettings[];
  readonly tls?: TlsFiles | undefined;
}): void {
  if (!settings.listeners.some((listener) => listener.tls)) return;
  const files = readTls(settings.tls);
  try {
    createSecureContext(files);
  } catch (error) {
    throw unusable(settings.tls, error);
  }
}

const unusable = (files: TlsFiles | undefined, error: unknown): ListenError =>
  new ListenError(
    `The TLS certificate and key cannot be used (${files?.certificatePath}, ${files?.privateKeyPath}): ${(error as Error).message}`,
  );

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'it is in use by another program. Stop that one, or give the listener another port',
  EACCES: 'permission denied. Ports below 1024 are for root: take another one, and a reverse proxy in front',
  EADDRNOTAVAIL: 'this machine has no such address. Correct bind_addresses of the listener',
  EAFNOSUPPORT: 'this machine has no such address family',
};

/** Has a server listen. @param what where, in words @throws ListenError */
export function listen(server: NetServer, options: ListenOptions, what: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException): void => {
      server.off('listening', onListening);
      reject(
        Object.assign(new ListenError(`Cannot listen on ${what}: ${reasons[error.code ?? ''] ?? error.message}`), {
          code: error.code,
        }),
      );
    };
    const onListening = (): void => {
      server.off('error', onError);
      resolve();
    };
    server.once('error', onError).once('listening', onListening).listen(options);
  });
}

/** Removes the socket file of a process that is gone; a live one is left alone and refused. */
async function removeStaleSocket(path: string): Promise<void> {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isSocket()) throw new ListenError(`Cannot listen on ${path}: a file of that name is in the way`);
  const alive = await new Promise<boolean>((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => resolve(false));
  });
  if (alive) throw new ListenError(`Cannot listen on ${path}: it is in use by another program`);
  rmSync(path, { force: true });
}

/** The servers of one process. */
export class Listeners {
  readonly #servers: Server[] = [];
  readonly #addresses: BoundAddress[] = [];

  constructor(
    private readonly tlsFiles: TlsFiles | undefined,
    private readonly logger: Logger,
    private readonly sharesPorts = false,
  ) {}

  /** Where the listeners ended up, in the order of the settings. */
  get addresses(): readonly BoundAddress[] {
    return this.#addresses;
  }

  /** Binds every address of a listener. @throws ListenError */
  async open(settings: ListenerSettings, handler: RequestListener): Promise<void> {
    if (settings.path !== undefined) {
      await removeStaleSocket(settings.path);
      await this.#bind(settings, handler, { path: settings.path }, settings.path);
      chmodSync(settings.path, settings.mode ?? 0o666);
      return;
    }
    const hosts = settings.bindAddresses ?? (settings.type === 'metrics' ? ['0.0.0.0'] : ['::', '0.0.0.0']);
    let port = settings.port ?? 0;
    let failure: unknown;
    let bound = 0;
    for (const host of hosts) {
      try {
        port = await this.#bind(
          settings,
          handler,
          { host, port, ipv6Only: host === '::' && hosts.includes('0.0.0.0') },
          `${host}:${port}`,
        );
        bound++;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // A machine without IPv6 serves all addresses of the other family.
        if (host !== '::' || (code !== 'EAFNOSUPPORT' && code !== 'EADDRNOTAVAIL')) throw error;
        failure = error;
        this.logger.warn('IPv6 is not available; the listener serves IPv4 only', { port });
      }
    }
    if (bound === 0) throw failure ?? new ListenError('A listener has no address to bind');
  }

  async #bind(
    settings: ListenerSettings,
    handler: RequestListener,
    where: ListenOptions,
    what: string,
  ): Promise<number> {
    const server = settings.tls === true ? this.#tlsServer(handler) : createServer({ ...times, ...limits }, handler);
    server.maxHeadersCount = maxHeadersCount;
    server.on('clientError', answerClientError);
    const shares = this.sharesPorts && where.path === undefined && where.port !== 0;
    await listen(server, { ...where, backlog: 1024, ...(shares && { reusePort: true }) }, what);
    server.on('error', (error) => this.logger.error('A listener failed', { err: error, listener: what }));
    this.#servers.push(server);
    const address = server.address();
    const tcp = typeof address === 'object' && address !== null ? (address as AddressInfo) : undefined;
    this.#addresses.push({
      tag: settings.tag,
      type: settings.type,
      tls: settings.tls === true,
      host: tcp?.address,
      port: tcp?.port,
      path: settings.path,
    });
    return tcp?.port ?? 0;
  }

  #tlsServer(handler: RequestListener): TlsServer {
    const files = readTls(this.tlsFiles);
    try {
      return createTlsServer({ ...times, ...limits, ...files, minVersion: 'TLSv1.2' }, handler);
    } catch (error) {
      throw unusable(this.tlsFiles, error);
    }
  }

  /** Reads the certificate again, for new connections. @throws Error when it cannot be used; the old one stays then */
  reloadTls(): void {
    const servers = this.#servers.filter((server): server is TlsServer => 'setSecureContext' in server);
    if (servers.length === 0) return;
    const context = { ...readTls(this.tlsFiles), minVersion: 'TLSv1.2' as const };
    for (const server of servers) server.setSecureContext(context);
  }

  /** Accepts no more connections and ends those that are idle. */
  stopAccepting(): void {
    for (const server of this.#servers) server.close(() => undefined);
  }

  /** Ends connections that wait for their next request. */
  closeIdle(): void {
    for (const server of this.#servers) server.closeIdleConnections();
  }

  /** Ends every connection. */
  destroy(): void {
    for (const server of this.#servers) {
      server.close(() => undefined);
      server.closeAllConnections();
    }
    this.#servers.length = 0;
  }
}
