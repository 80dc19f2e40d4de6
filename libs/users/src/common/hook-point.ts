import type { Tx } from '@rookery/database';

/** One subscriber of a {@link HookPoint}: any of the three phases. */
export interface Hook<Event> {
  /** Before the transaction: reads, and may refuse by throwing a MatrixError. */
  prepare?(event: Event): Promise<void>;
  /** In the transaction of the change: writes only; throwing undoes the change. May run more than once. */
  inTransaction?(tx: Tx, event: Event): Promise<void>;
  /** Once the change is durable. Failures are reported and change nothing. */
  afterCommit?(event: Event): Promise<void>;
}

/** A place where higher layers attach to what this lib does. Hooks run in order of subscription. */
export class HookPoint<Event> {
  readonly #hooks: Hook<Event>[] = [];

  /** @param report told of each failure after a commit, with the name of the place */
  constructor(
    readonly name: string,
    private readonly report: (name: string, error: unknown) => void,
  ) {}

  subscribe(hook: Hook<Event>): void {
    this.#hooks.push(hook);
  }

  async prepare(event: Event): Promise<void> {
    for (const hook of this.#hooks) await hook.prepare?.(event);
  }

  async inTransaction(tx: Tx, event: Event): Promise<void> {
    for (const hook of this.#hooks) await hook.inTransaction?.(tx, event);
  }

  /** Runs every hook, whatever becomes of the others. @returns whether all did their work */
  async afterCommit(event: Event): Promise<boolean> {
    let sound = true;
    for (const hook of this.#hooks) {
      try {
        await hook.afterCommit?.(event);
      } catch (error) {
        sound = false;
        this.report(this.name, error);
      }
    }
    return sound;
  }
}
