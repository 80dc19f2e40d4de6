import { MatrixError } from '@rookery/matrix-types';
import { type RequestContext, webBodyBytes } from './request-context.js';
import { HttpReply } from './reply.js';
import { respond } from './respond.js';

/** What is known of the client beside its request. */
export interface WebClient {
  /** As in `InboundRequest`. */
  readonly ip: string;
  /**
   * To be told of the bytes that are kept of an answer until it is whole. @returns when more may be asked for; `undefined`: at once
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` when they are kept for nobody any more, or there was no room for too long
   */
  gather(bytes: number): Promise<void> | undefined;
}

/** A handler of the web platform's kind, as modules register them. */
export type WebHandler = (request: Request, client: WebClient) => Response | Promise<Response>;

/** Largest answer of a web resource, bytes. */
const maxAnswerBytes = 104_857_600;

/** A handler below a path. */
class WebMount {
  constructor(
    readonly path: string,
    private readonly handler: WebHandler,
    /** Whether it serves a path that is below its own. */
    readonly serves: (path: string) => boolean,
  ) {}

  async serve(context: RequestContext): Promise<void> {
    await context.readBody(webBodyBytes);
    const headers = new Headers();
    for (const [name, value] of Object.entries(context.headers)) {
      for (const one of typeof value === 'string' ? [value] : (value ?? [])) headers.append(name, one);
    }
    const host = /^[\w.:[\]-]+$/.exec(context.headers.host ?? '')?.[0] ?? 'localhost';
    const { rawBody, method, signal } = context;
    if (method === 'TRACE' || method === 'CONNECT') {
      throw MatrixError.methodNotAllowed();
    }
    await context.takeModuleTurn();
    const request = new Request(new URL(context.url, `http://${host}`), {
      method,
      headers,
      signal,
      ...(rawBody === undefined || method === 'HEAD' ? {} : { body: new Uint8Array(rawBody) }),
    });
    const response = await this.handler(request, { ip: context.ip, gather: (bytes) => context.gather(bytes) });
    if (Number(response.headers.get('content-length') ?? 0) > maxAnswerBytes) throw tooLarge();
    const body = response.body === null ? undefined : await piecesOf(response.body);
    const answer: Record<string, string | string[]> = {};
    // Length and transfer are ours to say; several cookies share one header name.
    for (const [name, value] of response.headers) {
      if (!hopByHop.has(name) && name !== 'set-cookie') answer[name] = value;
    }
    const cookies = response.headers.getSetCookie();
    if (cookies.length > 0) answer['set-cookie'] = cookies;
    respond(context, new HttpReply(response.status, answer, body));
  }
}

/** The bytes in the pieces in which they come: nothing is copied. */
async function piecesOf(body: ReadableStream<Uint8Array>): Promise<readonly Uint8Array[]> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of body) {
    size += piece.length;
    if (size > maxAnswerBytes) throw tooLarge();
    pieces.push(piece);
  }
  return pieces;
}

const tooLarge = (): Error => new Error('The answer of a web resource is too large');

const hopByHop = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
  'trailer',
  'te',
]);

/** Handlers of modules, by path. */
export class WebMounts {
  readonly #mounts = new Map<string, WebMount>();

  /**
   * Serves `path` and everything below it, as far as `serves` says so.
   * @throws Error when the path is not absolute, or taken
   */
  add(path: string, handler: WebHandler, serves: (path: string) => boolean = () => true): void {
    const clean = path.replace(/\/+$/, '');
    if (!/^\/[^?#]+$/.test(clean)) throw new Error(`A web resource needs an absolute path, not '${path}'`);
    if (this.#mounts.has(clean)) throw new Error(`The path ${clean} has a web resource already`);
    this.#mounts.set(clean, new WebMount(clean, handler, serves));
  }

  /** The most specific handler for a path. */
  find(path: string): WebMount | undefined {
    if (this.#mounts.size === 0) return undefined;
    let candidate = path.replace(/\/+$/, '');
    while (candidate !== '') {
      const mount = this.#mounts.get(candidate);
      if (mount?.serves(path)) return mount;
      candidate = candidate.slice(0, candidate.lastIndexOf('/'));
    }
    return undefined;
  }
}
