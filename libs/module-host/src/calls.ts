import type { MatrixError } from '@rookery/matrix-types';
import { LogContext, type LogContextFields } from '@rookery/platform';
import type { ModuleWatch } from './watch.js';
import { Wait } from './deadlines.js';
import type { Handler } from './registry.js';

/**
 * A call that is over. Used again for the next one: what is of interest is to be read at once.
 */
export interface EndedCall {
  readonly handler: Handler;
  readonly startedAtMs: number;
  /** An answer not yet looked at, a `MatrixError` thrown on purpose, or a failure, which was reported already. */
  readonly ending: 'answer' | 'thrown' | 'failed';
  /** The answer. */
  readonly answer: unknown;
  /** What was thrown, if it was a `MatrixError`. */
  readonly error: MatrixError | undefined;
}

/** Reads what modules say to one question. */
export interface Reading<T> {
  /** What comes of the question after this call; `undefined` to ask the next module. May change `given`, for the next. */
  read(call: EndedCall, given: unknown[]): T | undefined;
  /** What comes of it when every module was asked. */
  end(given: readonly unknown[]): T;
}

/** Who made a call. */
interface Caller {
  /** Told of each call that did not end at once. */
  ended(call: Call): void;
}

const promiseThen = Promise.prototype.then;

const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';

/**
 * Calls one callback after the other, each within its time. One object, two closures and no timer serve all calls of a
 * question: what they cost is paid for each event that is sent, by each module.
 */
class Call extends Wait implements EndedCall {
  handler!: Handler;
  startedAtMs = 0;
  ending: EndedCall['ending'] = 'failed';
  answer: unknown;
  error: MatrixError | undefined;
  /** It ran out of time, and may still hear from that module: not to be used again. */
  spent = false;
  /** Where the question belongs to. A timer knows nothing of it. */
  readonly #context: LogContextFields | undefined = LogContext.current();
  #onAnswer: ((answer: unknown) => void) | undefined;
  #onFailure: ((error: unknown) => void) | undefined;

  constructor(
    private readonly watch: ModuleWatch,
    private readonly caller: Caller,
  ) {
    super();
  }

  /** Calls; gives back whether the call is over. If not, the caller is told when it is. Never throws. */
  begin(handler: Handler, args: readonly unknown[]): boolean {
    const { watch } = this;
    const { clock } = watch.services;
    this.handler = handler;
    this.startedAtMs = clock.monotonicMs();
    this.answer = this.error = undefined;
    if (handler.health.suspendedUntilMs > this.startedAtMs) {
      watch.suspended(handler, this.startedAtMs);
      this.ending = 'failed';
      return true;
    }
    try {
      const answer = handler.call(...args);
      const nowMs = clock.monotonicMs();
      watch.noteBlocking(handler, nowMs - this.startedAtMs);
      if (!isThenable(answer)) {
        this.#answer(answer);
        return true;
      }
      this.#onAnswer ??= (given) => {
        if (this.#isStale()) return;
        this.#answer(given);
        this.caller.ended(this);
      };
      this.#onFailure ??= (error) => {
        if (this.#isStale()) return;
        this.#fail(error);
        this.caller.ended(this);
      };
      // Not the promise's own `then`, which may be the module's and call back twice. A thenable that gives another one is
      // waited for until it gives something else.
      void promiseThen.call(Promise.resolve(answer), this.#onAnswer, this.#onFailure);
      watch.deadlines.begin(this, handler.timeLimitMs, nowMs);
      return false;
    } catch (error) {
      this.#fail(error);
      return true;
    }
  }

  override late(): void {
    this.spent = true;
    const tell = (): void => {
      this.watch.timedOut(this.handler, this.startedAtMs);
      this.ending = 'failed';
      this.caller.ended(this);
    };
    if (this.#context) LogContext.run(this.#context, tell);
    else tell();
  }

  #isStale(): boolean {
    if (!this.spent) this.watch.deadlines.end(this);
    return this.spent;
  }

  #answer(answer: unknown): void {
    this.handler.health.timeouts = 0;
    this.ending = 'answer';
    this.answer = answer;
  }

  #fail(error: unknown): void {
    this.error = this.watch.caught(this.handler, this.startedAtMs, error);
    this.ending = this.error ? 'thrown' : 'failed';
  }
}

/** Asks modules in their order until one says what comes of the question. Never rejects because of a module. */
export class InTurn<T> implements Caller {
  #asked = 0;

  private constructor(
    private readonly watch: ModuleWatch,
    private readonly handlers: readonly Handler[],
    private readonly given: unknown[],
    private readonly reading: Reading<T>,
    private readonly resolve: (value: T) => void,
    private readonly reject: (error: unknown) => void,
  ) {}

  static ask<T>(watch: ModuleWatch, handlers: readonly Handler[], given: unknown[], reading: Reading<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const question = new InTurn(watch, handlers, given, reading, resolve, reject);
      question.#goOn(new Call(watch, question));
    });
  }

  ended(call: Call): void {
    try {
      if (!this.#isDecided(call)) this.#goOn(call.spent ? new Call(this.watch, this) : call);
    } catch (error) {
      this.reject(error);
    }
  }

  #goOn(call: Call): void {
    for (let next = this.handlers[this.#asked]; next; next = this.handlers[this.#asked]) {
      if (!call.begin(next, this.given) || this.#isDecided(call)) return;
    }
    this.resolve(this.reading.end(this.given));
  }

  #isDecided(call: Call): boolean {
    this.#asked++;
    const result = this.reading.read(call, this.given);
    if (result === undefined) return false;
    this.resolve(result);
    return true;
  }
}

/** Tells all modules at once. Never rejects because of a module. */
export class SideBySide implements Caller {
  #left: number;

  private constructor(
    private readonly read: (call: EndedCall) => void,
    handlers: readonly Handler[],
    private readonly resolve: () => void,
    private readonly reject: (error: unknown) => void,
  ) {
    this.#left = handlers.length;
  }

  static tell(
    watch: ModuleWatch,
    handlers: readonly Handler[],
    given: readonly unknown[],
    read: (call: EndedCall) => void,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const news = new SideBySide(read, handlers, resolve, reject);
      for (const handler of handlers) {
        const call = new Call(watch, news);
        if (call.begin(handler, given)) news.ended(call);
      }
    });
  }

  ended(call: Call): void {
    try {
      this.read(call);
    } catch (error) {
      this.reject(error);
    }
    if (--this.#left === 0) this.resolve();
  }
}
