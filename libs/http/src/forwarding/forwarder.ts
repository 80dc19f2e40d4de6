import { MatrixError } from '@rookery/matrix-types';
import { type Clock, type Logger, processTls } from '@rookery/platform';
import { Agent, type IncomingMessage, request, type RequestOptions } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';
import type { RequestContext } from '../request-context.js';
import { respondError } from '../respond.js';

/** Where another process of the server listens for requests of its fellows. */
export interface ProcessAddress {
  readonly host: string;
  readonly port: number;
  /** Whether it wants them encrypted. */
  readonly tls?: boolean | undefined;
}

/** How the processes of a server give requests to each other. */
export interface ForwardingOptions {
  /** Known to these processes alone; goes with each request, in {@link secretHeader}. */
  readonly secret: string;
  /** Where this process listens for requests of its fellows, and whether they are encrypted; absent where none comes. */
  readonly listen?: ProcessAddress | undefined;
  /**
   * Where the process is to which everything goes that this one may not do. Resolves with nothing while there is none.
   * Absent in that process itself.
   */
  readonly writer?: (() => Promise<ProcessAddress | undefined>) | undefined;
  /**
   * Resolves once this process knows what others had said when it was called; `undefined`: it does. A route that answers in
   * this process waits for it, so that a client finds what it was told by another process.
   */
  readonly heard?: (() => Promise<void> | undefined) | undefined;
  /** Resolves once others can know what this process has said so far; `undefined`: they can. Answers wait for it. */
  readonly told?: (() => Promise<void> | undefined) | undefined;
}

/** Proves that a request comes from a fellow process; lower case. */
export const secretHeader = 'x-rookery-process';

/** How long a request waits for a process that takes the place of one that is gone, milliseconds. */
const waitForWriterMs = 15_000;
const askAgainMs = 100;

/** Headers of a connection, and those which only a fellow process may set. */
const ownHeaders: ReadonlySet<string> = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'expect'],
  ...['x-forwarded-for', secretHeader, 'accept-encoding'],
]);
const notPassedBack: ReadonlySet<string> = new Set(['connection', 'keep-alive', 'transfer-encoding']);

const away = (): MatrixError =>
  MatrixError.unavailable('The server is changing over; try again', { retry_after_ms: 2_000 });

const agentOptions = { keepAlive: true, maxSockets: Infinity, maxFreeSockets: 256 };

/** Gives requests to the process that may do what they ask for, and passes its answers on as they come. */
export class Forwarder {
  readonly #agent = new Agent(agentOptions);
  readonly #tlsAgent: TlsAgent;
  readonly #writer: () => Promise<ProcessAddress | undefined>;

  constructor(
    writer: () => Promise<ProcessAddress | undefined>,
    private readonly secret: string,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#writer = writer;
    this.#tlsAgent = new TlsAgent({ ...agentOptions, ...processTls(secret).client, maxCachedSessions: 0 });
  }

  /** Answers a request by way of the writer. What this process has read of its body is sent again. */
  forward(context: RequestContext): void {
    if (context.answered) return;
    context.answered = true;
    this.#attempt(context, this.clock.monotonicMs() + waitForWriterMs).catch((error: unknown) =>
      this.#refuse(context, error),
    );
  }

  /** Ends connections that wait for the next request. */
  close(): void {
    this.#agent.destroy();
    this.#tlsAgent.destroy();
  }

  async #attempt(context: RequestContext, untilMs: number): Promise<void> {
    for (;;) {
      if (context.response.destroyed) return;
      const address = await this.#writer();
      if (address !== undefined) {
        const failure = await this.#send(context, address);
        if (failure === undefined) return;
        if (!failure.mayRepeat) throw failure.error;
      }
      if (this.clock.monotonicMs() >= untilMs) throw away();
      await this.clock.sleep(askAgainMs);
    }
  }

  /** Resolves with nothing once the answer is under way, else with what went wrong before anything came back. */
  #send(
    context: RequestContext,
    { host, port, tls = false }: ProcessAddress,
  ): Promise<{ readonly error: Error; readonly mayRepeat: boolean } | undefined> {
    const { raw, response, rawBody, method } = context;
    const isRead = method === 'GET' || method === 'HEAD';
    // Read by this process: there is nothing left to pass on.
    const isBuffered = rawBody !== undefined || raw.readableEnded || isRead || !context.hasBody;
    const options: RequestOptions = {
      ...{ host, port, method, path: context.url, agent: tls ? this.#tlsAgent : this.#agent },
      headers: this.#headersOf(context, isBuffered),
      setHost: false,
    };
    return new Promise((resolve) => {
      let isAnswered = false;
      let isPassedOn = false;
      const upstream = (tls ? tlsRequest : request)(options, (answer) => {
        isAnswered = true;
        resolve(undefined);
        this.#passBack(context, answer);
      });
      const giveUp = (): void => void upstream.destroy();
      response.once('close', giveUp);
      upstream.once('close', () => response.off('close', giveUp));
      upstream.on('error', (error) => {
        if (isAnswered) return void response.destroy();
        // A read may always be asked again; anything else only where nobody can have seen it.
        const isRefused = (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
        resolve({ error, mayRepeat: !response.destroyed && (isRefused ? !isPassedOn : isRead) });
      });
      if (isBuffered) {
        upstream.end(rawBody);
        return;
      }
      // Not before somebody is there: what has been read is gone.
      const pass = (): void => {
        isPassedOn = true;
        raw.pipe(upstream);
        raw.once('error', giveUp);
      };
      upstream.once('socket', (socket) => {
        if (socket.connecting) socket.once(tls ? 'secureConnect' : 'connect', pass);
        else pass();
      });
    });
  }

  #headersOf(context: RequestContext, isBuffered: boolean): string[] {
    const { rawHeaders } = context.raw;
    const headers: string[] = [];
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const name = rawHeaders[i]!.toLowerCase();
      if (ownHeaders.has(name)) continue;
      if (isBuffered && (name === 'content-length' || name === 'content-encoding')) continue;
      headers.push(rawHeaders[i]!, rawHeaders[i + 1]!);
    }
    if (isBuffered && context.rawBody !== undefined) headers.push('content-length', String(context.rawBody.length));
    else if (!isBuffered && context.headers['content-length'] === undefined)
      headers.push('transfer-encoding', 'chunked');
    headers.push('x-forwarded-for', context.ip, secretHeader, this.secret, 'x-request-id', context.requestId);
    return headers;
  }

  #passBack(context: RequestContext, answer: IncomingMessage): void {
    const { response } = context;
    if (response.destroyed) {
      answer.destroy();
      return;
    }
    const headers: string[] = [];
    for (let i = 0; i < answer.rawHeaders.length; i += 2) {
      if (!notPassedBack.has(answer.rawHeaders[i]!.toLowerCase()))
        headers.push(answer.rawHeaders[i]!, answer.rawHeaders[i + 1]!);
    }
    response.writeHead(answer.statusCode ?? 502, headers);
    answer.on('error', () => response.destroy());
    answer.on('aborted', () => response.destroy());
    answer.pipe(response);
  }

  #refuse(context: RequestContext, error: unknown): void {
    if (context.response.destroyed || context.response.headersSent) return;
    if (!MatrixError.is(error)) this.logger.warn('The process that writes did not answer', { err: error });
    context.answered = false;
    respondError(context, MatrixError.is(error) ? error : away(), () => undefined);
  }
}
