import type { Clock, Logger } from '@rookery/platform';

/** Everything that ends with a module: its timers, jobs and what it wants to be called for. */
export class ModuleScope {
  readonly #stopped = new AbortController();
  readonly #endings = new Set<() => Promise<void> | void>();

  constructor(
    readonly module: string,
    private readonly clock: Clock,
    readonly log: Logger,
  ) {}

  get signal(): AbortSignal {
    return this.#stopped.signal;
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
      await fn();
    } catch (error) {
      this.log.error('A background task of a module failed', { module: this.module, description, err: error });
    }
  }

  /** Ends everything, the latest first; each ending has five seconds. */
  async stop(): Promise<void> {
    if (this.signal.aborted) return;
    this.#stopped.abort();
    for (const ending of [...this.#endings].reverse()) {
      const enough = new AbortController();
      const patience = this.clock.sleep(5_000, enough.signal).then(() => {
        if (!enough.signal.aborted) this.log.warn('A module takes too long to stop', { module: this.module });
      });
      await Promise.race([this.run('onStop', ending), patience]);
      enough.abort();
    }
  }
}
