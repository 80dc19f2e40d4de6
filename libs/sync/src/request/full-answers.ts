import type { Clock } from '@rookery/platform';

/** What one such answer holds while it is written is many times an ordinary one; the processor writes one at a time anyway. */
const maxAtOnce = 2;
/** Reads that hang must not hold up everybody behind them for good. */
const maxWaitMs = 10_000;

/**
 * Lets answers that tell everything be written a few at a time, in order of arrival: when all clients come back at once, the
 * first ones get theirs while the others wait, rather than all of them being half done in memory.
 */
export class FullAnswers {
  #running = 0;
  readonly #waiting = new Set<() => void>();

  constructor(private readonly clock: Clock) {}

  /** Runs `write` when it is its turn, or when it has waited for ten seconds. */
  async run<T>(write: () => Promise<T>): Promise<T> {
    if (this.#running < maxAtOnce) this.#running++;
    else await this.#turn();
    try {
      return await write();
    } finally {
      this.#running--;
      const [next] = this.#waiting;
      if (this.#running < maxAtOnce) next?.();
    }
  }

  #turn(): Promise<void> {
    return new Promise((resolve) => {
      const begin = (): void => {
        late.cancel();
        this.#waiting.delete(begin);
        this.#running++;
        resolve();
      };
      const late = this.clock.after(maxWaitMs, begin);
      this.#waiting.add(begin);
    });
  }
}
