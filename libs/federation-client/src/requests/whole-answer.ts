import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import type { Dispatcher } from 'undici';
import { FederationRequestError } from './federation-request-error.js';

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** An answer of which everything is there, unpacked; without a body where an error has one that is no use. */
export interface WholeAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Buffer;
}

/** How an answer is read. */
export interface Reading {
  readonly destination: string;
  /** Largest body by status, bytes, packed and unpacked. */
  readonly maxBytesOf: (status: number) => number;
  /** Ends the request. */
  readonly signal: AbortSignal;
  /** Called for every piece. */
  readonly heard: () => void;
}

type Unpack = (packed: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>;
const unpackers: Readonly<Record<string, Unpack>> = {
  gzip: promisify(gunzip) as Unpack,
  'x-gzip': promisify(gunzip) as Unpack,
  deflate: promisify(inflate) as Unpack,
  br: promisify(brotliDecompress) as Unpack,
};

/**
 * Sends a request and reads the whole answer. Streams would be a third of what a small request costs, and most are small and many.
 * @throws FederationRequestError `too_large` or `bad_response`; the signal's reason; what went wrong with the connection
 */
export async function wholeAnswer(
  dispatcher: Dispatcher,
  options: Dispatcher.DispatchOptions,
  reading: Reading,
): Promise<WholeAnswer> {
  const { destination, maxBytesOf } = reading;
  const answer = await new Promise<WholeAnswer>((resolve, reject) => {
    const collector = new Collector(reading, resolve, reject);
    dispatcher.dispatch(options, collector);
  });
  const unpack = unpackers[String(answer.headers['content-encoding'] ?? '').toLowerCase()];
  if (unpack === undefined || answer.body.length === 0) return answer;
  try {
    return { ...answer, body: await unpack(answer.body, { maxOutputLength: maxBytesOf(answer.status) }) };
  } catch (error) {
    if (!isGood(answer.status)) return { ...answer, body: Buffer.alloc(0) };
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE')
      throw tooLarge(destination, maxBytesOf(answer.status));
    throw new FederationRequestError(destination, 'bad_response', `The answer of ${destination} cannot be unpacked`);
  }
}

/** Whether a status says that all went well. */
export const isGood = (status: number): boolean => status >= 200 && status < 300;

/** That an answer is larger than allowed. */
export const tooLarge = (destination: string, maxBytes: number): FederationRequestError =>
  new FederationRequestError(destination, 'too_large', `${destination} answered with more than ${maxBytes} bytes`);

/** Takes the pieces of an answer. */
class Collector implements Dispatcher.DispatchHandler {
  readonly #chunks: Buffer[] = [];
  #controller: Dispatcher.DispatchController | undefined;
  #status = 0;
  #headers: Headers = {};
  #sizeBytes = 0;
  #maxBytes = 0;

  constructor(
    private readonly reading: Reading,
    private readonly resolve: (answer: WholeAnswer) => void,
    private readonly reject: (error: Error) => void,
  ) {
    if (reading.signal.aborted) this.#abort();
    else reading.signal.addEventListener('abort', this.#abort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // There was no connection yet.
    if (this.reading.signal.aborted) controller.abort(this.reading.signal.reason as Error);
  }

  onResponseStart(_: unknown, status: number, headers: Headers): void {
    this.reading.heard();
    if (status < 200) return;
    this.#status = status;
    this.#headers = headers;
    this.#maxBytes = this.reading.maxBytesOf(status);
    if (Number(headers['content-length'] ?? 0) > this.#maxBytes) this.#tooMuch();
  }

  onResponseData(_: unknown, chunk: Buffer): void {
    this.reading.heard();
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > this.#maxBytes) this.#tooMuch();
    else this.#chunks.push(chunk);
  }

  onResponseEnd(): void {
    const [first] = this.#chunks;
    this.#resolve(this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks));
  }

  onResponseError(_: unknown, error: Error): void {
    this.#end();
    this.reject(error);
  }

  #resolve(body: Buffer): void {
    this.#end();
    this.resolve({ status: this.#status, headers: this.#headers, body });
  }

  #tooMuch(): void {
    if (!isGood(this.#status)) this.#resolve(Buffer.alloc(0));
    this.#cut(tooLarge(this.reading.destination, this.#maxBytes));
  }

  readonly #abort = (): void => this.#cut(this.reading.signal.reason as Error);

  #cut(error: Error): void {
    this.onResponseError(undefined, error);
    this.#controller?.abort(error);
  }

  #end(): void {
    this.reading.signal.removeEventListener('abort', this.#abort);
  }
}
