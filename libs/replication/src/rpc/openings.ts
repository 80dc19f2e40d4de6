import { type IncomingMessage, request, type RequestOptions } from 'node:http';
import { request as tlsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { MatrixError } from '@rookery/matrix-types';
import type { Logger } from '@rookery/platform';
import type { Opening } from './rpc.js';

/** Where connections are asked for, with the name of the method; what is asked is the query, as JSON. */
export const openingsPath = '/_rookery/connections/';
const upgrade = 'rookery';

/** Most connections for other processes; each is two of this process's own. */
const maxOpen = 16_384;
/** How long nothing may be said by one, milliseconds: longer than whoever uses it waits for an answer. */
const maxIdleMs = 900_000;
/** How long a process may take to take the question, milliseconds; for the connection itself its caller has the patience. */
const helloMs = 3_000;

/** A status, and what is said with it. */
export type Reply = readonly [status: number, body: object];

export interface OpeningsOptions {
  readonly logger: Logger;
  /** What is wrong with who asks. */
  readonly problemWith: (headers: RequestHeaders) => Reply | undefined;
  /** See above; less in tests. */
  readonly maxOpen?: number | undefined;
  readonly maxIdleMs?: number | undefined;
}

type RequestHeaders = IncomingMessage['headers'];
type Handler = (request: never, signal: AbortSignal) => Promise<Opening<unknown>>;

/** Connections that this process opens for others: they ask by an HTTP request, whose connection becomes one end of it. */
export class Openings {
  readonly #handlers = new Map<string, Handler>();
  readonly #open = new Set<Socket>();

  constructor(private readonly options: OpeningsOptions) {}

  handle(name: string, handler: Handler): void {
    if (this.#handlers.has(name)) throw new Error(`Connections ${name} are opened already`);
    this.#handlers.set(name, handler);
  }

  /** Forgets who opens what. */
  forgetHandlers(): void {
    this.#handlers.clear();
  }

  /** Opens one within this process. */
  async open(name: string, request: unknown, signal: AbortSignal): Promise<Opening<unknown>> {
    const handler = this.#handlers.get(name);
    if (!handler) throw MatrixError.unavailable(`nobody opens connections ${name}`);
    return handler(request as never, signal);
  }

  /** Answers a request that wants its connection to become another one. Never rejects. */
  async answer(url: string, headers: RequestHeaders, socket: Socket): Promise<void> {
    const { logger } = this.options;
    const gone = new AbortController();
    const left = (): void => void socket.destroy();
    socket.on('error', (err) => logger.debug('A connection for another process broke off', { err }));
    socket.once('close', () => {
      this.#open.delete(socket);
      gone.abort();
    });
    try {
      const problem = this.#problemWith(url, headers);
      if (problem !== undefined) return end(socket, problem);
      this.#open.add(socket);
      // Nothing is said before there is somebody to hear it; whoever gave up is seen only where somebody reads.
      socket.on('data', left).on('end', left);
      socket.write('HTTP/1.1 102 Processing\r\n\r\n');
      const [name = '', query = ''] = url.slice(openingsPath.length).split('?', 2);
      const opening = await this.open(name, JSON.parse(decodeURIComponent(query)), gone.signal);
      if ('refusal' in opening) return end(socket, [200, { body: opening.refusal }]);
      const { connection } = opening;
      if (socket.destroyed) return void connection.destroy();
      socket.off('data', left).off('end', left);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n\r\n`);
      join(socket, connection, this.options.maxIdleMs ?? maxIdleMs);
    } catch (error) {
      if (gone.signal.aborted) return;
      if (MatrixError.is(error)) return end(socket, [470, { ...error.toBody(), status: error.status }]);
      logger.error('A connection for another process failed', { call: url, err: error });
      end(socket, [500, { error: 'the call failed there; see its log' }]);
    }
  }

  /** Ends all of them. */
  close(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #problemWith(url: string, headers: RequestHeaders): Reply | undefined {
    const problem = this.options.problemWith(headers);
    if (problem !== undefined) return problem;
    if (!url.startsWith(openingsPath) || headers['upgrade'] !== upgrade) return [404, { error: 'no such call' }];
    return this.#open.size >= (this.options.maxOpen ?? maxOpen) ? [503, { error: 'too many connections' }] : undefined;
  }
}

/**
 * Asks another process for a connection.
 * @param to where it is, and who asks
 * @param answerOf reads an answer that is no connection
 * @throws Error where the process cannot be reached, or does not take the question in time; what `signal` aborts with
 */
export function askForConnection<Answer>(
  to: RequestOptions & { readonly isEncrypted: boolean },
  name: string,
  body: unknown,
  signal: AbortSignal,
  answerOf: (response: IncomingMessage) => Promise<Answer>,
): Promise<{ readonly connection: Socket } | Answer> {
  const { isEncrypted, headers, ...rest } = to;
  return new Promise((resolve, reject) => {
    const path = `${openingsPath}${encodeURIComponent(name)}?${encodeURIComponent(JSON.stringify(body))}`;
    const sent = (isEncrypted ? tlsRequest : request)({
      ...{ ...rest, method: 'GET', path, agent: false },
      headers: { ...headers, connection: 'Upgrade', upgrade },
    });
    const silence = setTimeout(() => sent.destroy(new Error('it does not answer')), helloMs);
    const unwanted = (): void => void sent.destroy(signal.reason as Error);
    const settled = (): void => {
      clearTimeout(silence);
      signal.removeEventListener('abort', unwanted);
    };
    if (signal.aborted) unwanted();
    else signal.addEventListener('abort', unwanted, { once: true });
    sent.once('information', () => clearTimeout(silence));
    sent.once('upgrade', (_, socket: Socket, head: Buffer) => {
      settled();
      // From here on failures are its user's, who may not listen yet.
      socket.on('error', () => undefined);
      socket.setKeepAlive(true, 10_000);
      if (head.length > 0) socket.unshift(head);
      resolve({ connection: socket });
    });
    sent.once('response', (response) => {
      settled();
      answerOf(response).then(resolve, reject);
    });
    sent.on('error', (error) => {
      settled();
      reject(error);
    });
    sent.end();
  });
}

function end(socket: Socket, [status, body]: Reply): void {
  const text = JSON.stringify(body);
  // Whoever does not hang up then is hung up on.
  socket.resume().setTimeout(helloMs, () => socket.destroy());
  socket.end(
    `HTTP/1.1 ${status} ${status === 200 ? 'OK' : 'No'}\r\nConnection: close\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
}

/** What comes at one end goes out at the other, until one of them ends. */
function join(one: Socket, other: Socket, idleMs: number): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.setNoDelay(true).setKeepAlive(true, 60_000);
    from.on('error', () => undefined);
    // What it had said before still goes out.
    from.once('close', () => to.destroySoon());
    if (from.destroyed) to.destroySoon();
    from.pipe(to);
  }
  other.setTimeout(idleMs, () => {
    one.destroy();
    other.destroy();
  });
}
