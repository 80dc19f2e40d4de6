import { MatrixError } from '@rookery/matrix-types';

/**
 * Lets a few expensive jobs run at a time and some wait. Password hashing shares the process's few worker threads with
 * file and name look-ups: a flood of logins must not take them all.
 */
export class WorkSlots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  /**
   * @param slots jobs that run at a time
   * @param maxWaiting jobs that may wait; more are refused
   */
  constructor(
    slots: number,
    private readonly maxWaiting: number,
  ) {
    this.#free = slots;
  }

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many wait */
  async run<T>(job: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else {
      if (this.#waiting.length >= this.maxWaiting) throw MatrixError.limitExceeded(5_000);
      // Whoever finishes hands its slot on.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await job();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
