import { PassThrough, type Readable } from 'node:stream';
import type { ConnectionOptions } from 'node:tls';
import type { Dispatcher, Pool } from 'undici';
import { undici } from '../undici.js';

/** Where another process of the server listens for requests of its fellows. */
export interface ProcessAddress {
  readonly host: string;
  readonly port: number;
  /** Whether it wants them encrypted. */
  readonly tls?: boolean | undefined;
}

/** A request to another process. */
export interface FellowRequest {
  readonly method: string;
  readonly path: string;
  /** Names and values in turn. */
  readonly headers: string[];
  /** Bytes that are at hand, or a stream of them, of which nothing is read before somebody is there. */
  readonly body?: Buffer | Readable | undefined;
}

/** Takes an answer as it comes. */
export interface AnswerReceiver {
  /**
   * Once, before anything of the body.
   * @param headers names and values in turn
   * @param lengthBytes length of the body; `NaN` where the headers do not say it
   */
  head(status: number, headers: readonly string[], lengthBytes: number): void;
  /** @returns whether more may come at once; else {@link FellowCall.resume} is awaited */
  part(bytes: Buffer): boolean;
  /** The answer is complete. */
  end(): void;
  /** There is no answer, or not all of it. @param wasReached whether somebody can have seen the request */
  fail(error: Error, wasReached: boolean): void;
}

/** A request that is under way. */
export interface FellowCall {
  /** After {@link AnswerReceiver.part} said no. */
  resume(): void;
  /** Nobody waits for the answer any more. */
  abort(): void;
}

/** How long a connection waits for the next request, milliseconds. The other side would end it later. */
const idleMs = 30_000;
/** Headers that belong to the connection an answer came by. */
const ofConnection: ReadonlySet<string> = new Set(['connection', 'keep-alive', 'transfer-encoding']);

/** Connections to another process of the server, as many as there are requests under way. */
export class FellowConnections {
  #pool: Pool | undefined;
  #origin = '';

  /** @param tls for fellows that want encryption */
  constructor(private readonly tls: ConnectionOptions) {}

  /** Sends a request. */
  ask(address: ProcessAddress, { method, path, headers, body }: FellowRequest, receiver: AnswerReceiver): FellowCall {
    let controller: Dispatcher.DispatchController | undefined;
    let isAborted = false;
    const upload = body === undefined || Buffer.isBuffer(body) ? undefined : body;
    const sent = upload && new PassThrough();
    const stop = (error: Error): void => controller?.abort(error);
    // Answered, or failed, before it was sent: nobody wants the rest, and whoever sends it can go on.
    const letGo = (): void => {
      if (upload === undefined || upload.readableEnded) return;
      upload.unpipe(sent);
      upload.resume();
    };
    this.#to(address).dispatch(
      { method: method as Dispatcher.HttpMethod, path, headers, body: sent ?? (body as Buffer | undefined) ?? null },
      {
        onRequestStart: (started) => {
          controller = started;
          if (isAborted) return stop(new Error('Nobody waits for the answer'));
          if (upload === undefined || sent === undefined) return;
          // Cut off: what was sent of it is no request.
          const cut = (): void => stop(new Error('The request was cut off'));
          if (upload.destroyed) return cut();
          upload.once('close', () => upload.readableEnded || cut());
          upload.pipe(sent);
        },
        onResponseStart: ({ rawHeaders }, status, headers) =>
          receiver.head(status, ownHeaders(rawHeaders), Number(headers['content-length'])),
        onResponseData: (started, bytes) => {
          if (!receiver.part(bytes)) started.pause();
        },
        onResponseEnd: () => {
          letGo();
          receiver.end();
        },
        onResponseError: (_controller, error) => {
          letGo();
          receiver.fail(error, controller !== undefined);
        },
      },
    );
    return {
      resume: () => controller?.resume(),
      abort: () => {
        isAborted = true;
        stop(new Error('Nobody waits for the answer'));
      },
    };
  }

  /** Ends all of them, and what is under way. */
  close(): void {
    void this.#pool?.destroy();
    this.#pool = undefined;
  }

  #to({ host, port, tls }: ProcessAddress): Pool {
    const origin = `http${tls === true ? 's' : ''}://${host.includes(':') ? `[${host}]` : host}:${port}`;
    if (this.#pool === undefined || this.#origin !== origin) {
      // Of a process that is not asked any more: what is under way may end.
      void this.#pool?.close();
      const { Pool } = undici();
      this.#origin = origin;
      this.#pool = new Pool(origin, {
        ...{ keepAliveTimeout: idleMs, keepAliveMaxTimeout: idleMs, headersTimeout: 0, bodyTimeout: 0 },
        allowH2: false,
        connect: { ...(tls === true ? (this.tls as object) : {}), noDelay: true, keepAliveInitialDelay: 1_000 },
      });
    }
    return this.#pool;
  }
}

function ownHeaders(raw: Dispatcher.DispatchController['rawHeaders']): string[] {
  const headers: string[] = [];
  if (!Array.isArray(raw)) return headers;
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at]!.toString('latin1');
    if (!ofConnection.has(name.toLowerCase())) headers.push(name, raw[at + 1]!.toString('latin1'));
  }
  return headers;
}
