import type { Clock, Timer } from '../clock.js';

/** How long is waited before something is tried again, milliseconds: twice as long after each failure. */
export interface RetryPauses {
  readonly firstMs: number;
  readonly longestMs: number;
}

interface Failed {
  readonly failures: number;
  readonly timer: Timer;
}

/** What failed is tried again, by key: after pauses that grow, until it succeeds. In memory: whatever waits must be found again after a start. */
export class KeyedRetries {
  readonly #failed = new Map<string, Failed>();
  #isStopped = false;

  constructor(
    private readonly clock: Clock,
    private readonly pauses: RetryPauses,
  ) {}

  /** It failed: calls `again` later, once, in place of what was to be called before. @param again must not throw */
  later(key: string, again: () => void): void {
    if (this.#isStopped) return;
    const before = this.#failed.get(key);
    before?.timer.cancel();
    const { firstMs, longestMs } = this.pauses;
    const failures = before?.failures ?? 0;
    const timer = this.clock.after(Math.min(firstMs * 2 ** Math.min(failures, 30), longestMs), again);
    this.#failed.set(key, { failures: failures + 1, timer });
  }

  /** It has succeeded, or is not wanted any more. */
  forget(key: string): void {
    this.#failed.get(key)?.timer.cancel();
    this.#failed.delete(key);
  }

  /** Nothing is tried any more. */
  stop(): void {
    this.#isStopped = true;
    for (const { timer } of this.#failed.values()) timer.cancel();
  }
}
