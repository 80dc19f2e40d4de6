import { MatrixError } from '@rookery/matrix-types';

/** Lets a bounded number of tasks run at once, and a bounded number wait, in order of arrival. */
export class Turns {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(
    private readonly maxRunning: number,
    private readonly maxWaiting: number,
  ) {}

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many wait; else what the task throws */
  async take<T>(task: () => Promise<T>): Promise<T> {
    if (this.#running < this.maxRunning) this.#running++;
    else {
      if (this.#waiting.length >= this.maxWaiting) throw MatrixError.limitExceeded(10_000);
      // Whoever ends gives the place on.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await task();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}
