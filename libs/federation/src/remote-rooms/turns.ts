import { MatrixError } from '@rookery/matrix-types';

/** Lets a bounded number of tasks run at once, and a bounded number wait, in order of arrival; fewer for one user. */
export class Turns {
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #byUser = new Map<string, number>();

  constructor(
    private readonly maxRunning: number,
    private readonly maxWaiting: number,
    private readonly maxPerUser: number,
  ) {}

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many wait, or too many of this user are there; else what the task throws */
  async take<T>(userId: string, task: () => Promise<T>): Promise<T> {
    const ofUser = this.#byUser.get(userId) ?? 0;
    if (ofUser >= this.maxPerUser || this.#waiting.length >= this.maxWaiting) throw MatrixError.limitExceeded(10_000);
    this.#byUser.set(userId, ofUser + 1);
    try {
      if (this.#running < this.maxRunning) this.#running++;
      // Whoever ends gives the place on.
      else await new Promise<void>((resolve) => this.#waiting.push(resolve));
      try {
        return await task();
      } finally {
        const next = this.#waiting.shift();
        if (next) next();
        else this.#running--;
      }
    } finally {
      const left = this.#byUser.get(userId)! - 1;
      if (left > 0) this.#byUser.set(userId, left);
      else this.#byUser.delete(userId);
    }
  }
}
