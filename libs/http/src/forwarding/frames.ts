import type { Socket } from 'node:net';
import { Writable } from 'node:stream';

/**
 * How processes of a server give requests to each other: one connection carries all of them as frames, each of which names its call. A
 * frame is a prefix (length of what follows it, number of the call, kind, whether it is the sender's last of the call) and its bytes.
 */
export const frameKinds = {
  /** The first one of whoever connects: version of what is said between processes, a blank, the secret. */
  hello: 0,
  /** Begins a call, or its answer: a {@link headFrame}. */
  head: 1,
  /** More bytes of the body. */
  part: 2,
  /** The call is given up. */
  cancel: 3,
  /** So many bytes of the body have been read: as many more may come. */
  taken: 4,
  /** Of the side that listens: no more calls by this connection. */
  farewell: 5,
} as const;

const prefixBytes = 10;
/** Most bytes of a body in a frame. */
export const pieceBytes = 65_536;
/** Largest frame: a piece and the headers of a request, however they are written; and of whoever has not said who it is. */
const [maxFrameBytes, maxHelloBytes] = [1_048_576, 4_096];
/** Longest head, characters, each of which may take four bytes. */
const maxHeadChars = (maxFrameBytes - 2 * pieceBytes) / 4;
/** Bytes of a body that may be under way, or wait for whoever reads it. */
const windowBytes = 262_144;
/** No bytes. */
export const none = Buffer.alloc(0);

/** Takes what comes in. Throws where that makes no sense. */
export type OnFrame = (kind: number, call: number, isLast: boolean, payload: Buffer) => void;

/**
 * A head as text, for {@link headFrame}.
 * @throws Error for one that is too long for a frame: the other side would end the connection, with all that goes by it
 */
export function headText(head: unknown): string {
  const text = JSON.stringify(head);
  if (text.length > maxHeadChars) throw new Error('The headers are too long to be passed on');
  return text;
}

/** The bytes of a head and of what of the body goes with it: {@link pieceBytes} at most. */
export function headFrame(text: string, body: Uint8Array = none): Buffer {
  const textBytes = Buffer.byteLength(text);
  const payload = Buffer.allocUnsafe(4 + textBytes + body.length);
  payload.writeUInt32BE(textBytes, 0);
  payload.write(text, 4);
  payload.set(body, 4 + textBytes);
  return payload;
}

/** What {@link headFrame} was made of. */
export function readHead(payload: Buffer): { readonly head: unknown; readonly body: Buffer } {
  const end = 4 + payload.readUInt32BE(0);
  if (end > payload.length) throw new Error('The head of a frame is longer than the frame');
  return { head: JSON.parse(payload.toString('utf8', 4, end)), body: payload.subarray(end) };
}

/** A connection that carries frames. What is sent in a turn of the event loop goes out in one piece. */
export class FrameSocket {
  #held: Buffer = none;
  #out: Uint8Array[] = [];
  #outBytes = 0;

  /** @param isKnown whether the other side has proven who it is; else it can say little until {@link isKnown} is set */
  constructor(
    private readonly socket: Socket,
    onFrame: OnFrame,
    public isKnown = true,
  ) {
    socket.on('data', (bytes: Buffer) => {
      try {
        this.#take(bytes, onFrame);
      } catch (error) {
        socket.destroy(error as Error);
      }
    });
  }

  send(kind: number, call: number, isLast = false, payload: Uint8Array = none): void {
    if (this.#out.length === 0) setImmediate(() => this.#flush());
    const prefix = Buffer.allocUnsafe(prefixBytes);
    prefix.writeUInt32BE(payload.length, 0);
    prefix.writeUInt32BE(call, 4);
    prefix[8] = kind;
    prefix[9] = isLast ? 1 : 0;
    this.#out.push(prefix);
    if (payload.length > 0) this.#out.push(payload);
    this.#outBytes += prefixBytes + payload.length;
  }

  #flush(): void {
    const [pieces, size] = [this.#out, this.#outBytes];
    this.#out = [];
    this.#outBytes = 0;
    if (!this.socket.destroyed) this.socket.write(Buffer.concat(pieces, size));
  }

  #take(bytes: Buffer, onFrame: OnFrame): void {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    let at = 0;
    while (all.length - at >= prefixBytes) {
      const size = all.readUInt32BE(at);
      if (size > (this.isKnown ? maxFrameBytes : maxHelloBytes)) throw new Error('A frame is too large');
      const end = at + prefixBytes + size;
      if (all.length < end) break;
      onFrame(all[at + 8]!, all.readUInt32BE(at + 4), all[at + 9] === 1, all.subarray(at + prefixBytes, end));
      if (this.socket.destroyed) return;
      at = end;
    }
    this.#held = at === all.length ? none : all.subarray(at);
  }
}

/** The bytes that one side of a call sends: no more than the other side has room for. */
export class Outgoing extends Writable {
  #underWayBytes = 0;
  #left: Buffer = none;
  #done: (() => void) | undefined;

  constructor(
    protected readonly frames: FrameSocket,
    protected readonly call: number,
  ) {
    super();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#left = bytes;
    this.#done = done;
    this.#goOn();
  }

  /** What was written in small pieces goes out in large ones. */
  override _writev(pieces: readonly { readonly chunk: Buffer }[], done: () => void): void {
    this._write(Buffer.concat(pieces.map(({ chunk }) => chunk)), 'binary', done);
  }

  override _final(done: () => void): void {
    this.sendPiece(none, true);
    done();
  }

  protected sendPiece(piece: Uint8Array, isLast: boolean): void {
    this.frames.send(frameKinds.part, this.call, isLast, piece);
  }

  /** The other side has read some of it. @param payload of its frame */
  taken(payload: Buffer): void {
    this.#underWayBytes -= payload.readUInt32BE(0);
    this.#goOn();
  }

  #goOn(): void {
    const done = this.#done;
    if (done === undefined) return;
    while (this.#underWayBytes < windowBytes) {
      const piece = this.#left.subarray(0, pieceBytes);
      if (piece.length === 0) {
        this.#done = undefined;
        return done();
      }
      this.#left = this.#left.subarray(piece.length);
      this.#underWayBytes += piece.length;
      this.sendPiece(piece, false);
    }
  }
}

/** Tells the other side of a call how much of what it sent has been read. */
export class Taken {
  #bytes = 0;
  #isHeld = false;

  constructor(
    private readonly frames: FrameSocket,
    private readonly call: number,
  ) {}

  /** @param goesOn whether the reader wants more; else {@link resume} is awaited */
  add(bytes: number, goesOn: boolean): void {
    this.#bytes += bytes;
    this.#isHeld = !goesOn;
    this.#tell();
  }

  resume(): void {
    this.#isHeld = false;
    this.#tell();
  }

  #tell(): void {
    if (this.#isHeld || this.#bytes < windowBytes / 4) return;
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32BE(this.#bytes, 0);
    this.#bytes = 0;
    this.frames.send(frameKinds.taken, this.call, false, payload);
  }
}
