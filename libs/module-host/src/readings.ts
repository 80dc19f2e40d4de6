import type { AllCallbacks, EventAllowed, NamesOfKind } from '@rookery/module-api';
import { isJsonObject } from '@rookery/matrix-types';
import { type GateAnswer, PASS, providedAnswers, readRefusal, type RefusalDetails, refusalOfError } from './answers.js';
import type { EndedCall, Reading } from './calls.js';
import { DraftForModules, plainCopy } from './isolation.js';
import type { Handler } from './registry.js';
import { ALLOWED, type GateVerdict, type Refused, type TransformVerdict } from './verdict.js';
import type { ModuleWatch } from './watch.js';

/** The first answer to a question, and whose it is. */
export interface Found {
  readonly handler: Handler;
  readonly answer: unknown;
}

/** The client learns that something broke, not what: names and reasons are in the log. */
function failure(handler: Handler): Refused {
  return {
    allowed: false,
    effect: 'refuse',
    status: 500,
    errcode: 'M_UNKNOWN',
    message: 'A module of this server failed',
    extra: {},
    module: handler.module,
    failed: true,
  };
}

/** What becomes of a question whose module failed. */
const failed = (handler: Handler): Refused | undefined => (handler.onError === 'deny' ? failure(handler) : undefined);

/** What reading an answer gives; `undefined` when a getter or a proxy of the module throws, or it is no data. */
function attempt<A, T>(read: (given: A) => T, given: A): T | undefined {
  try {
    return read(given);
  } catch {
    return undefined;
  }
}

/** What all readings have in common. */
abstract class ReadingWith {
  constructor(protected readonly watch: ModuleWatch) {}

  /** An answer that was understood, and is no refusal. */
  protected passed({ handler, startedAtMs }: EndedCall): undefined {
    this.watch.done(handler, 'ok', startedAtMs);
  }

  protected refused({ handler, startedAtMs }: EndedCall, details: RefusalDetails): Refused {
    this.watch.done(handler, 'refused', startedAtMs);
    return { allowed: false, ...details, module: handler.module, failed: false };
  }

  /** An answer that means nothing. */
  protected invalid({ handler, answer, startedAtMs }: EndedCall, expected: string): Refused | undefined {
    this.watch.invalid(handler, answer, expected, startedAtMs);
    return failed(handler);
  }

  /** No answer. A `MatrixError` is a refusal, or a failure when its status is the server's fault. */
  protected noAnswer(call: EndedCall): Refused | undefined {
    const { handler, error, startedAtMs } = call;
    if (!error) return failed(handler);
    const refusal = attempt(refusalOfError, error);
    if (refusal) return this.refused(call, refusal);
    this.watch.broken(handler, error, startedAtMs);
    return failed(handler);
  }
}

const unreadable: GateAnswer = Object.freeze({ kind: 'invalid', expected: 'a value that can be read' });

/** The first refusal, or any other answer than "allow", is the verdict. */
export class GateReading extends ReadingWith implements Reading<GateVerdict> {
  readonly isIndependent = true;

  constructor(
    watch: ModuleWatch,
    private readonly meaning: (answer: unknown) => GateAnswer,
  ) {
    super(watch);
  }

  read(call: EndedCall): GateVerdict | undefined {
    if (call.ending !== 'answer') return this.noAnswer(call);
    let read = unreadable;
    try {
      read = this.meaning(call.answer);
    } catch {
      // A getter or a proxy of the module threw.
    }
    if (read === PASS) return this.passed(call);
    if (read.deprecated !== undefined) this.watch.deprecated(call.handler, read.deprecated);
    if (read.kind === 'invalid') return this.invalid(call, read.expected);
    if (read.kind === 'refuse') return this.refused(call, read.refusal);
    this.passed(call);
    return read.kind === 'shadowBan' ? { allowed: true, shadowBan: true } : undefined;
  }

  end(): GateVerdict {
    return ALLOWED;
  }
}

/** What each transform hands on. */
export interface TransformValues {
  checkEventAllowed: Parameters<AllCallbacks['checkEventAllowed']>[0];
  onCreateRoom: Readonly<Record<string, unknown>>;
}

/** Which argument a transform changes, and what it becomes. */
export interface TransformStep {
  readonly argument: number;
  /** The new value, a refusal, or `undefined` for rubbish. */
  readonly apply: (value: unknown, answer: unknown) => { readonly value: unknown } | RefusalDetails | undefined;
  readonly expected: string;
}

export const transformSteps: Readonly<Record<NamesOfKind<'transform'>, TransformStep>> = {
  checkEventAllowed: {
    argument: 0,
    expected: 'true, false, { allowed: true, replacement: { content } } for a local event, or { allowed: false }',
    apply(value, answer) {
      if (answer === true) return { value };
      if (answer === false) return readRefusal({});
      if (!isJsonObject(answer)) return undefined;
      const given = plainCopy(answer) as Exclude<EventAllowed, boolean>;
      if (!given.allowed) return given.allowed === false ? readRefusal(given) : undefined;
      if (given.allowed !== true) return undefined;
      if (given.replacement === undefined) return { value };
      const draft = value as TransformValues['checkEventAllowed'];
      if (draft.eventId !== undefined || !isJsonObject(given.replacement?.content)) return undefined;
      return { value: new DraftForModules(draft, given.replacement.content) };
    },
  },
  onCreateRoom: {
    argument: 1,
    expected: 'a replacement for the request, or nothing',
    apply(value, answer) {
      if (answer == null) return { value };
      return isJsonObject(answer) ? { value: plainCopy(answer) } : undefined;
    },
  },
};

/** Each module is given what the one before made of the value. */
export class TransformReading extends ReadingWith implements Reading<TransformVerdict<unknown>> {
  constructor(
    watch: ModuleWatch,
    private readonly step: TransformStep,
  ) {
    super(watch);
  }

  read(call: EndedCall, given: unknown[]): Refused | undefined {
    if (call.ending !== 'answer') return this.noAnswer(call);
    const { apply, argument, expected } = this.step;
    const { answer } = call;
    const next = attempt((value) => apply(value, answer), given[argument]);
    if (next === undefined) return this.invalid(call, expected);
    if (!('value' in next)) return this.refused(call, next);
    this.passed(call);
    given[argument] = next.value;
    return undefined;
  }

  end(given: readonly unknown[]): TransformVerdict<unknown> {
    return { allowed: true, value: given[this.step.argument] };
  }
}

/** The first answer wins; none is `undefined`. */
export class ProvideReading extends ReadingWith implements Reading<Found | Refused | undefined> {
  read(call: EndedCall): Found | Refused | undefined {
    const { handler, startedAtMs } = call;
    if (call.ending !== 'answer') return this.noAnswer(call);
    if (call.answer == null) {
      this.watch.done(handler, 'ok', startedAtMs);
      return undefined;
    }
    const { read, expected } = providedAnswers[handler.callback as NamesOfKind<'provide'>];
    const answer = attempt(read, call.answer);
    if (answer === undefined) return this.invalid(call, expected);
    this.watch.done(handler, 'ok', startedAtMs);
    return { handler, answer };
  }

  end(): undefined {
    return undefined;
  }
}

/** Every answer is taken; all of them taken is `undefined`. */
export class MergeReading extends ReadingWith implements Reading<Refused | undefined> {
  /** @param take whether it could make something of an answer */
  constructor(
    watch: ModuleWatch,
    private readonly expected: string,
    private readonly take: (answer: unknown) => boolean,
  ) {
    super(watch);
  }

  read(call: EndedCall): Refused | undefined {
    const { handler, error, startedAtMs } = call;
    if (call.ending === 'answer') {
      if (!attempt(this.take, call.answer)) return this.invalid(call, this.expected);
      this.watch.done(handler, 'ok', startedAtMs);
      return undefined;
    }
    if (error) this.watch.broken(handler, error, startedAtMs);
    return failed(handler);
  }

  end(): undefined {
    return undefined;
  }
}

/** There is nothing to be said to news. */
export class NewsReading extends ReadingWith implements Reading<void> {
  read({ handler, ending, error, startedAtMs }: EndedCall): undefined {
    if (error) this.watch.broken(handler, error, startedAtMs);
    else if (ending === 'answer') this.watch.done(handler, 'ok', startedAtMs);
  }

  end(): undefined {
    return undefined;
  }
}
