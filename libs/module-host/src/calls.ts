import type { MatrixError } from '@rookery/matrix-types';
import { LogContext, type LogContextFields } from '@rookery/platform';
import { Wait } from './deadlines.js';
import type { Handler } from './registry.js';
import { PollAnswer, together } from './thread-polls.js';
import { blockingMs, type ModuleWatch } from './watch.js';

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
  /** Whether what one module says changes nothing in what the others are asked. */
  readonly isIndependent?: boolean;
  /** What comes of the question after this call; `undefined` to ask the next module. May change `given`, for the next. */
  read(call: EndedCall, given: unknown[]): T | undefined;
  /** What comes of it when every module was asked. */
  end(given: readonly unknown[]): T;
}

const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';

/**
 * A question to modules, one after the other and each within its time. One object and one wait serve all its calls: what
 * they cost is paid for each event that is sent, by each module. Most of that code runs before it is compiled well, so what
 * each call does is written flat, and without private names, which are slow until then.
 */
class Question<T> extends Wait implements EndedCall {
  handler!: Handler;
  startedAtMs = 0;
  ending: EndedCall['ending'] = 'failed';
  answer: unknown = undefined;
  error: MatrixError | undefined = undefined;
  /** How many modules were asked. */
  private asked = 0;
  /** Counts the modules that ran out of time. Whoever waited for one of them is not to go on when it answers after all. */
  private losses = 0;
  /** What modules in threads of their own were asked before it was their turn, by their place. */
  private ahead: Map<number, unknown> | undefined = undefined;
  /** Where the question belongs to. A timer knows nothing of it. */
  private readonly context: LogContextFields | undefined = LogContext.current();

  constructor(
    private readonly watch: ModuleWatch,
    private readonly handlers: readonly Handler[],
    private readonly given: unknown[],
    private readonly reading: Reading<T>,
    private readonly resolve: (value: T) => void,
    private readonly reject: (error: unknown) => void,
  ) {
    super();
  }

  /** Asks the modules that were not asked yet. Never rejects. */
  async goOn(): Promise<void> {
    const { watch, handlers, given, losses } = this;
    const { clock } = watch.services;
    try {
      for (let handler = handlers[this.asked]; handler !== undefined; handler = handlers[this.asked]) {
        const startedAtMs = clock.monotonicMs();
        this.handler = handler;
        this.startedAtMs = startedAtMs;
        if (watch.anyHung && watch.isSuspended(handler, given, startedAtMs)) {
          watch.suspended(handler, given, startedAtMs);
          if (watch.mayProbe(handler, given, startedAtMs)) void new Probe(watch, handler, [...given]).ask();
          this.fail(undefined);
        } else {
          try {
            if (handler.isBeside && this.reading.isIndependent === true && this.ahead === undefined)
              this.askAhead(startedAtMs);
            let answer = this.ahead?.get(this.asked) ?? handler.call(...given);
            const nowMs = clock.monotonicMs();
            if (nowMs - startedAtMs > blockingMs) watch.blocked(handler, nowMs - startedAtMs);
            if (answer instanceof PollAnswer) {
              if (!answer.isThere) {
                watch.deadlines.begin(this, handler.timeLimitMs, nowMs);
                await answer.heard();
                if (this.losses !== losses) return;
              }
              answer = answer.value;
            } else if (isThenable(answer)) {
              watch.deadlines.begin(this, handler.timeLimitMs, nowMs);
              // Of a promise, its own `then` is not asked: it may be the module's, and call back twice. A thenable that
              // gives another one is waited for until it gives something else.
              answer = await answer;
              if (this.losses !== losses) return;
            }
            LogContext.spent(
              'modulesMs',
              clock.monotonicMs() - startedAtMs,
              () => `${handler!.module} ${handler!.callback}`,
            );
            if (watch.anyHung) watch.ended(handler, given);
            this.ending = 'answer';
            this.answer = answer;
            this.error = undefined;
          } catch (error) {
            if (this.losses !== losses) return;
            if (watch.anyHung) watch.ended(handler, given);
            this.fail(watch.caught(handler, startedAtMs, error));
          }
        }
        this.asked++;
        const result = this.reading.read(this, given);
        if (watch.trace !== undefined) watch.traced(this, given, result);
        if (result !== undefined) return this.decide(result);
      }
      this.decide(this.reading.end(given));
    } catch (error) {
      watch.deadlines.end(this);
      this.reject(error);
    }
  }

  /**
   * Asks the modules in threads of their own that come next all at once: ten that judge take as long as one. Their answers count
   * in their order, so one may have been asked of what another refuses.
   */
  private askAhead(nowMs: number): void {
    const { watch, handlers, given } = this;
    const ahead = (this.ahead = new Map<number, unknown>());
    together(() => {
      for (let place = this.asked; handlers[place]?.isBeside === true; place++) {
        const handler = handlers[place]!;
        if (watch.anyHung && watch.isSuspended(handler, given, nowMs)) continue;
        const answer = handler.call(...given);
        // Whose turn does not come is not listened to.
        if (isThenable(answer)) answer.then(undefined, () => {});
        ahead.set(place, answer);
      }
    });
  }

  override late(): void {
    this.losses++;
    const goOn = (): void => {
      this.watch.timedOut(this.handler, this.given, this.startedAtMs);
      this.fail(undefined);
      try {
        this.asked++;
        const result = this.reading.read(this, this.given);
        if (this.watch.trace !== undefined) this.watch.traced(this, this.given, result);
        if (result === undefined) void this.goOn();
        else this.decide(result);
      } catch (error) {
        this.reject(error);
      }
    };
    if (this.context) LogContext.run(this.context, goOn);
    else goOn();
  }

  private fail(error: MatrixError | undefined): void {
    this.ending = error ? 'thrown' : 'failed';
    this.answer = undefined;
    this.error = error;
  }

  private decide(result: T): void {
    this.watch.deadlines.end(this);
    this.resolve(result);
  }
}

/** Asks a callback that is dead for everybody with a question that was answered without it: nobody waits for what it says. */
class Probe extends Wait {
  private startedAtMs = 0;
  private isLate = false;
  private readonly context: LogContextFields | undefined = LogContext.current();

  constructor(
    private readonly watch: ModuleWatch,
    private readonly handler: Handler,
    private readonly given: readonly unknown[],
  ) {
    super();
  }

  /** Never rejects. */
  async ask(): Promise<void> {
    const { watch, handler, given } = this;
    const { clock } = watch.services;
    this.startedAtMs = clock.monotonicMs();
    try {
      const answer = handler.call(...given);
      const nowMs = clock.monotonicMs();
      if (nowMs - this.startedAtMs > blockingMs) watch.blocked(handler, nowMs - this.startedAtMs);
      if (isThenable(answer)) {
        watch.deadlines.begin(this, handler.timeLimitMs, nowMs);
        await answer;
      }
    } catch (error) {
      // Whoever fails does not hang.
      if (!this.isLate) watch.caught(handler, this.startedAtMs, error);
    }
    if (this.isLate) return;
    watch.deadlines.end(this);
    watch.ended(handler, given);
    watch.probed(handler, given);
  }

  override late(): void {
    this.isLate = true;
    const report = (): void => {
      this.watch.timedOut(this.handler, this.given, this.startedAtMs);
      this.watch.probed(this.handler, this.given);
    };
    if (this.context) LogContext.run(this.context, report);
    else report();
  }
}

/** Asks modules in their order until one says what comes of the question. Never rejects because of a module. */
export function askInTurn<T>(
  watch: ModuleWatch,
  handlers: readonly Handler[],
  given: unknown[],
  reading: Reading<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    void new Question(watch, handlers, given, reading, resolve, reject).goOn();
  });
}

/** Tells all modules at once. Resolves when all are through. Never rejects because of a module. */
export function tellSideBySide(
  watch: ModuleWatch,
  handlers: readonly Handler[],
  given: unknown[],
  reading: Reading<void>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = handlers.length;
    const through = (): void => {
      if (--left === 0) resolve();
    };
    for (const handler of handlers) void new Question(watch, [handler], given, reading, through, reject).goOn();
  });
}
