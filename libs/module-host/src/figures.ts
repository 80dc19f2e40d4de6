import type { CallbackName } from '@rookery/module-api';

/** How a call of a callback ended. */
export type CallOutcome = 'ok' | 'refused' | 'would_refuse' | 'error' | 'invalid' | 'timeout' | 'suspended';

/** Upper bounds of the times that calls are counted by, milliseconds; the last one has no bound. */
const boundsMs = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, Infinity];
/** So many judgements that did not count are kept for administrators. */
const maxShadowed = 100;

/** Something that a module in shadow would have refused. */
export interface ShadowRefusal {
  readonly atMs: number;
  readonly module: string;
  readonly callback: CallbackName;
  readonly errcode: string;
  readonly message: string;
  /** The sender of the event, or who asks otherwise. */
  readonly askedFor: string;
  readonly roomId: string | undefined;
  readonly eventType: string | undefined;
}

/** The last call of a callback that did not come to a good end. */
export interface LastError {
  readonly atMs: number;
  readonly outcome: CallOutcome;
  readonly message: string;
}

/** What is counted of one callback of one module, from the server's start on. */
export class CallbackFigures {
  readonly outcomes: Partial<Record<CallOutcome, number>> = {};
  readonly #counts = new Uint32Array(boundsMs.length);
  calls = 0;
  totalMs = 0;
  lastError: LastError | undefined;

  count(outcome: CallOutcome, durationMs: number): void {
    this.outcomes[outcome] = (this.outcomes[outcome] ?? 0) + 1;
    this.calls += 1;
    this.totalMs += durationMs;
    let at = 0;
    while (durationMs > boundsMs[at]!) at += 1;
    this.#counts[at]! += 1;
  }

  /** The bound that a share of all calls stayed within, milliseconds; `undefined` without a call. */
  quantileMs(share: number): number | undefined {
    if (this.calls === 0) return undefined;
    let seen = 0;
    const at = this.#counts.findIndex((count) => (seen += count) >= share * this.calls);
    const bound = boundsMs[at];
    // Of what took longest, no bound is known.
    return bound === Infinity ? boundsMs.at(-2) : bound;
  }
}

/** What is counted of all modules. */
export class ModuleFigures {
  readonly #callbacks = new Map<string, Map<CallbackName, CallbackFigures>>();
  #shadowed: ShadowRefusal[] = [];

  of(module: string, callback: CallbackName): CallbackFigures {
    const own = this.#callbacks.get(module) ?? new Map<CallbackName, CallbackFigures>();
    this.#callbacks.set(module, own);
    const figures = own.get(callback) ?? new CallbackFigures();
    own.set(callback, figures);
    return figures;
  }

  /** By callback. */
  ofModule(module: string): ReadonlyMap<CallbackName, CallbackFigures> {
    return this.#callbacks.get(module) ?? new Map();
  }

  shadowed(refusal: ShadowRefusal): void {
    this.#shadowed.push(refusal);
    if (this.#shadowed.length > maxShadowed) this.#shadowed = this.#shadowed.slice(-maxShadowed);
  }

  /** What a module in shadow would have refused of late, the newest first. */
  shadowedOf(module: string): readonly ShadowRefusal[] {
    return this.#shadowed.filter((refusal) => refusal.module === module).reverse();
  }

  /** Forgets modules that are not there any more. */
  keep(modules: ReadonlySet<string>): void {
    for (const module of this.#callbacks.keys()) if (!modules.has(module)) this.#callbacks.delete(module);
    this.#shadowed = this.#shadowed.filter(({ module }) => modules.has(module));
  }
}
