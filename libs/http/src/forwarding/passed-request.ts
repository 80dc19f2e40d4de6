import { type IncomingMessage, type RequestListener, type ServerResponse, validateHeaderValue } from 'node:http';
import { Readable } from 'node:stream';
import type { AnswerHead, PassedHead } from './fellow-connection.js';
import { frameKinds, type FrameSocket, headFrame, headText, none, Outgoing, pieceBytes, Taken } from './frames.js';

/** What the HTTP layer asks of the socket of a request, for one call of many by a connection. */
class CallSocket {
  readonly remoteAddress = '';
  readonly writableLength = 0;
  /** Bytes of the answer that the other process has read. */
  bytesWritten = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(readonly destroy: () => void) {}

  /** Gives the call up when nothing of it comes for so long; 0: it may take its time. */
  setTimeout(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = ms > 0 ? setTimeout(this.destroy, ms).unref() : undefined;
  }

  /** Something came. */
  alive(): void {
    this.#timer?.refresh();
  }
}

/** A request that another process has read the head of, and all of the body where that is short. */
class PassedRequest extends Readable {
  readonly httpVersionMajor = 1;
  readonly rawHeaders: string[] = [];
  readonly method: string;
  readonly url: string;
  readonly headersDistinct: { readonly authorization: readonly string[] };
  headers: PassedHead['headers'];
  /** Whether all of the body is here. */
  complete: boolean;
  #whole: Buffer | undefined;

  constructor(
    { method, url, headers, authorizations }: PassedHead,
    whole: Buffer | undefined,
    readonly socket: CallSocket,
    private readonly taken: Taken,
  ) {
    super({ autoDestroy: false });
    this.method = method;
    this.url = url;
    this.headers = headers;
    this.headersDistinct = { authorization: authorizations ?? [headers['authorization'] ?? []].flat() };
    this.#whole = whole;
    this.complete = whole !== undefined;
  }

  /** All of the body, where it came with the head: it is not there to be read any more. */
  takeWhole(): Buffer | undefined {
    const whole = this.#whole;
    this.#whole = undefined;
    return whole;
  }

  /** More of the body. */
  add(bytes: Buffer, isLast: boolean): void {
    if (this.destroyed || this.complete) return;
    this.socket.alive();
    if (bytes.length > 0) this.taken.add(bytes.length, this.push(bytes));
    if (!isLast) return;
    this.complete = true;
    this.push(null);
  }

  override _read(): void {
    const whole = this.takeWhole();
    if (whole === undefined) return this.taken.resume();
    if (whole.length > 0) this.push(whole);
    this.push(null);
  }

  override _destroy(_error: Error | null, done: () => void): void {
    this.socket.setTimeout(0);
    if (!this.complete) this.socket.destroy();
    done();
  }
}

/** The answer to a {@link PassedRequest}. */
class PassedResponse extends Outgoing {
  statusCode = 200;
  shouldKeepAlive = true;
  headersSent = false;
  /** As text, until it is sent. */
  #head: string | undefined = '[200,{}]';
  #isDone = false;

  constructor(
    frames: FrameSocket,
    call: number,
    readonly socket: CallSocket,
    private readonly onEnd: () => void,
  ) {
    super(frames, call);
  }

  /** @throws Error where a header cannot be sent, as the runtime's own does; and where they are too long for a frame */
  writeHead(status: number, headers: AnswerHead[1] = {}): this {
    for (const name in headers) for (const value of [headers[name]!].flat()) validateHeaderValue(name, value as string);
    const head: AnswerHead = [status, headers];
    this.#head = headText(head);
    this.statusCode = status;
    this.headersSent = true;
    return this;
  }

  /** Nothing of the connection is the answer's. */
  setHeader(): this {
    return this;
  }

  protected override sendPiece(piece: Uint8Array, isLast: boolean): void {
    this.#isDone ||= isLast;
    if (this.#head === undefined) return super.sendPiece(piece, isLast);
    const head = this.#head;
    this.#head = undefined;
    this.headersSent = true;
    this.frames.send(frameKinds.head, this.call, isLast, headFrame(head, piece));
  }

  /** A whole answer is one frame. */
  override end(...last: unknown[]): this {
    const [body, encoding] = last;
    if (this.#head === undefined || !(typeof body === 'string' || body instanceof Uint8Array) || this.destroyed)
      return super.end(...(last as []));
    const bytes = typeof body === 'string' ? Buffer.from(body, encoding as BufferEncoding | undefined) : body;
    if (bytes.length > pieceBytes) return super.end(bytes);
    this.sendPiece(bytes, true);
    return super.end();
  }

  override _final(done: () => void): void {
    if (!this.#isDone) this.sendPiece(none, true);
    done();
  }

  override taken(payload: Buffer): void {
    this.socket.bytesWritten += payload.readUInt32BE(0);
    super.taken(payload);
  }

  override _destroy(_error: Error | null, done: () => void): void {
    if (!this.#isDone) this.frames.send(frameKinds.cancel, this.call);
    this.#isDone = true;
    this.onEnd();
    done();
  }
}

/** A call of another process, from its head to the end of its answer. */
export class PassedCall {
  readonly #request: PassedRequest;
  readonly #response: PassedResponse;

  /**
   * @param whole all of the body; absent where more of it comes
   * @param onEnd told once it is answered, or given up
   */
  constructor(frames: FrameSocket, number: number, head: PassedHead, whole: Buffer | undefined, onEnd: () => void) {
    const socket = new CallSocket(() => this.end());
    this.#request = new PassedRequest(head, whole, socket, new Taken(frames, number));
    this.#response = new PassedResponse(frames, number, socket, () => {
      onEnd();
      this.#request.complete = true;
      this.#request.destroy();
    });
  }

  begin(handler: RequestListener): void {
    const [request, response] = [this.#request, this.#response] as unknown[];
    handler(request as IncomingMessage, response as ServerResponse & { req: IncomingMessage });
  }

  part(bytes: Buffer, isLast: boolean): void {
    this.#request.add(bytes, isLast);
  }

  taken(payload: Buffer): void {
    this.#response.taken(payload);
  }

  /** Nobody waits for the answer, or nobody gives one. */
  end(): void {
    this.#response.destroy();
  }
}
