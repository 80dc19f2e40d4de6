import { MatrixError } from '@rookery/matrix-types';
import type { LogFields } from '@rookery/platform';
import { Deadlines } from './deadlines.js';
import type { Handler } from './registry.js';
import type { CallOutcome, HostServices } from './services.js';

/** A callback that keeps the thread longer is named in the log. */
export const blockingMs = 100;
/** So many time-outs in a row and the callback counts as failed for a while, without being asked. */
const maxTimeouts = 5;
const suspensionMs = 30_000;
const logPauseMs = 10_000;

/** Keeps the books on modules: names module and callback in logs and metrics when something goes wrong. */
export class ModuleWatch {
  readonly deadlines: Deadlines;
  /** Whether any call ever ran out of time. As long as none has, nobody needs to look at the health of a callback. */
  anyHung = false;

  constructor(readonly services: HostServices) {
    this.deadlines = new Deadlines(services.clock);
  }

  /** To be told of a callback that kept the thread longer than {@link blockingMs}. */
  blocked(handler: Handler, blockedMs: number): void {
    const fields = { blockedMs: Math.round(blockedMs) };
    this.#report(handler, 'warn', 'A module kept the whole process from working', fields);
  }

  /** To be told of a callback that is not asked for now. */
  suspended(handler: Handler, startedAtMs: number): void {
    const message = 'A module is not asked for a while: it hung several times in a row';
    this.#failed(handler, 'suspended', startedAtMs, message);
  }

  /** To be told of what a callback threw. Gives back a `MatrixError`, thrown on purpose; anything else is a failure. */
  caught(handler: Handler, startedAtMs: number, error: unknown): MatrixError | undefined {
    if (isMatrixError(error)) return error;
    this.#failed(handler, 'error', startedAtMs, 'A module failed', { err: readableError(error) });
    return undefined;
  }

  /** To be told once the answer was understood. */
  done(handler: Handler, outcome: 'ok' | 'refused', startedAtMs: number): void {
    const { clock, observe } = this.services;
    if (observe) observe(handler.module, handler.callback, outcome, clock.monotonicMs() - startedAtMs);
  }

  /** To be told of an answer that cannot be understood. */
  invalid(handler: Handler, answer: unknown, expected: string, startedAtMs: number): void {
    this.#failed(handler, 'invalid', startedAtMs, 'A module gave an answer that means nothing', {
      answer: describe(answer),
      expected,
    });
  }

  /** To be told of a `MatrixError` that is no refusal: one with a status outside 400 to 499. */
  broken(handler: Handler, error: MatrixError, startedAtMs: number): void {
    this.#failed(handler, 'error', startedAtMs, 'A module failed', { err: readableError(error) });
  }

  /** To be told of an answer in a deprecated form. */
  deprecated(handler: Handler, advice: string): void {
    this.#report(handler, 'warn', 'A module answered in a deprecated form', { advice });
  }

  /** To be told of a callback that used up its time. */
  timedOut(handler: Handler, startedAtMs: number): void {
    const { health } = handler;
    this.anyHung = true;
    health.timeouts += 1;
    if (health.timeouts >= maxTimeouts) {
      health.timeouts = 0;
      health.suspendedUntilMs = this.services.clock.monotonicMs() + suspensionMs;
    }
    this.#failed(handler, 'timeout', startedAtMs, 'A module did not answer in time', {
      timeLimitMs: handler.timeLimitMs,
    });
  }

  #failed(handler: Handler, outcome: CallOutcome, startedAtMs: number, message: string, fields?: LogFields): void {
    const durationMs = this.services.clock.monotonicMs() - startedAtMs;
    this.services.observe?.(handler.module, handler.callback, outcome, durationMs);
    this.#report(handler, 'error', message, fields);
  }

  #report(handler: Handler, level: 'warn' | 'error', message: string, fields?: LogFields): void {
    const { health } = handler;
    const nowMs = this.services.clock.monotonicMs();
    if (nowMs < health.logNextAtMs) {
      health.unlogged += 1;
      return;
    }
    const unlogged = health.unlogged;
    health.unlogged = 0;
    health.logNextAtMs = nowMs + logPauseMs;
    this.services.log[level](message, {
      module: handler.module,
      callback: handler.callback,
      ...fields,
      ...(unlogged === 0 ? {} : { alsoUnlogged: unlogged }),
    });
  }
}

/** Whether something that a module threw is a `MatrixError`; not, when looking at it fails. */
function isMatrixError(error: unknown): error is MatrixError {
  try {
    return MatrixError.is(error);
  } catch {
    return false;
  }
}

/** What a module threw as an error that the log can write, whatever its properties do. */
export function readableError(error: unknown): Error {
  try {
    if (!(error instanceof Error)) return new Error(`It threw ${describe(error)}`);
    const copy = new Error(String(error.message).slice(0, 1_000));
    copy.name = String(error.name).slice(0, 100);
    copy.stack = String(error.stack).slice(0, 8_000);
    return copy;
  } catch {
    return new Error('It threw something that cannot be read');
  }
}

function describe(answer: unknown): string {
  if (typeof answer === 'string') return JSON.stringify(answer.slice(0, 100));
  if (typeof answer === 'number' || typeof answer === 'boolean' || answer == null) return String(answer);
  try {
    return Array.isArray(answer) ? 'a list' : `a value of type ${typeof answer}`;
  } catch {
    return 'a value that cannot be read';
  }
}
