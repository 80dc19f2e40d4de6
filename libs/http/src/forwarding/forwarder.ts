import { MatrixError } from '@rookery/matrix-types';
import { type Clock, type Logger, processTls } from '@rookery/platform';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { RequestContext } from '../request-context.js';
import { discardLeftover, respondError } from '../respond.js';
import { FellowConnections, type FellowRequest, type ProcessAddress } from './fellow-connection.js';

/** How the processes of a server give requests to each other. */
export interface ForwardingOptions {
  /** Known to these processes alone. */
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
  readonly heard?: (() => Promise<unknown> | undefined) | undefined;
  /** Resolves once others can know what this process has said so far; `undefined`: they can. Answers wait for it. */
  readonly told?: (() => Promise<unknown> | undefined) | undefined;
}

/** How long a request waits for a process that takes the place of one that is gone, milliseconds. */
const waitForWriterMs = 15_000;
const askAgainMs = 100;

/** Headers of a connection, and those which only a fellow process may set. */
const ownHeaders: ReadonlySet<string> = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'expect'],
  ...['x-forwarded-for', 'x-request-id', 'accept-encoding'],
]);
/** Largest body that is sent in one piece with its head where it has arrived, bytes. */
const smallBytes = 16_384;

const away = (): MatrixError =>
  MatrixError.unavailable('The server is changing over; try again', { retry_after_ms: 2_000 });

const isRead = ({ method }: RequestContext): boolean => method === 'GET' || method === 'HEAD';

/** All values of that header, where there are several: of these a request's other headers have the first only. */
function authorizationsOf(rawHeaders: readonly string[]): string[] | undefined {
  const values = rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]!.toLowerCase() === 'authorization');
  return values.length > 1 ? values : undefined;
}

/** Whether a request says that its body is short, and that has not been read. */
function saysSmall({ headers, rawBody, raw }: RequestContext): boolean {
  if (rawBody !== undefined || raw.readableEnded || raw.destroyed) return false;
  return headers['content-encoding'] === undefined && Number(headers['content-length']) <= smallBytes;
}

/** Gives requests to the process that may do what they ask for, and passes its answers on as they come. */
export class Forwarder {
  readonly #connections: FellowConnections;
  readonly #writer: () => Promise<ProcessAddress | undefined>;
  #waits = true;

  constructor(
    writer: () => Promise<ProcessAddress | undefined>,
    secret: string,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#writer = writer;
    this.#connections = new FellowConnections(secret, processTls(secret).client);
  }

  /** Answers a request by way of the writer. What this process has read of its body is sent again. */
  forward(context: RequestContext): void {
    if (context.answered) return;
    context.answered = true;
    this.#attempt(context, this.clock.monotonicMs() + waitForWriterMs).catch((error: unknown) =>
      this.#refuse(context, error),
    );
  }

  /** Requests wait no more for a process that writes: this one stops, maybe to take that very place. What is under way goes on. */
  stopWaiting(): void {
    this.#waits = false;
  }

  /** Ends all connections; what is under way fails, and reads are asked again. */
  close(): void {
    this.#connections.close();
  }

  async #attempt(context: RequestContext, untilMs: number): Promise<void> {
    if (saysSmall(context)) {
      // What came with the head is parsed once everything that the head set off has been done: in the next turn at the latest.
      if (!context.raw.complete) await nextTurn();
      if (context.raw.complete) await context.readBody(smallBytes);
    }
    for (;;) {
      if (context.response.destroyed) return;
      const address = await this.#writer();
      if (address !== undefined) {
        const failure = await this.#send(context, address);
        if (failure === undefined) return;
        if (!failure.mayRepeat) throw failure.error;
      }
      if (!this.#waits || this.clock.monotonicMs() >= untilMs) throw away();
      await this.clock.sleep(askAgainMs);
    }
  }

  /** Resolves with nothing once the answer is under way, else with what went wrong before anything came back. */
  #send(
    context: RequestContext,
    address: ProcessAddress,
  ): Promise<{ readonly error: Error; readonly mayRepeat: boolean } | undefined> {
    const { response } = context;
    const request = this.#requestOf(context);
    return new Promise((resolve) => {
      let isAnswered = false;
      const giveUp = (): void => call.abort();
      let isFull = false;
      const goOn = (): void => {
        isFull = false;
        call.resume();
      };
      response.once('close', giveUp);
      const call = this.#connections.ask(address, request, {
        head: (status, headers) => {
          isAnswered = true;
          resolve(undefined);
          if (!response.destroyed) response.writeHead(status, headers);
        },
        part: (bytes, isLast) => {
          if (isLast) response.off('close', giveUp);
          if (response.destroyed) return true;
          if (isLast) {
            // Head and body go out in one piece.
            if (bytes.length <= smallBytes) response.end(bytes.toString('latin1'), 'latin1');
            else response.end(bytes);
            // The other process has given all of it away: who does not read it is this one's to cut off.
            context.noteUnread(response.writableLength);
            discardLeftover(context);
          } else if (bytes.length > 0 && !response.write(bytes) && !isFull) {
            isFull = true;
            response.once('drain', goOn);
          }
          return !isFull;
        },
        fail: (error, wasReached) => {
          response.off('close', giveUp);
          if (isAnswered) response.destroy();
          // A read may always be asked again; anything else only where nobody can have seen it.
          else resolve({ error, mayRepeat: !response.destroyed && (!wasReached || isRead(context)) });
        },
      });
    });
  }

  #requestOf(context: RequestContext): FellowRequest {
    const { raw, rawBody, method, url } = context;
    // Read by this process: there is nothing left to pass on.
    const isBuffered = rawBody !== undefined || raw.readableEnded || isRead(context) || !context.hasBody;
    const headers: Record<string, string | readonly string[]> = {};
    for (const [name, value] of Object.entries(context.headers))
      if (value !== undefined && !ownHeaders.has(name)) headers[name] = value;
    if (isBuffered) {
      delete headers['content-encoding'];
      if (context.hasBody && !isRead(context)) headers['content-length'] = String(rawBody?.length ?? 0);
      else delete headers['content-length'];
    } else if (headers['content-length'] === undefined) headers['transfer-encoding'] = 'chunked';
    headers['x-forwarded-for'] = context.ip;
    headers['x-request-id'] = context.requestId;
    const head = { method, url, headers, authorizations: authorizationsOf(raw.rawHeaders) };
    return { head, body: isBuffered ? rawBody : raw };
  }

  #refuse(context: RequestContext, error: unknown): void {
    if (context.response.destroyed || context.response.headersSent) return;
    if (!MatrixError.is(error)) this.logger.warn('The process that writes did not answer', { err: error });
    context.answered = false;
    respondError(context, MatrixError.is(error) ? error : away(), () => undefined);
  }
}
