import { connect, type Socket } from 'node:net';
import { type Readable, Transform, type TransformCallback } from 'node:stream';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';

/** Where another process of the server listens for requests of its fellows. */
export interface ProcessAddress {
  readonly host: string;
  readonly port: number;
  /** Whether it wants them encrypted. */
  readonly tls?: boolean | undefined;
}

/** A request as it goes over the line. */
export interface FellowRequest {
  readonly method: string;
  /** First line and headers, with the line ends. */
  readonly head: string;
  /** Bytes that are at hand, or a stream of them, of which nothing is read before somebody is there. */
  readonly body?: Buffer | Readable | undefined;
  /** The stream tells its length piece by piece. */
  readonly isChunked?: boolean | undefined;
}

/** Takes an answer as it comes. */
export interface AnswerReceiver {
  /** Once, before anything of the body. @param headers names and values in turn */
  head(status: number, headers: readonly string[]): void;
  /** A part of the body. @returns false where no more is wanted until {@link FellowConnection.resume} */
  part(bytes: Buffer): boolean;
  /** The answer is complete. @param last what is left of its body */
  end(last?: Buffer): void;
  /** It will not be. @param wasReached whether the fellow can have seen the request */
  fail(error: Error, wasReached: boolean): void;
}

/** Where in an answer the reading stands. */
type Place = 'head' | 'bytes' | 'chunk size' | 'chunk' | 'chunk end' | 'trailers' | 'rest';

/** Longest head of an answer, bytes. A process of this server writes no longer ones. */
const maxHeadBytes = 262_144;
const lineEnd = '\r\n';
const none = Buffer.alloc(0);

/** Says before each piece how long it is. */
class Chunked extends Transform {
  override _transform(bytes: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.push(bytes.length.toString(16) + lineEnd);
    this.push(bytes);
    done(null, lineEnd);
  }
  override _flush(done: TransformCallback): void {
    done(null, `0${lineEnd}${lineEnd}`);
  }
}

/**
 * A connection to another process of the server, for one request after the other: HTTP/1.1 as Node.js writes it on the other side. Where
 * every request goes through, the client of Node.js would cost more than all the rest of the way.
 */
export class FellowConnection {
  readonly #socket: Socket;
  #isConnected = false;
  #receiver: AnswerReceiver | undefined;
  /** The answer to `HEAD` names a length and has no body. */
  #isBodyless = false;
  #place: Place = 'head';
  #held: Buffer = none;
  /** Bytes to come, of the body or of a chunk. */
  #left = 0;
  #isKept = true;
  /** Of which there is more to send. */
  #upload: Readable | undefined;

  /**
   * @param tls for a fellow that wants encryption
   * @param onFree told when the answer is complete and the next request may come
   * @param onGone told when there is no connection any more
   */
  constructor(
    readonly address: ProcessAddress,
    tls: ConnectionOptions,
    onFree: (connection: FellowConnection) => void,
    onGone: (connection: FellowConnection) => void,
  ) {
    const { host, port } = address;
    const where = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1_000 };
    this.#socket = address.tls === true ? connectTls({ ...tls, ...where }) : connect(where);
    this.#socket.once(address.tls === true ? 'secureConnect' : 'connect', () => (this.#isConnected = true));
    let problem: Error | undefined;
    this.#socket.on('error', (error) => (problem = error));
    this.#socket.on('data', (bytes: Buffer) => {
      try {
        if (this.#take(bytes)) onFree(this);
      } catch (error) {
        this.#socket.destroy(error as Error);
      }
    });
    this.#socket.on('end', () => {
      if (this.#place === 'rest') this.#finish();
    });
    this.#socket.on('close', () => {
      const receiver = this.#receiver;
      this.#receiver = undefined;
      onGone(this);
      receiver?.fail(problem ?? new Error('The connection was closed'), this.#isConnected);
    });
    this.#socket.on('timeout', () => this.#socket.destroy());
  }

  /** Whether a request can be sent: nobody has closed it. */
  get isOpen(): boolean {
    return this.#socket.writable;
  }

  /** Sends a request. There must be none under way. */
  ask({ method, head, body, isChunked = false }: FellowRequest, receiver: AnswerReceiver): void {
    const socket = this.#socket;
    socket.setTimeout(0);
    if (socket.isPaused()) socket.resume();
    this.#receiver = receiver;
    this.#isBodyless = method === 'HEAD';
    this.#place = 'head';
    if (body === undefined) socket.write(head, 'latin1');
    else if (Buffer.isBuffer(body)) {
      // One piece for the system.
      const bytes = Buffer.allocUnsafe(head.length + body.length);
      bytes.write(head, 'latin1');
      body.copy(bytes, head.length);
      socket.write(bytes);
    } else if (this.#isConnected) this.#send(head, body, isChunked);
    else socket.once(this.address.tls === true ? 'secureConnect' : 'connect', () => this.#send(head, body, isChunked));
  }

  #send(head: string, body: Readable, isChunked: boolean): void {
    const socket = this.#socket;
    if (body.destroyed) return void socket.destroy();
    socket.write(head, 'latin1');
    this.#upload = body;
    body.once('end', () => (this.#upload = undefined));
    // Cut off: what was sent of it is no request.
    body.once('close', () => {
      if (this.#upload === body) socket.destroy();
    });
    (isChunked ? body.pipe(new Chunked()) : body).pipe(socket, { end: false });
  }

  /** After {@link AnswerReceiver.part} said no. */
  resume(): void {
    this.#socket.resume();
  }

  /** Waits for the next request, but no longer than so. */
  rest(limitMs: number): void {
    this.#socket.setTimeout(limitMs);
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** @returns whether the answer is complete and the connection good for another */
  #take(bytes: Buffer): boolean {
    let rest = bytes;
    while (rest.length > 0) {
      if (this.#receiver === undefined) throw new Error('An answer to nothing');
      if (this.#place === 'rest') this.#give(rest);
      if (this.#place === 'rest') return false;
      rest = this.#place === 'bytes' || this.#place === 'chunk' ? this.#takeBytes(rest) : this.#takeLine(rest);
    }
    return this.#receiver === undefined && this.#isKept && !this.#socket.destroyed;
  }

  #takeBytes(bytes: Buffer): Buffer {
    const size = Math.min(bytes.length, this.#left);
    const own = size === bytes.length ? bytes : bytes.subarray(0, size);
    this.#left -= size;
    if (this.#left > 0) this.#give(own);
    else if (this.#place === 'bytes') this.#finish(own);
    else {
      this.#give(own);
      this.#place = 'chunk end';
    }
    return size === bytes.length ? none : bytes.subarray(size);
  }

  #takeLine(bytes: Buffer): Buffer {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    const mark = this.#place === 'head' ? `${lineEnd}${lineEnd}` : lineEnd;
    const at = all.indexOf(mark, 0, 'latin1');
    if (at < 0) {
      if (all.length > maxHeadBytes) throw new Error('The head of the answer is too long');
      this.#held = all;
      return none;
    }
    this.#held = none;
    const text = all.toString('latin1', 0, at);
    if (this.#place === 'head') this.#takeHead(text);
    else if (this.#place === 'chunk size') {
      this.#left = Number.parseInt(text, 16);
      if (!(this.#left >= 0)) throw new Error('The answer has no size');
      this.#place = this.#left === 0 ? 'trailers' : 'chunk';
    } else if (this.#place === 'chunk end') this.#place = 'chunk size';
    else if (text === '') this.#finish();
    return all.subarray(at + mark.length);
  }

  #takeHead(text: string): void {
    const [first = '', ...lines] = text.split(lineEnd);
    const status = Number(first.slice(9, 12));
    if (!first.startsWith('HTTP/1.1 ') || !(status >= 100)) throw new Error('The answer is not HTTP');
    // Something else is still to come.
    if (status < 200) return;
    const headers: string[] = [];
    let length: number | undefined;
    let isChunked = false;
    for (const line of lines) {
      const colon = line.indexOf(':');
      const [name, value] = [line.slice(0, colon), line.slice(colon + 1).trim()];
      switch (name.toLowerCase()) {
        case 'connection':
          if (value.toLowerCase() === 'close') this.#isKept = false;
          break;
        case 'keep-alive':
          break;
        case 'transfer-encoding':
          isChunked = true;
          break;
        case 'content-length':
          length = Number(value);
          headers.push(name, value);
          break;
        default:
          headers.push(name, value);
      }
    }
    this.#receiver?.head(status, headers);
    if (this.#isBodyless || status === 204 || status === 304 || length === 0) return this.#finish();
    this.#left = length ?? 0;
    this.#place = isChunked ? 'chunk size' : length === undefined ? 'rest' : 'bytes';
    if (this.#place === 'rest') this.#isKept = false;
  }

  #give(bytes: Buffer): void {
    if (this.#receiver?.part(bytes) === false) this.#socket.pause();
  }

  #finish(last?: Buffer): void {
    const receiver = this.#receiver;
    this.#receiver = undefined;
    this.#place = 'head';
    const upload = this.#upload;
    if (upload !== undefined) {
      // Answered before it was sent: nobody wants the rest.
      this.#upload = undefined;
      this.#isKept = false;
      upload.unpipe();
      upload.resume();
    }
    if (!this.#isKept) this.#socket.destroy();
    receiver?.end(last);
  }
}

/** How many wait for the next request, and for how long. The other side would end them later. */
const [maxIdle, idleMs] = [256, 30_000];

/** Connections to other processes of the server, as many as there are requests under way. */
export class FellowConnections {
  readonly #open = new Set<FellowConnection>();
  readonly #idle: FellowConnection[] = [];

  constructor(private readonly tls: ConnectionOptions) {}

  /** One without a request. */
  take({ host, port, tls }: ProcessAddress): FellowConnection {
    for (;;) {
      const idle = this.#idle.pop();
      if (idle === undefined) break;
      const { address } = idle;
      const isThere = address.host === host && address.port === port && (address.tls === true) === (tls === true);
      if (isThere && idle.isOpen) return idle;
      // Of a process that is not asked any more.
      idle.destroy();
    }
    const made = new FellowConnection(
      ...([{ host, port, tls }, this.tls] as const),
      (free) => {
        if (this.#idle.length >= maxIdle) return free.destroy();
        free.rest(idleMs);
        this.#idle.push(free);
      },
      (gone) => {
        this.#open.delete(gone);
        const at = this.#idle.indexOf(gone);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    );
    this.#open.add(made);
    return made;
  }

  /** Whether one waits for a request. */
  get hasIdle(): boolean {
    return this.#idle.length > 0;
  }

  /** Ends all of them, and what is under way. */
  close(): void {
    for (const connection of [...this.#open]) connection.destroy();
  }
}
