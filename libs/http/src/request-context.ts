import { type DatabaseCost, ownTurn, type Trace } from '@rookery/platform';
import { MatrixError } from '@rookery/matrix-types';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { BlockList, isIP } from 'node:net';
import type { Readable } from 'node:stream';
import { gunzip } from 'node:zlib';
import type { InboundRequest, LateRequest } from './access.js';
import { type AnswerTurn, AnswerTurns, moduleTurnLimits } from './answer-turns.js';
import { UnreadAnswers } from './answers.js';
import { NetworkArrivals } from './arrivals.js';
import { type UnfinishedAnswer, UnfinishedAnswers } from './unfinished-answers.js';
import { HeldBytes, type HeldLimits } from './held-bytes.js';
import { parseJsonText } from './json-text.js';
import { networkOf } from './networks.js';

/** Largest request body where no token is required or users prove who they are, unless a route says otherwise; bytes. */
export const smallBodyBytes = 65_536;
/** The same with a token: an event, however it is written. */
export const userBodyBytes = 262_144;
/** Largest request body for a web resource of a module, bytes. */
export const webBodyBytes = 13_107_200;
/** Bodies that may be held of clients that are not known: 32 MiB of one address. */
export const strangerBodies: HeldLimits = { ofHolder: 33_554_432, altogether: 134_217_728 };
/** Bodies that may be held of users and of servers that proved who they are: 64 MiB of each. */
export const knownBodies: HeldLimits = { ofHolder: 67_108_864, altogether: 268_435_456 };
/** Longest time for a buffered body to arrive, and longest silence within a streamed one. */
const bodyTimeoutMs = 120_000;
/** When to come again, where too many bytes are held. */
const retryBodyMs = 2_000;

/** What a request needs to know of the listener it came in by. */
export interface ListenerTraits {
  /** Believe `X-Forwarded-For` and `X-Forwarded-Proto`; `fellow`: of a process of this server, which gives the client's own address. */
  readonly xForwarded: boolean | 'fellow';
  /** Compress answers for clients that can read that. */
  readonly compress: boolean;
}

/** What the requests of a process share. */
export class RequestContexts {
  /** Requests that somebody waits in; aborted when the server shuts down. */
  readonly waiting = new Set<RequestContext>();
  /** Requests under way. */
  readonly open = new Set<RequestContext>();
  readonly arrivals = new NetworkArrivals(() => this.nowMs());
  /** Pieces of bodies that lie there to be read. */
  readonly pieces = new NetworkArrivals(() => this.nowMs());
  /** Clients that have gone: what waits for them goes on, and gives up. */
  readonly partings = new NetworkArrivals(() => this.nowMs());
  readonly strangerBodies = new HeldBytes(strangerBodies);
  readonly knownBodies = new HeldBytes(knownBodies);
  readonly unread = new UnreadAnswers();
  readonly turns = new AnswerTurns((holder) => this.unread.bytesOf(holder));
  /** Answers of modules that are not whole yet. */
  readonly unfinished = new UnfinishedAnswers();
  /** Of requests that modules answer. What is unread holds up nobody: many people may come from one address. */
  readonly moduleTurns = new AnswerTurns(() => 0, moduleTurnLimits);

  /**
   * @param nowMs the monotonic clock, milliseconds
   * @param told resolves once other processes can know what this one has said; answers wait for it
   */
  constructor(
    readonly nowMs: () => number,
    readonly told?: () => Promise<unknown> | undefined,
  ) {}

  /** Gives up on what takes too long to arrive, or to be read. To be called now and then. */
  check(): void {
    const nowMs = this.nowMs();
    for (const context of this.open) context.checkBody(nowMs);
    this.unread.check(nowMs);
    this.turns.check(nowMs);
    this.moduleTurns.check(nowMs);
    this.unfinished.check(nowMs);
  }
}

/** Why requests are given up, one for all: clients go by the thousand, and the runtime makes another one for each. */
const clientGone = new DOMException('The client has gone', 'AbortError');
const noHeaders: IncomingMessage['headers'] = Object.freeze({});
const contextKey = Symbol('rookery.request');
type Carrier = IncomingMessage & { [contextKey]?: RequestContext };
/** Of a request that another process passed on: all of its body, where that came with its head. */
type PassedOn = IncomingMessage & { takeWhole?(): Buffer | undefined };

/** Addresses of proxies in front of the server, skipped when the client's own is looked for. */
const privateRanges = new BlockList();
for (const [network, prefix] of [
  ['10.0.0.0', 8],
  ['127.0.0.0', 8],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['169.254.0.0', 16],
  ['100.64.0.0', 10],
] as const) {
  privateRanges.addSubnet(network, prefix, 'ipv4');
}
for (const [network, prefix] of [
  ['::1', 128],
  ['fc00::', 7],
  ['fe80::', 10],
] as const) {
  privateRanges.addSubnet(network, prefix, 'ipv6');
}

/** An address of IPv4 as itself, also where a socket of IPv6 has it: one client is one, and not all of IPv4 are. */
const plainAddress = (address: string): string =>
  /^::ffff:[\d.]+$/i.test(address) ? address.slice('::ffff:'.length) : address;

function clientAddress(
  { raw, headers }: Pick<RequestContext, 'raw' | 'headers'>,
  xForwarded: boolean | 'fellow',
): string {
  if (xForwarded === 'fellow') return String(headers['x-forwarded-for']);
  if (xForwarded) {
    const header = headers['x-forwarded-for'];
    const hops = (typeof header === 'string' ? header : (header?.join(',') ?? ''))
      .split(',', 100)
      .map((hop) => plainAddress(hop.trim().replace(/^(?:\[(.*)\]|([\d.]+))(?::\d+)?$/, '$1$2')))
      .filter((hop) => isIP(hop) !== 0);
    // Proxies append: what stands left of the last public address was written by the client itself.
    const outside = hops.findLast((hop) => !privateRanges.check(hop, isIP(hop) === 6 ? 'ipv6' : 'ipv4'));
    const found = outside ?? hops[0];
    if (found !== undefined) return found;
  }
  return plainAddress(raw.socket.remoteAddress ?? '');
}

/** One request and its answer. Everything that not every request needs is made when first asked for. */
export class RequestContext implements LateRequest {
  query: InboundRequest['query'] = {};
  rawBody: Buffer | undefined = undefined;
  /** Name of the endpoint in logs and metrics; `undefined` until one is found. */
  servlet: string | undefined = undefined;
  /** Who asked, for the access log. */
  userId: string | undefined = undefined;
  /** Where it is traced. */
  trace: Trace | undefined = undefined;
  /** Set once the answer is under way. */
  answered = false;
  /** What the request has cost the database so far. */
  readonly cost: DatabaseCost = { transactions: 0, durationMs: 0, waitMs: 0 };
  /** Length of the answer's body, bytes; 0 while unknown. */
  sentBytes = 0;

  /** Name of the server that signed the request, or of the user whose token it carries: who its bytes are held for. */
  #knownAs: string | undefined = undefined;
  #heldBytes = 0;
  #ip: string | undefined = undefined;
  #abort: AbortController | undefined = undefined;
  #streaming = false;
  #turn: AnswerTurn | undefined = undefined;
  #unfinished: UnfinishedAnswer | undefined = undefined;
  #bodyReading: { readonly sinceMs: number; readonly fail: (error: MatrixError) => void } | undefined = undefined;

  /** Names in lower case. */
  readonly headers: IncomingMessage['headers'];
  /** As the client named it; the framework is told `GET` for `HEAD`. */
  readonly method: string;

  constructor(
    readonly requestId: string,
    readonly url: string,
    readonly raw: IncomingMessage,
    readonly response: ServerResponse,
    readonly listener: ListenerTraits,
    readonly startedMs: number,
    readonly store: RequestContexts,
  ) {
    (raw as Carrier)[contextKey] = this;
    this.headers = raw.headers;
    this.method = raw.method ?? 'GET';
    // The framework shall not look at content types or lengths: bodies are read here.
    raw.headers = noHeaders;
  }

  /** The context that a raw request belongs to. */
  static of(raw: IncomingMessage): RequestContext {
    const context = (raw as Carrier)[contextKey];
    if (context === undefined) throw new Error('The request did not come in by one of our listeners');
    return context;
  }

  /** Path without query. */
  get path(): string {
    const end = this.url.indexOf('?');
    return end < 0 ? this.url : this.url.slice(0, end);
  }
  get userAgent(): string {
    return this.headers['user-agent']?.slice(0, 512) ?? '';
  }
  get ip(): string {
    return (this.#ip ??= clientAddress(this, this.listener.xForwarded));
  }
  /** Who is answerable for what the request holds: the server or user that it is proven to be of, or the network of its address. */
  get holder(): string {
    return this.#knownAs ?? networkOf(this.ip);
  }
  get authorizations(): readonly string[] {
    return this.raw.headersDistinct['authorization'] ?? [];
  }
  /** Whether the request's headers announce a body. */
  get hasBody(): boolean {
    const length = this.headers['content-length'];
    return length === undefined ? this.headers['transfer-encoding'] !== undefined : length !== '0';
  }
  json(maxValues?: number): unknown {
    return this.rawBody === undefined
      ? undefined
      : parseJsonText(this.rawBody, maxValues === undefined ? {} : { maxValues });
  }
  get stream(): Readable {
    if (!this.#streaming) {
      this.#streaming = true;
      // A sender that falls silent must not hold the upload for ever; the server then cuts the connection. A long answer
      // afterwards is fine.
      const { socket } = this.raw;
      const quiet = (): void => void socket.setTimeout(0);
      socket.setTimeout(bodyTimeoutMs);
      this.raw.once('end', quiet).once('close', quiet);
    }
    return this.raw;
  }
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      this.store.waiting.add(this);
      if (this.response.closed || this.response.destroyed) this.abort();
    }
    return this.#abort.signal;
  }
  /** Ends whatever waits on {@link signal}. */
  abort(): void {
    this.#abort?.abort();
  }
  /** To be called once the answer is out, or the client is gone. */
  finished(): void {
    this.#release();
    this.#turn?.end();
    this.store.unread.remove(this);
    this.store.turns.wake(this.holder);
    this.store.waiting.delete(this);
    if (this.response.writableFinished) this.#unfinished?.end();
    else if (this.#abort !== undefined || this.#unfinished !== undefined)
      this.store.partings.add(() => {
        this.#unfinished?.end();
        this.#abort?.abort(clientGone);
      });
  }

  /**
   * Notes what the client has yet to read of its answer.
   * @param later more will be written, though nothing waits now
   */
  noteUnread(bytes: number, later = false): void {
    const { response } = this;
    if (later || !response.writableEnded || response.writableLength > 0)
      this.store.unread.add(this, bytes, this.store.nowMs());
    this.#turn?.end();
    this.#unfinished?.end();
  }

  /**
   * Waits until a large answer may be made for the client; `undefined`: at once.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many of its requests wait, or this one did for too long
   */
  takeTurn(): Promise<void> | undefined {
    this.#turn = this.store.turns.take(this.holder, this.store.nowMs());
    return this.#turn.ready;
  }
  /**
   * Waits until a module may be asked for an answer. The turn ends with the one of the event loop, which an answer that is at hand takes:
   * a module that waits itself, as for news, holds up nobody.
   * @throws MatrixError as {@link takeTurn}
   */
  async takeModuleTurn(): Promise<void> {
    const turn = (this.#turn = this.store.moduleTurns.take(this.holder, this.store.nowMs()));
    await turn.ready;
    setImmediate(() => turn.end());
  }
  /**
   * Notes bytes of an answer that a module has begun. @returns when more may be asked for; `undefined`: at once
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` when the client has gone, or there was no room for more for too long
   */
  gather(bytes: number): Promise<void> | undefined {
    const { response, store } = this;
    this.#unfinished ??= store.unfinished.begin(this.holder);
    if (response.closed || response.destroyed) this.#unfinished.end();
    return this.#unfinished.take(bytes, store.nowMs());
  }
  /**
   * For an answer that took a turn: when it may be written, in a turn of the event loop without another one that did. They were begun
   * one by one, but may well be done at once. `undefined` for other answers.
   */
  turnToWrite(): Promise<void> | undefined {
    return this.#turn === undefined ? undefined : ownTurn();
  }
  /** What the system took of this connection; `undefined` while nothing waits for the client. */
  get takenBytes(): number | undefined {
    const { socket } = this.response;
    // Answers to requests that came together go out one after the other.
    if (socket === null || this.response.writableLength === 0) return undefined;
    return socket.bytesWritten - socket.writableLength;
  }
  /** Ends the connection. */
  cut(): void {
    this.raw.socket.destroy();
  }

  vouchFor(name: string): void {
    this.store.knownBodies.add(name, this.#heldBytes);
    const bytes = this.#heldBytes;
    this.#release();
    this.#knownAs = name;
    this.#heldBytes = bytes;
  }

  #hold(bytes: number): boolean {
    const known = this.#knownAs;
    const taken =
      known === undefined
        ? this.store.strangerBodies.take(this.holder, bytes)
        : this.store.knownBodies.take(known, bytes);
    if (taken) this.#heldBytes += bytes;
    return taken;
  }
  #release(): void {
    if (this.#heldBytes === 0) return;
    if (this.#knownAs === undefined) this.store.strangerBodies.give(this.holder, this.#heldBytes);
    else this.store.knownBodies.give(this.#knownAs, this.#heldBytes);
    this.#heldBytes = 0;
  }

  readBody(limitBytes: number): Promise<void> | undefined {
    const { raw } = this;
    if (this.method === 'GET' || this.method === 'HEAD' || !this.hasBody) return undefined;
    const length = this.headers['content-length'];
    const tooLarge = (): MatrixError => MatrixError.tooLarge(`The body is larger than ${limitBytes} bytes`);
    if (length !== undefined && Number(length) > limitBytes) return Promise.reject(tooLarge());
    if (raw.destroyed) return Promise.reject(MatrixError.bodyCutOff());
    const coding = this.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
    if (coding !== 'identity' && coding !== 'gzip') return Promise.reject(MatrixError.unsupportedCoding());
    // Another process has read it, and nothing of it is packed then.
    const whole = (raw as PassedOn).takeWhole?.();
    if (whole !== undefined) {
      if (!this.#hold(whole.length)) return Promise.reject(MatrixError.limitExceeded(retryBodyMs));
      if (whole.length > 0) this.rawBody = whole;
      return undefined;
    }

    const reading = new Promise<void>((resolve, reject) => {
      let chunks: Buffer[] = [];
      let size = 0;
      // What comes after a refusal is still read, and not kept.
      const fail = (error: MatrixError): void => {
        size = -Infinity;
        chunks = [];
        this.#release();
        this.#bodyReading = undefined;
        reject(error);
      };
      this.#bodyReading = { sinceMs: this.startedMs, fail };
      this.#readPieces((piece) => {
        size += piece.length;
        if (size > limitBytes) fail(tooLarge());
        else if (size > 0) {
          if (this.#hold(piece.length)) chunks.push(piece);
          else fail(MatrixError.limitExceeded(retryBodyMs));
        }
      });
      raw.on('end', () => {
        if (size > 0) this.rawBody = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, size);
        chunks = [];
        this.#bodyReading = undefined;
        resolve();
      });
      raw.on('close', () => {
        if (this.#bodyReading !== undefined) fail(MatrixError.bodyCutOff());
      });
    });
    return coding === 'gzip' ? reading.then(() => this.#inflate(limitBytes, tooLarge)) : reading;
  }

  /**
   * Reads the body piece by piece. The next piece comes out of the connection when the one before was taken, and in a turn of the event
   * loop no more are taken than some: where the body flowed, a turn would bring as much as a thousand connections have sent.
   */
  #readPieces(take: (piece: Buffer) => void): void {
    const { raw } = this;
    let isWaiting = false;
    const read = (): void => {
      isWaiting = false;
      const piece = raw.read() as Buffer | null;
      if (piece !== null) take(piece);
    };
    raw.on('readable', () => {
      if (isWaiting) return;
      isWaiting = true;
      this.store.pieces.add(read);
    });
  }

  /** Reads what nobody has asked for of the body, and keeps none of it. To be called before the answer is written. */
  discardBody(): void {
    // Somebody reads it already.
    if (this.raw.readableFlowing !== null) return;
    // What nothing has begun to read when the answer is out the runtime lets go by, as fast as it comes.
    this.raw.read();
    this.#readPieces(() => undefined);
  }

  /** Puts what is packed in {@link rawBody} in its place. */
  #inflate(limitBytes: number, tooLarge: () => MatrixError): Promise<void> {
    const packed = this.rawBody;
    if (packed === undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      gunzip(packed, { maxOutputLength: limitBytes }, (error: NodeJS.ErrnoException | null, plain) => {
        if (error !== null)
          return reject(
            error.code === 'ERR_BUFFER_TOO_LARGE'
              ? tooLarge()
              : MatrixError.notJson('The body is not the gzip that its headers promise'),
          );
        if (!this.#hold(plain.length)) return reject(MatrixError.limitExceeded(retryBodyMs));
        this.rawBody = plain;
        resolve();
      });
    });
  }

  /** Gives up on a buffered body that takes longer than two minutes. To be called now and then. */
  checkBody(nowMs: number): void {
    const reading = this.#bodyReading;
    if (reading !== undefined && nowMs - reading.sinceMs > bodyTimeoutMs) {
      reading.fail(MatrixError.bodyTooSlow());
    }
  }
}
