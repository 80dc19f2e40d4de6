import { QueueFullError, type WaitingLimits } from './semaphore.js';

/** Runs work of one key one piece after the other, in the order in which it came, and work of different keys side by side. */
export class KeyedMutex {
  readonly #maxWaiting: number;
  readonly #refuse: () => Error;
  readonly #waiting = new Map<string, (() => Promise<void>)[]>();

  /** @param limits for each key */
  constructor(limits: WaitingLimits = {}) {
    this.#maxWaiting = limits.maxWaiting ?? Infinity;
    this.#refuse = limits.refuse ?? (() => new QueueFullError());
  }

  /** Keys with work that runs or waits. */
  get busyKeys(): number {
    return this.#waiting.size;
  }

  /** Whether work of a key runs or waits. */
  isBusy(key: string): boolean {
    return this.#waiting.has(key);
  }

  /** Pieces of work of a key that wait, without the one that runs. */
  waiting(key: string): number {
    return this.#waiting.get(key)?.length ?? 0;
  }

  /**
   * Settles as the work does. Work must not run another piece of its own key and await it: that would wait for itself.
   * @throws what `refuse` makes, when too many wait already
   */
  run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const queue = this.#waiting.get(key);
    if (queue === undefined) {
      this.#waiting.set(key, []);
      return this.#first(key, work);
    }
    if (queue.length >= this.#maxWaiting) return Promise.reject(this.#refuse());
    return new Promise<T>((resolve, reject) => {
      queue.push(async () => {
        try {
          resolve(await work());
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  /** Resolves when no work runs or waits. */
  async settled(): Promise<void> {
    while (this.#waiting.size > 0)
      await Promise.all(
        [...this.#waiting.values()].map((queue) => new Promise<void>((done) => queue.push(async () => done()))),
      );
  }

  async #first<T>(key: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      void this.#drain(key);
    }
  }

  async #drain(key: string): Promise<void> {
    const queue = this.#waiting.get(key) ?? [];
    for (let next = queue.shift(); next; next = queue.shift()) await next();
    this.#waiting.delete(key);
  }
}
