import type { CallbackContext } from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import type { LogFields } from '@rookery/platform';
import { Deadlines } from './deadlines.js';
import { type CallbackFigures, type CallOutcome, ModuleFigures } from './figures.js';
import type { Handler } from './registry.js';
import { type CallToTrace, type TracedCall, tracedCall } from './trace.js';
import type { HostServices } from './services.js';
import type { Refused } from './verdict.js';

/** A callback that keeps the thread longer is named in the log. */
export const blockingMs = 100;
/** So many time-outs in a row for one asker, and the callback counts as failed for a while, without being asked for that one. */
const maxTimeouts = 5;
const suspensionMs = 30_000;
/** So many askers in a row without an answer, for them or anybody else in between, and the callback counts as dead for everybody. */
const maxUnanswered = 5;
/** What is dead is tried with so many questions at once, and with those of whom it hung for one by one, with pauses. */
const maxProbes = 20;
const probePauseMs = 1_000;
/** So many askers are kept in mind per callback; of more, those who hung last. */
const maxAskers = 1_000;
const logPauseMs = 10_000;
/** So many faults of a callback are told apart in the log; further ones by their message alone. */
const maxFaults = 20;

/** Keeps the books on modules: names module and callback in logs and metrics when something goes wrong. */
export class ModuleWatch {
  readonly deadlines: Deadlines;
  readonly figures = new ModuleFigures();
  /** Told of every call, where somebody looks on. */
  trace: ((call: TracedCall) => void) | undefined;
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

  /**
   * Whether a callback is not to be asked now, because it hung for whoever is behind the question several times in a row, or
   * for several askers while nobody had an answer. What hangs for one is no reason to refuse the others: anybody could make
   * it hang.
   */
  isSuspended(handler: Handler, given: readonly unknown[], nowMs: number): boolean {
    const { hung } = handler.health;
    if (isDead(handler)) return true;
    return hung.size > 0 && (hung.get(askerOf(given))?.suspendedUntilMs ?? -Infinity) > nowMs;
  }

  /** To be told of a callback that is not asked for now. */
  suspended(handler: Handler, given: readonly unknown[], startedAtMs: number): void {
    const message = isDead(handler)
      ? 'A module is not waited for until it answers again: it hung for everybody'
      : 'A module is not asked for a while: it hung several times in a row';
    this.#failed(handler, 'suspended', startedAtMs, message, { askedFor: askerOf(given) });
  }

  /**
   * Whether a question that is not asked now is one to find out with, behind its answer, whether a dead callback lives again.
   * Somebody for whom it never hung comes first: those who make it hang shall not be the ones to keep it dead.
   */
  mayProbe(handler: Handler, given: readonly unknown[], nowMs: number): boolean {
    const { hung, probing, probeAgainAtMs } = handler.health;
    const asker = askerOf(given);
    if (!isDead(handler) || probing.size >= maxProbes || probing.has(asker)) return false;
    if (hung.has(asker) && (probing.size > 0 || nowMs < probeAgainAtMs)) return false;
    probing.add(asker);
    return true;
  }

  /** To be told when a try that {@link mayProbe} allowed is over, whatever came of it. */
  probed(handler: Handler, given: readonly unknown[]): void {
    const { health } = handler;
    health.probing.delete(askerOf(given));
    health.probeAgainAtMs = this.services.clock.monotonicMs() + probePauseMs;
  }

  /** To be told of a callback that came to an end in time. */
  ended(handler: Handler, given: readonly unknown[]): void {
    handler.health.unanswered.clear();
    if (handler.health.hung.size > 0) handler.health.hung.delete(askerOf(given));
  }

  /** To be told of what a callback threw. Gives back a `MatrixError`, thrown on purpose; anything else is a failure. */
  caught(handler: Handler, startedAtMs: number, error: unknown): MatrixError | undefined {
    if (isMatrixError(error)) return error;
    this.#threw(handler, error, startedAtMs);
    return undefined;
  }

  /** To be told of every call once it is clear what comes of it, where {@link trace} is set. */
  traced(call: CallToTrace, given: readonly unknown[], result: unknown): void {
    const durationMs = this.services.clock.monotonicMs() - call.startedAtMs;
    this.trace?.(tracedCall(call, given, result, askerOf(given), durationMs));
  }

  /** To be told once the answer was understood. */
  done(handler: Handler, outcome: 'ok' | 'refused', startedAtMs: number): void {
    const durationMs = this.services.clock.monotonicMs() - startedAtMs;
    this.#count(handler, outcome === 'refused' && handler.isShadow ? 'would_refuse' : outcome, durationMs);
  }

  /** To be told of what a module in shadow would have refused. */
  shadowed(handler: Handler, given: readonly unknown[], { errcode, message }: Refused): void {
    const event = given[0] as { readonly roomId?: unknown; readonly type?: unknown } | null | undefined;
    const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
    const refusal = {
      ...{ atMs: this.services.clock.nowMs(), module: handler.module, callback: handler.callback, errcode, message },
      ...{ askedFor: askerOf(given), roomId: textOf(event?.roomId), eventType: textOf(event?.type) },
    };
    this.figures.shadowed(refusal);
    const { atMs: _, ...fields } = refusal;
    this.services.log.info('A module in shadow would have refused something', fields);
  }

  #count(handler: Handler, outcome: CallOutcome, durationMs: number): CallbackFigures {
    const { health, module, callback } = handler;
    const figures = (health.figures ??= this.figures.of(module, callback));
    figures.count(outcome, durationMs);
    this.services.observe?.(module, callback, outcome, durationMs);
    return figures;
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
    this.#threw(handler, error, startedAtMs);
  }

  /** To be told of an answer in a deprecated form. */
  deprecated(handler: Handler, advice: string): void {
    this.#report(handler, 'warn', 'A module answered in a deprecated form', { advice });
  }

  /** To be told of a callback that used up its time. */
  timedOut(handler: Handler, given: readonly unknown[], startedAtMs: number): void {
    this.anyHung = true;
    const { hung, unanswered } = handler.health;
    const asker = askerOf(given);
    if (!isDead(handler)) unanswered.add(asker);
    let timeouts = (hung.get(asker)?.timeouts ?? 0) + 1;
    let suspendedUntilMs = -Infinity;
    if (timeouts >= maxTimeouts) {
      // Once that is over it is asked again; one more that hangs, and it is not.
      timeouts = maxTimeouts - 1;
      suspendedUntilMs = this.services.clock.monotonicMs() + suspensionMs;
    }
    hung.delete(asker);
    hung.set(asker, { timeouts, suspendedUntilMs });
    if (hung.size > maxAskers) hung.delete(hung.keys().next().value!);
    this.#failed(handler, 'timeout', startedAtMs, 'A module did not answer in time', {
      timeLimitMs: handler.timeLimitMs,
      askedFor: asker,
    });
  }

  #threw(handler: Handler, thrown: unknown, startedAtMs: number): void {
    const err = readableError(thrown);
    this.#failed(handler, 'error', startedAtMs, 'A module failed', { err }, faultOf(err));
  }

  #failed(
    handler: Handler,
    outcome: CallOutcome,
    startedAtMs: number,
    message: string,
    fields?: LogFields,
    fault = '',
  ): void {
    const durationMs = this.services.clock.monotonicMs() - startedAtMs;
    const { err } = (fields ?? {}) as { readonly err?: Error };
    this.#count(handler, outcome, durationMs).lastError = {
      atMs: this.services.clock.nowMs(),
      outcome,
      message: err ? `${err.name}: ${err.message}`.slice(0, 500) : message,
    };
    this.#report(handler, 'error', message, fields, fault);
  }

  /** Writes of each fault once in a while; a fault is a message and what tells two of them apart. */
  #report(handler: Handler, level: 'warn' | 'error', message: string, fields?: LogFields, fault = ''): void {
    const { logged } = handler.health;
    const nowMs = this.services.clock.monotonicMs();
    let kind = message + fault;
    if (logged.size >= maxFaults && !logged.has(kind)) kind = message;
    const before = logged.get(kind);
    if (before && nowMs < before.nextAtMs) {
      before.unlogged += 1;
      return;
    }
    const unlogged = before?.unlogged ?? 0;
    logged.set(kind, { nextAtMs: nowMs + logPauseMs, unlogged: 0 });
    this.services.log[level](message, {
      module: handler.module,
      callback: handler.callback,
      ...fields,
      ...(unlogged === 0 ? {} : { alsoUnlogged: unlogged }),
    });
  }
}

export const isDead = ({ health }: Handler): boolean => health.unanswered.size >= maxUnanswered;

/** Who is behind a question: the sender of the event that it is about, else the user, else the address or server that asks. */
function askerOf(given: readonly unknown[]): string {
  const context = given.at(-1) as Partial<CallbackContext> | undefined;
  const sender = (given[0] as { readonly sender?: unknown } | null | undefined)?.sender;
  return (typeof sender === 'string' ? sender : undefined) ?? context?.userId ?? context?.ip ?? context?.origin ?? '';
}

/** What two errors of one fault have in common: their kind and where they were thrown. Their words may differ each time. */
function faultOf({ name, message, stack = '' }: Error): string {
  const place = /^\s+at .+$/m.exec(stack)?.[0];
  return ` ${name} ${place ?? message}`;
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
