import { processProtocol, spokenWith } from '@rookery/platform';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { frameKinds, FrameSocket, headFrame, headText, Outgoing, pieceBytes, readHead, Taken } from './frames.js';

/** Where another process of the server listens for requests of its fellows. */
export interface ProcessAddress {
  readonly host: string;
  readonly port: number;
  /** The version that it speaks between processes; that of this one unless told. */
  readonly protocol?: number | undefined;
  /** Whether it wants them encrypted. */
  readonly tls?: boolean | undefined;
}

/** What a request says of itself, as it goes to another process. */
export interface PassedHead {
  readonly method: string;
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  /** All values of that header, where there are several. */
  readonly authorizations?: readonly string[] | undefined;
}

/** A request to another process. */
export interface FellowRequest {
  readonly head: PassedHead;
  /** Bytes that are at hand, or a stream of them, of which nothing is read before somebody is there. */
  readonly body?: Buffer | Readable | undefined;
}

/** Status and headers of an answer. */
export type AnswerHead = readonly [status: number, headers: Record<string, number | string | string[]>];

/** Takes an answer as it comes. */
export interface AnswerReceiver {
  /** Once, before anything of the body. */
  head(...head: AnswerHead): void;
  /**
   * @param bytes none, where the answer has no more
   * @param isLast whether it is complete now
   * @returns whether more may come at once; else {@link FellowCall.resume} is awaited
   */
  part(bytes: Buffer, isLast: boolean): boolean;
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

/** How long another process may take to accept a connection, milliseconds. */
const connectLimitMs = 10_000;

/** A call as its connection knows it. */
interface Call {
  readonly receiver: AnswerReceiver;
  readonly taken: Taken;
  readonly upload: Readable | undefined;
  sent: Outgoing | undefined;
}

/** What of a body goes with its head, and what comes after that. */
function partsOf(body: FellowRequest['body']): [whole: Buffer | undefined, upload: Readable | undefined] {
  if (!Buffer.isBuffer(body)) return [undefined, body];
  return body.length > pieceBytes ? [undefined, Readable.from([body])] : [body, undefined];
}

/** A connection to another process, by which all requests go. */
class FellowConnection {
  readonly #socket: Socket;
  readonly #frames: FrameSocket;
  readonly #calls = new Map<number, Call>();
  #lastCall = 0;
  #isConnected = false;
  #isRetired = false;

  constructor(
    readonly address: ProcessAddress,
    secret: string,
    tls: ConnectionOptions,
    onGone: (connection: FellowConnection) => void,
  ) {
    const { host, port, protocol = processProtocol } = address;
    const where = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1_000 };
    const socket = (this.#socket = address.tls === true ? connectTls({ ...tls, ...where }) : connect(where));
    this.#frames = new FrameSocket(socket, (...frame) => this.#take(...frame));
    this.#frames.send(frameKinds.hello, 0, true, Buffer.from(`${spokenWith(protocol)} ${secret}`));
    socket.setTimeout(connectLimitMs, () => socket.destroy(new Error('The other process accepts no connection')));
    socket.once(address.tls === true ? 'secureConnect' : 'connect', () => {
      socket.setTimeout(0);
      this.#isConnected = true;
      for (const [number, call] of this.#calls) this.#upload(number, call);
    });
    let problem: Error | undefined;
    socket.on('error', (error) => (problem = error));
    socket.on('end', () => socket.destroy());
    socket.on('close', () => {
      onGone(this);
      const error = problem ?? new Error('The connection to the other process was closed');
      for (const number of [...this.#calls.keys()]) this.#end(number)?.receiver.fail(error, this.#isConnected);
    });
  }

  /** Whether requests may be sent by it. */
  get isOpen(): boolean {
    return !this.#isRetired && !this.#socket.destroyed;
  }

  ask({ head, body }: FellowRequest, receiver: AnswerReceiver): FellowCall {
    const number = (this.#lastCall = (this.#lastCall % 0xffffffff) + 1);
    const [whole, upload] = partsOf(body);
    const frame = headFrame(headText(head), whole);
    const call: Call = { receiver, taken: new Taken(this.#frames, number), upload, sent: undefined };
    this.#calls.set(number, call);
    this.#frames.send(frameKinds.head, number, upload === undefined, frame);
    if (this.#isConnected) this.#upload(number, call);
    return {
      resume: () => call.taken.resume(),
      abort: () => this.#giveUp(number, new Error('Nobody waits for the answer')),
    };
  }

  /** Sends no more by it, and ends it with the last answer. */
  retire(): void {
    this.#isRetired = true;
    if (this.#calls.size === 0) this.destroy();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #upload(number: number, call: Call): void {
    const { upload } = call;
    if (upload === undefined || !this.#calls.has(number)) return;
    // Cut off: what was sent of it is no request.
    const cut = (): void => this.#giveUp(number, new Error('The request was cut off'));
    if (upload.destroyed) return cut();
    upload.once('close', () => upload.readableEnded || cut());
    call.sent = new Outgoing(this.#frames, number);
    upload.pipe(call.sent);
  }

  #giveUp(number: number, error: Error): void {
    const call = this.#end(number);
    if (call === undefined) return;
    this.#frames.send(frameKinds.cancel, number);
    call.receiver.fail(error, this.#isConnected);
  }

  #end(number: number): Call | undefined {
    const call = this.#calls.get(number);
    if (call === undefined) return undefined;
    this.#calls.delete(number);
    const { upload, sent } = call;
    // Answered, or failed, before it was sent: nobody wants the rest, and whoever sends it can go on.
    if (upload !== undefined && sent !== undefined && !upload.readableEnded) {
      upload.unpipe(sent);
      upload.resume();
    }
    if (this.#isRetired && this.#calls.size === 0) this.#socket.end();
    return call;
  }

  #take(kind: number, number: number, isLast: boolean, payload: Buffer): void {
    if (kind === frameKinds.farewell) return this.retire();
    const call = this.#calls.get(number);
    // Given up meanwhile.
    if (call === undefined) return;
    switch (kind) {
      case frameKinds.taken:
        return call.sent?.taken(payload);
      case frameKinds.cancel:
        return this.#end(number)?.receiver.fail(new Error('The other process gave the answer up'), true);
      case frameKinds.head: {
        const { head, body } = readHead(payload);
        try {
          call.receiver.head(...(head as AnswerHead));
        } catch (error) {
          // Others go by the same connection.
          return this.#giveUp(number, error as Error);
        }
        return this.#part(number, call, body, isLast);
      }
      case frameKinds.part:
        return this.#part(number, call, payload, isLast);
      default:
        throw new Error(`There are no frames of kind ${kind}`);
    }
  }

  #part(number: number, call: Call, bytes: Buffer, isLast: boolean): void {
    if (isLast) this.#end(number);
    const goesOn = call.receiver.part(bytes, isLast);
    if (!isLast) call.taken.add(bytes.length, goesOn);
  }
}

/** The connection to the process that is asked, whichever it is. */
export class FellowConnections {
  #current: FellowConnection | undefined;
  readonly #open = new Set<FellowConnection>();

  /**
   * @param secret known to the processes alone
   * @param tls for fellows that want encryption
   */
  constructor(
    private readonly secret: string,
    private readonly tls: ConnectionOptions,
  ) {}

  /** Sends a request. */
  ask(address: ProcessAddress, request: FellowRequest, receiver: AnswerReceiver): FellowCall {
    return this.#to(address).ask(request, receiver);
  }

  /** Ends all of them, and what is under way. */
  close(): void {
    for (const connection of this.#open) connection.destroy();
    this.#current = undefined;
  }

  #to(address: ProcessAddress): FellowConnection {
    const { host, port, tls } = address;
    const current = this.#current;
    const now = current?.address;
    if (current?.isOpen && now?.host === host && now.port === port && (now.tls === true) === (tls === true))
      return current;
    // Of a process that is not asked any more: what is under way may end.
    current?.retire();
    this.#current = new FellowConnection(address, this.secret, this.tls, (gone) => this.#open.delete(gone));
    this.#open.add(this.#current);
    return this.#current;
  }
}
