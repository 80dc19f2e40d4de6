import { ConfigError, MatrixError, RedirectError } from '@rookery/module-api';
import type { MessagePort } from 'node:worker_threads';
import { StateForModules } from './isolation.js';
import { PollAnswer, type PollCall } from './thread-polls.js';
import { arrived, travels } from './thread-text.js';
import {
  bodyOf,
  bytesOf,
  cut,
  define,
  entriesOf,
  errorOf,
  isErrorLike,
  isResponse,
  iterable,
  later,
  type Lent,
  maxListed,
  piecesOf,
  tooMany,
} from './thread-values.js';

/**
 * How a lent function is called: its answer is waited for by a promise (`async`) or with the thread at rest (`sync`, only from a
 * module's thread), is of no interest (`post`), or is a stream that is read piece by piece (`stream`).
 */
export type CallMode = 'async' | 'sync' | 'post' | 'stream';

/** What a message is, first in each. */
const kind = { call: 0, answer: 1, thrown: 2, post: 3, free: 4, ping: 5, pong: 6, sync: 7, abort: 8 } as const;

/** Marks what is no plain data on its way; no JSON of Matrix has such a key. */
const tag = '\0';
const maxDepth = 200;
const maxLent = 100_000;
/** A call at rest ends with an error when the server has not answered by then. */
const syncLimitMs = 30_000;

/** What a peer does beside passing values. */
export interface PeerOptions {
  /** What the other side may call by name. */
  readonly named: (name: string) => Lent | undefined;
  /** Runs what the other side calls. `callId`: of that call; `cause`: of the call of ours that it came of. */
  readonly around: (callId: number, cause: number | undefined, work: () => void) => void;
  /** Goes on as what a call of the other side that came by another way asks for, until the next one, and all that comes of it does. */
  readonly enter?: (callId: number) => void;
  /** The call of the other side that code runs for now. */
  readonly cause?: () => number | undefined;
  /** Told of a call of ours before it goes out, where whoever calls does not say otherwise. */
  readonly begun?: (callId: number) => void;
  /** Whether data that come as arguments are frozen. */
  readonly freezes: boolean;
  /** Where answers to calls at rest come in, on the side that rests. */
  readonly answers?: { readonly port: MessagePort; readonly receive: (port: MessagePort) => unknown };
  /** Where answers to calls at rest go out, on the other side. */
  readonly reply?: (message: unknown) => void;
  /** Told of each message behind it. */
  readonly sent?: () => void;
}

/** What goes with one call and ends with it. */
interface Loan {
  /** Numbers of what was lent. */
  readonly ids: number[];
  /** Takes listeners off. */
  readonly ends: (() => void)[];
}

const noLoan: Loan = Object.freeze({ ids: [], ends: [] });

/** What answers a call at rest, and which. */
type AnswerAtRest = readonly [rest: number, ok: boolean, value: unknown];

interface Pending {
  readonly target: string | number;
  /** Who waits: a promise's own functions, or an answer that is looked at. */
  readonly waiter: { resolve(value: unknown): void; reject(error: unknown): void };
  readonly loan: Loan;
}

/**
 * One end of the wire between the server and the thread of a module: calls by name, functions and objects with methods as
 * arguments and results, errors as what they are. Data are copied.
 */
export class Peer {
  readonly #lent = new Map<number, unknown>();
  readonly #pending = new Map<number, Pending>();
  readonly #signals = new Map<number, AbortController>();
  /** What came from the other side as a copy, by the copy; goes back as what it was. */
  readonly #originals = new WeakMap<object, number>();
  readonly #forgotten = new FinalizationRegistry<number>((id) => this.#send([kind.free, id]));
  /** Signals that came with the call that is read now. */
  #heard: number[] = [];
  #next = 0;
  /** Numbers of our calls, which follow each other. */
  #calls = 0;
  /** Numbers of our calls at rest. */
  #rests = 0;
  /** Calls of the other side that are not answered yet. */
  #carrying = 0;
  #closed: Error | undefined;
  #onPong: () => void = () => {};

  constructor(
    private readonly port: MessagePort,
    private readonly options: PeerOptions,
  ) {}

  /** Calls of ours that are not answered yet. */
  get waiting(): number {
    return this.#pending.size;
  }

  /** What is called in these calls. */
  get called(): ReadonlySet<string | number> {
    return new Set([...this.#pending.values()].map(({ target }) => target));
  }

  /** Whether no side waits for the other. */
  get isAtRest(): boolean {
    return this.#carrying === 0 && this.#pending.size === 0;
  }

  /** Calls by name, or what was lent by its number. @param begun told the number of the call before it goes out */
  call(target: string | number, args: readonly unknown[], begun?: (callId: number) => void): Promise<unknown> {
    if (this.#closed) return Promise.reject(this.#closed);
    const callId = ++this.#calls;
    const loan: Loan = { ids: [], ends: [] };
    let message: unknown;
    try {
      message = [kind.call, callId, target, args.map((arg) => this.encode(arg, 'async', loan)), this.options.cause?.()];
    } catch (error) {
      this.#endLoan(loan);
      return Promise.reject(error as Error);
    }
    // What a module begins with a function outlives the call; what the server lends a callback does not.
    if (this.options.freezes) loan.ids.length = 0;
    (begun ?? this.options.begun)?.(callId);
    return new Promise((resolve, reject) => {
      this.#pending.set(callId, { target, waiter: { resolve, reject }, loan });
      this.#send(message);
    });
  }

  /**
   * Awaits a call that goes out by another way; what answers it is a message, or {@link settle}. Its number.
   * @throws Error once it is closed
   */
  expect(target: string, answer: PollAnswer): number {
    if (this.#closed) throw this.#closed;
    const callId = ++this.#calls;
    this.#pending.set(callId, { target, waiter: answer, loan: noLoan });
    return callId;
  }

  /** Answers a call of ours. */
  settle(callId: number, value: unknown): void {
    this.#answered(callId, (waiter) => waiter.resolve(value));
  }

  /** Carries out a call of the other side that came by another way. */
  carryOut(call: PollCall): void {
    this.#carrying++;
    // Written flat: it is most of what a judge in a thread costs, and each thread compiles it for itself.
    this.options.enter?.(call.callId);
    try {
      const value = this.#target(call.target)(...call.args());
      if (typeof value === 'object' && value !== null) void this.#passLater(call, value);
      else this.#pass(call, value);
    } catch (error) {
      this.#fail(call, error);
    }
  }

  async #passLater(call: PollCall, given: unknown): Promise<void> {
    try {
      this.#pass(call, await given);
    } catch (error) {
      this.#fail(call, error);
    }
  }

  /** @throws RangeError for what cannot travel */
  #pass(call: PollCall, value: unknown): void {
    if (!call.pass(value)) this.#tell(call, [kind.answer, call.callId, this.encode(value, modeOfResult(call.target))]);
    else this.#carrying--;
  }

  #fail(call: PollCall, error: unknown): void {
    this.#tell(call, [kind.thrown, call.callId, this.#encodeError(error)]);
  }

  #tell(call: PollCall, message: unknown): void {
    this.#carrying--;
    this.#send(message);
    call.told();
  }

  /** Calls what gives a stream, which begins once it is read. */
  callForStream(target: string | number, args: readonly unknown[]): AsyncIterable<unknown> {
    return later(() => this.call(target, args) as Promise<AsyncIterable<unknown>>);
  }

  /** Calls without an answer. @throws RangeError for what cannot travel */
  post(target: string | number, args: readonly unknown[]): void {
    if (this.#closed) return;
    const loan: Loan = { ids: [], ends: [] };
    let message: unknown;
    try {
      message = [kind.post, target, args.map((arg) => this.encode(arg, 'async', loan)), this.options.cause?.()];
    } catch (error) {
      this.#endLoan(loan);
      throw error;
    }
    this.#send(message);
  }

  /** Calls with the thread at rest until there is an answer. @throws what the call throws */
  callAtRest(target: string | number, args: readonly unknown[]): unknown {
    const { answers } = this.options;
    if (!answers) throw new Error('Only a thread of a module can rest');
    const bell = new Int32Array(new SharedArrayBuffer(4));
    const rest = ++this.#rests;
    this.#send([kind.sync, target, args.map((arg) => this.encode(arg)), bell, this.options.cause?.(), rest]);
    if (Atomics.wait(bell, 0, 0, syncLimitMs) === 'timed-out') throw new Error('The server did not answer');
    for (;;) {
      const answer = answers.receive(answers.port) as AnswerAtRest | undefined;
      if (!answer) throw new Error('The server did not answer');
      const value = this.decode(answer[2], false);
      // What answers a call that was given up lies before it, read all the same: what is lent with it goes back.
      if (answer[0] !== rest) continue;
      if (answer[1]) return value;
      throw value;
    }
  }

  /** Asks for a sign of life. */
  ping(onPong: () => void): void {
    this.#onPong = onPong;
    // Nobody is told: a thread that rests looks for messages soon enough, and is not to be woken every second.
    if (!this.#closed) this.port.postMessage([kind.ping]);
  }

  /** Nothing comes any more: what waits fails with `reason`, and so does what is called from now on. */
  close(reason: Error): void {
    if (this.#closed) return;
    this.#closed = reason;
    for (const { waiter } of this.#pending.values()) waiter.reject(reason);
    this.#pending.clear();
    for (const controller of this.#signals.values()) controller.abort(reason);
    this.#signals.clear();
    this.#lent.clear();
  }

  /** Takes a message. @throws Error for what is none */
  receive(message: unknown): void {
    if (this.#closed) return;
    const [what, first, second, third, fourth, fifth] = message as [number, ...unknown[]];
    switch (what) {
      case kind.call:
        return this.#called(first as number, second as string | number, third as unknown[], fourth as number);
      case kind.answer:
        return this.#answered(first as number, (waiter) => waiter.resolve(this.decode(second, false)));
      case kind.thrown:
        return this.#answered(first as number, (waiter) => waiter.reject(this.decode(second, false)));
      case kind.post:
        return this.options.around(0, third as number | undefined, () => {
          const args = second as unknown[];
          void Promise.resolve()
            .then(() =>
              this.#target(first as string | number)(...args.map((arg) => this.decode(arg, this.options.freezes))),
            )
            .catch(() => {});
        });
      case kind.free:
        this.#lent.delete(first as number);
        return;
      case kind.ping:
        return this.#send([kind.pong]);
      case kind.pong:
        return this.#onPong();
      case kind.sync:
        return this.#calledAtRest(
          first as string | number,
          second as unknown[],
          third as Int32Array,
          fourth as number,
          fifth as number,
        );
      case kind.abort:
        this.#signals.get(first as number)?.abort(this.decode(second, false));
        this.#signals.delete(first as number);
        return;
      default:
        throw new Error('A message of a kind that there is not');
    }
  }

  #called(callId: number, target: string | number, args: readonly unknown[], cause: number | undefined): void {
    const decoded = (): unknown[] => args.map((arg) => this.decode(arg, this.options.freezes));
    this.#carrying++;
    this.options.around(callId, cause, () => {
      void (async (): Promise<void> => {
        let message: unknown;
        const heard = (this.#heard = []);
        try {
          const call = this.#target(target);
          const value = await call(...decoded());
          message = [kind.answer, callId, this.encode(value, modeOfResult(target))];
        } catch (error) {
          message = [kind.thrown, callId, this.#encodeError(error)];
        } finally {
          this.#carrying--;
        }
        for (const id of heard) this.#signals.delete(id);
        this.#send(message);
      })();
    });
  }

  #calledAtRest(
    target: string | number,
    args: readonly unknown[],
    bell: Int32Array,
    cause: number | undefined,
    rest: number,
  ): void {
    let message: AnswerAtRest = [rest, false, this.#encodeError(new Error('It cannot be called so'))];
    this.options.around(0, cause, () => {
      try {
        const value = this.#target(target)(...args.map((arg) => this.decode(arg, this.options.freezes)));
        message = [rest, true, this.encode(value, modeOfResult(target))];
      } catch (error) {
        message = [rest, false, this.#encodeError(error)];
      }
    });
    this.options.reply?.(message);
    Atomics.store(bell, 0, 1);
    Atomics.notify(bell, 0);
  }

  #answered(callId: number, settle: (waiter: Pending['waiter']) => void): void {
    const pending = this.#pending.get(callId);
    if (!pending) return;
    this.#pending.delete(callId);
    const { waiter, loan } = pending;
    if (loan !== noLoan) this.#endLoan(loan);
    try {
      settle(waiter);
    } catch (error) {
      waiter.reject(error);
    }
  }

  #endLoan({ ids, ends }: Loan): void {
    for (const id of ids) this.#lent.delete(id);
    for (const end of ends) end();
  }

  #target(target: string | number): Lent {
    const found = typeof target === 'string' ? this.options.named(target) : this.#lent.get(target);
    if (typeof found !== 'function') throw new Error(`${String(target)} cannot be called any more`);
    return found as Lent;
  }

  #send(message: unknown): void {
    if (this.#closed) return;
    this.port.postMessage(message);
    this.options.sent?.();
  }

  #lend(value: unknown, loan?: Loan): number {
    if (this.#lent.size >= maxLent) throw new RangeError('Too many functions are in use on the other side');
    const id = ++this.#next;
    this.#lent.set(id, value);
    loan?.ids.push(id);
    return id;
  }

  /**
   * A value as it travels.
   * @param mode how functions in it are called
   * @param loan gets what is lent with it
   * @throws RangeError for what cannot travel
   */
  encode(value: unknown, mode: CallMode = 'async', loan?: Loan, depth = 0): unknown {
    if (typeof value === 'function') return { [tag]: 'f', id: this.#lend(value, loan), mode };
    if (typeof value === 'symbol') throw new RangeError('A symbol cannot leave its thread');
    if (typeof value !== 'object' || value === null) return value;
    if (depth > maxDepth) throw new RangeError('A value is too deep, or holds itself');
    const known = travels(value);
    if (known) return { [tag]: 'e', ...known };
    const part = (inner: unknown): unknown => this.encode(inner, mode, loan, depth + 1);
    if (Array.isArray(value)) return value.length > maxListed ? tooMany() : Array.from(value, part);
    if (Buffer.isBuffer(value)) return { [tag]: 'b', v: bytesOf(value) };
    if (ArrayBuffer.isView(value)) return bytesOf(value);
    if (value instanceof StateForModules) {
      const names = ['get', 'ofType', 'all'] as const;
      return Object.fromEntries(names.map((name) => [name, part(value[name].bind(value) as Lent)]));
    }
    if (value instanceof Date || value instanceof ArrayBuffer) return value;
    if (value instanceof URL) return value.href;
    if (value instanceof Map) return { [tag]: 'm', v: [...value].slice(0, maxListed).map(part) };
    if (value instanceof Set) return { [tag]: 's', v: [...value].slice(0, maxListed).map(part) };
    if (value instanceof AbortSignal) return this.#encodeSignal(value, loan);
    if (value instanceof Request) return this.#encodeRequest(value, loan);
    if (isErrorLike(value)) return this.#encodeError(value);
    if (isResponse(value)) {
      const { status, headers } = value;
      return { [tag]: 'r', status, headers: [...headers], body: value.body && this.encode(piecesOf(value)) };
    }
    if (Symbol.asyncIterator in value) {
      const iterator = (value as AsyncIterable<unknown>)[Symbol.asyncIterator]();
      const end = async (): Promise<void> => void (await iterator.return?.());
      return { [tag]: 'i', next: this.encode(() => iterator.next()), end: this.encode(end) };
    }
    if (Symbol.iterator in value) return part(entriesOf(value as Iterable<unknown>));
    const copy: Record<string, unknown> = {};
    for (const [name, inner] of Object.entries(value)) {
      // The one method of the interface that gives a stream at once.
      const streams = name === 'stream' && typeof inner === 'function' && 'sizeBytes' in value;
      define(copy, name, streams ? { [tag]: 'f', id: this.#lend(inner, loan), mode: 'stream' } : part(inner));
    }
    return Object.hasOwn(copy, tag) ? { [tag]: 'o', v: copy } : copy;
  }

  /** What {@link encode} was given, on the other side. @throws Error for what it cannot have made */
  decode(value: unknown, freeze: boolean, depth = 0): unknown {
    if (typeof value !== 'object' || value === null) return value;
    if (depth > 2 * maxDepth) throw new RangeError('A value is too deep');
    const part = (inner: unknown): unknown => this.decode(inner, freeze, depth + 1);
    if (Array.isArray(value)) {
      const list = value.map(part);
      return freeze ? Object.freeze(list) : list;
    }
    const what = (value as Record<string, unknown>)[tag];
    if (what === undefined || !Object.hasOwn(value, tag)) {
      if (ArrayBuffer.isView(value) || value instanceof Date || value instanceof ArrayBuffer) return value;
      const copy: Record<string, unknown> = {};
      for (const [name, inner] of Object.entries(value)) define(copy, name, part(inner));
      return freeze ? Object.freeze(copy) : copy;
    }
    const given = value as Record<string, unknown>;
    switch (what) {
      case 'f':
        return this.#stub(Number(given['id']), given['mode'] as CallMode);
      case 'e':
        return arrived({ text: String(given['text']), pdu: given['pdu'] as string | undefined });
      case 'm':
        return new Map(part(given['v']) as [unknown, unknown][]);
      case 'b': {
        const { buffer, byteOffset, byteLength } = given['v'] as Uint8Array;
        return Buffer.from(buffer, byteOffset, byteLength);
      }
      case 's':
        return new Set(part(given['v']) as unknown[]);
      case 'x':
        return errorOf(given, part);
      case 'a':
        return this.#decodeSignal(given);
      case 'i':
        return iterable(part(given['next']) as Lent, part(given['end']) as Lent);
      case 'q':
        return this.#decodeRequest(given, part);
      case 'Q':
        return this.#lent.get(Number(given['id'])) ?? new Request(String(given['url']));
      case 'r': {
        const headers = given['headers'] as [string, string][];
        return new Response(bodyOf(part(given['body'])), { status: Number(given['status']), headers });
      }
      case 'o':
        return part(given['v']);
      default:
        throw new Error('A value of a kind that there is not');
    }
  }

  #stub(id: number, mode: CallMode): Lent {
    const stub: Lent =
      mode === 'post'
        ? (...args) => this.post(id, args)
        : mode === 'sync'
          ? (...args) => this.callAtRest(id, args)
          : mode === 'stream'
            ? (...args) => this.callForStream(id, args)
            : (...args) => this.call(id, args);
    this.#forgotten.register(stub, id);
    return stub;
  }

  #encodeError(error: unknown): object {
    try {
      if (typeof error !== 'object' || error === null) return { [tag]: 'x', message: `It threw ${typeof error}` };
      const { message, name, stack } = error as Error;
      const shown = { [tag]: 'x', message: cut(message, 10_000), name: cut(name, 100), stack: cut(stack, 8_000) };
      if (MatrixError.is(error)) {
        const { status, errcode, extra } = error;
        return { ...shown, type: 'MatrixError', status, errcode: cut(errcode, 255), extra: this.encode(extra) };
      }
      if (RedirectError.is(error)) {
        return { ...shown, type: 'RedirectError', location: cut(error.location, 10_000), status: error.status };
      }
      if (ConfigError.is(error)) {
        const { path, others } = error;
        return { ...shown, type: 'ConfigError', path: this.encode(path), others: this.encode(others) };
      }
      const { name: itsName } = error as Error;
      return { ...shown, type: itsName };
    } catch {
      return { [tag]: 'x', message: 'It threw something that cannot be read' };
    }
  }

  #encodeSignal(signal: AbortSignal, loan?: Loan): object {
    const id = ++this.#next;
    const abort = (): void => this.#send([kind.abort, id, this.#encodeError(signal.reason)]);
    if (!signal.aborted) signal.addEventListener('abort', abort, { once: true });
    loan?.ends.push(() => signal.removeEventListener('abort', abort));
    return { [tag]: 'a', id, aborted: signal.aborted };
  }

  #decodeSignal({ id, aborted }: Record<string, unknown>): AbortSignal {
    const controller = new AbortController();
    if (aborted === true) controller.abort();
    else {
      this.#signals.set(Number(id), controller);
      this.#heard.push(Number(id));
    }
    return controller.signal;
  }

  #encodeRequest(request: Request, loan?: Loan): object {
    const original = this.#originals.get(request);
    if (original !== undefined) return { [tag]: 'Q', id: original, url: request.url };
    const { method, url, headers } = request;
    const id = this.#lend(request, loan);
    // An answer may be made of the body while it comes: that is read for longer than the call.
    return { [tag]: 'q', id, method, url, headers: [...headers], body: request.body && this.encode(piecesOf(request)) };
  }

  #decodeRequest(given: Record<string, unknown>, part: (value: unknown) => unknown): Request {
    const init = { method: String(given['method']), headers: given['headers'] as [string, string][], duplex: 'half' };
    const request = new Request(String(given['url']), { ...init, body: bodyOf(part(given['body'])) } as RequestInit);
    this.#originals.set(request, Number(given['id']));
    return request;
  }
}

/** How functions in the result of a method are called; the interface says so. */
function modeOfResult(target: string | number): CallMode {
  if (typeof target !== 'string') return 'async';
  if (target === 'api:readTemplates') return 'sync';
  return target.startsWith('api:') ? 'post' : 'async';
}
