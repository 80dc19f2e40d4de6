import type { Clock, Logger } from '@rookery/platform';
import { type Owner, runAs } from './owner.js';

/** How many endings of a module a stop or a reload waits for in vain. */
const maxLateEndings = 2;

/** Everything that ends with a module: its timers, jobs and what it wants to be called for. */
export class ModuleScope {
  readonly #stopped = new AbortController();
  readonly #endings = new Set<() => Promise<void> | void>();
  /** What waits for the module to be in force; `undefined` once it is. */
  #beginnings: Set<() => void> | undefined = new Set();

  constructor(
    readonly owner: Owner,
    private readonly clock: Clock,
    readonly log: Logger,
  ) {}

  /** Name of the module. */
  get module(): string {
    return this.owner.name;
  }

  get signal(): AbortSignal {
    return this.#stopped.signal;
  }

  /**
   * Runs `fn` once the module is in force: at once when it is, never when it does not come to that. The result takes it off.
   */
  onceInForce(fn: () => void): () => void {
    if (this.signal.aborted) return () => {};
    const beginnings = this.#beginnings;
    if (beginnings) beginnings.add(fn);
    else fn();
    return () => beginnings?.delete(fn);
  }

  /** The module is in force from now on. */
  begin(): void {
    if (this.signal.aborted) return;
    const beginnings = this.#beginnings ?? [];
    this.#beginnings = undefined;
    for (const fn of beginnings) fn();
  }

  /** Adds something to end; at once when the module has stopped already. The result takes it off again. */
  add(ending: () => Promise<void> | void): () => void {
    if (this.signal.aborted) void this.run('onStop', ending);
    else this.#endings.add(ending);
    return () => this.#endings.delete(ending);
  }

  /** Runs the module's code behind everybody's back: a failure is logged. Never rejects. */
  async run(description: string, fn: () => Promise<void> | void): Promise<void> {
    try {
      await runAs(this.owner, fn);
    } catch (error) {
      this.log.error('A background task of a module failed', { module: this.module, description, err: error });
    }
  }

  /** Ends everything, the latest first. Each ending has five seconds; after the second that needs more, nobody waits. */
  async stop(): Promise<void> {
    if (this.signal.aborted) return;
    this.#stopped.abort();
    let late = 0;
    for (const ending of [...this.#endings].reverse()) {
      if (late >= maxLateEndings) {
        void this.run('onStop', ending);
        continue;
      }
      const enough = new AbortController();
      const patience = this.clock.sleep(5_000, enough.signal).then(() => {
        if (enough.signal.aborted) return;
        late++;
        this.log.warn('A module takes too long to stop', { module: this.module });
      });
      await Promise.race([this.run('onStop', ending), patience]);
      enough.abort();
    }
  }
}
