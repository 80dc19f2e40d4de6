import { MatrixError } from '@rookery/matrix-types';
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { BlockList, isIP } from 'node:net';
import type { Readable } from 'node:stream';
import type { InboundRequest } from './access.js';

/** Largest request body where a route does not say otherwise, bytes. */
export const defaultBodyLimitBytes = 13_107_200;
/** Deepest nesting of a JSON body. */
export const maxJsonDepth = 128;
/** Longest time for a buffered body to arrive, and longest silence within a streamed one. */
const bodyTimeoutMs = 120_000;

/** What a request needs to know of the listener it came in by. */
export interface ListenerTraits {
  /** Believe `X-Forwarded-For` and `X-Forwarded-Proto`. */
  readonly xForwarded: boolean;
  /** Compress answers for clients that can read that. */
  readonly compress: boolean;
}

const noHeaders: IncomingMessage['headers'] = Object.freeze({});
const exchangeKey = Symbol('rookery.exchange');
type Carrier = IncomingMessage & { [exchangeKey]?: Exchange };

/** Addresses of proxies in front of the server, skipped when the client's own is looked for. */
const privateRanges = new BlockList();
for (const [network, prefix] of [
  ['10.0.0.0', 8],
  ['127.0.0.0', 8],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['169.254.0.0', 16],
  ['100.64.0.0', 10],
] as const) {
  privateRanges.addSubnet(network, prefix, 'ipv4');
}
for (const [network, prefix] of [
  ['::1', 128],
  ['fc00::', 7],
  ['fe80::', 10],
] as const) {
  privateRanges.addSubnet(network, prefix, 'ipv6');
}

/** Whether JSON text is nested more deeply than `limit`; looks at brackets outside strings. */
export function isNestedTooDeeply(text: string, limit: number): boolean {
  // Each level costs an opening and a closing character.
  if (text.length <= 2 * limit) return false;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 0x22) {
      for (i++; i < text.length; i++) {
        const inside = text.charCodeAt(i);
        if (inside === 0x5c) i++;
        else if (inside === 0x22) break;
      }
    } else if (code === 0x7b || code === 0x5b) {
      if (++depth > limit) return true;
    } else if (code === 0x7d || code === 0x5d) depth--;
  }
  return false;
}

/**
 * Parses a JSON body. Keys named `__proto__` stay plain keys; of a repeated key the last one counts.
 * @throws MatrixError 400 `M_NOT_JSON`, 400 `M_BAD_JSON` when it is nested more than 128 deep
 */
export function parseJsonBody(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new MatrixError(400, 'M_NOT_JSON', 'The body is not UTF-8');
  const text = bytes.toString('utf8');
  if (isNestedTooDeeply(text, maxJsonDepth))
    throw MatrixError.badJson(`The JSON is nested more than ${maxJsonDepth} deep`);
  try {
    return JSON.parse(text);
  } catch {
    throw new MatrixError(400, 'M_NOT_JSON', 'The body is not valid JSON');
  }
}

function clientAddress({ raw, headers }: Pick<Exchange, 'raw' | 'headers'>, xForwarded: boolean): string {
  if (xForwarded) {
    const header = headers['x-forwarded-for'];
    const hops = (typeof header === 'string' ? header : (header?.join(',') ?? ''))
      .split(',', 100)
      .map((hop) => hop.trim().replace(/^\[(.*)\](?::\d+)?$/, '$1'))
      .filter((hop) => isIP(hop) !== 0);
    // Proxies append: what stands left of the last public address was written by the client itself.
    const outside = hops.findLast((hop) => !privateRanges.check(hop, isIP(hop) === 6 ? 'ipv6' : 'ipv4'));
    const found = outside ?? hops[0];
    if (found !== undefined) return found;
  }
  const address = raw.socket.remoteAddress ?? '';
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}

/** One request and its answer. Everything that not every request needs is made when first asked for. */
export class Exchange implements InboundRequest {
  query: InboundRequest['query'] = {};
  rawBody: Buffer | undefined = undefined;
  /** Name of the endpoint in logs and metrics; `undefined` until one is found. */
  servlet: string | undefined = undefined;
  /** Who asked, for the access log. */
  userId: string | undefined = undefined;
  /** Set once the answer is under way. */
  answered = false;
  /** Length of the answer's body, bytes; 0 while unknown. */
  sentBytes = 0;

  #body: unknown = undefined;
  #parsed = false;
  #ip: string | undefined = undefined;
  #abort: AbortController | undefined = undefined;
  #streaming = false;
  #bodyReading: { readonly sinceMs: number; readonly fail: (error: MatrixError) => void } | undefined = undefined;

  /** Names in lower case. */
  readonly headers: IncomingMessage['headers'];
  /** As the client named it; the framework is told `GET` for `HEAD`. */
  readonly method: string;

  constructor(
    readonly requestId: string,
    readonly url: string,
    readonly raw: IncomingMessage,
    readonly response: ServerResponse,
    readonly listener: ListenerTraits,
    readonly startedMs: number,
    private readonly waiting: Set<Exchange>,
  ) {
    (raw as Carrier)[exchangeKey] = this;
    this.headers = raw.headers;
    this.method = raw.method ?? 'GET';
    // The framework shall not look at content types or lengths: bodies are read here.
    raw.headers = noHeaders;
  }

  /** The exchange that a raw request belongs to. */
  static of(raw: IncomingMessage): Exchange {
    const exchange = (raw as Carrier)[exchangeKey];
    if (exchange === undefined) throw new Error('The request did not come in by one of our listeners');
    return exchange;
  }

  /** Path without query. */
  get path(): string {
    const end = this.url.indexOf('?');
    return end < 0 ? this.url : this.url.slice(0, end);
  }
  get userAgent(): string {
    return this.headers['user-agent']?.slice(0, 512) ?? '';
  }
  get ip(): string {
    return (this.#ip ??= clientAddress(this, this.listener.xForwarded));
  }
  /** Whether the request's headers announce a body. */
  get hasBody(): boolean {
    const length = this.headers['content-length'];
    return length === undefined ? this.headers['transfer-encoding'] !== undefined : length !== '0';
  }
  get body(): unknown {
    if (!this.#parsed) {
      this.#body = this.rawBody === undefined ? undefined : parseJsonBody(this.rawBody);
      this.#parsed = true;
    }
    return this.#body;
  }
  get stream(): Readable {
    if (!this.#streaming) {
      this.#streaming = true;
      // A sender that falls silent must not hold the upload for ever; the server then cuts the connection. A long answer
      // afterwards is fine.
      const { socket } = this.raw;
      const quiet = (): void => void socket.setTimeout(0);
      socket.setTimeout(bodyTimeoutMs);
      this.raw.once('end', quiet).once('close', quiet);
    }
    return this.raw;
  }
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      this.waiting.add(this);
      if (this.response.closed || this.response.destroyed) this.abort();
    }
    return this.#abort.signal;
  }
  /** Ends whatever waits on {@link signal}. */
  abort(): void {
    this.#abort?.abort();
  }
  /** To be called once the answer is out, or the client is gone. */
  finished(): void {
    if (this.#abort === undefined) return;
    this.waiting.delete(this);
    if (!this.response.writableFinished) this.#abort.abort();
  }

  /**
   * Reads the whole body into {@link rawBody}.
   * @throws MatrixError 413 `M_TOO_LARGE`, 408 `M_UNKNOWN` when it takes longer than two minutes
   */
  readBody(limitBytes: number): Promise<void> | undefined {
    const { raw } = this;
    if (raw.method === 'GET' || !this.hasBody) return undefined;
    const length = this.headers['content-length'];
    const tooLarge = (): MatrixError => MatrixError.tooLarge(`The body is larger than ${limitBytes} bytes`);
    if (length !== undefined && Number(length) > limitBytes) return Promise.reject(tooLarge());
    if (raw.destroyed) return Promise.reject(new MatrixError(400, 'M_UNKNOWN', 'The body was cut off'));

    return new Promise((resolve, reject) => {
      let chunks: Buffer[] = [];
      let size = 0;
      // Listeners stay where they are: what comes after a refusal flows by unkept.
      const fail = (error: MatrixError): void => {
        size = -Infinity;
        chunks = [];
        this.#bodyReading = undefined;
        reject(error);
      };
      this.#bodyReading = { sinceMs: this.startedMs, fail };
      raw.on('data', (chunk: Buffer) => {
        size += chunk.length;
        if (size > limitBytes) fail(tooLarge());
        else if (size > 0) chunks.push(chunk);
      });
      raw.on('end', () => {
        if (size > 0) this.rawBody = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, size);
        this.#bodyReading = undefined;
        resolve();
      });
      raw.on('close', () => {
        if (this.#bodyReading !== undefined) fail(new MatrixError(400, 'M_UNKNOWN', 'The body was cut off'));
      });
    });
  }

  /** Gives up on a buffered body that takes longer than two minutes. To be called now and then. */
  checkBody(nowMs: number): void {
    const reading = this.#bodyReading;
    if (reading !== undefined && nowMs - reading.sinceMs > bodyTimeoutMs) {
      reading.fail(new MatrixError(408, 'M_UNKNOWN', 'The body took too long'));
    }
  }
}
