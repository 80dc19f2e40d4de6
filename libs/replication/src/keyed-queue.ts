import { MatrixError } from '@rookery/matrix-types';

export interface KeyedQueueOptions {
  /** How many tasks of one key may wait; further ones are refused. 1,000 unless told. */
  readonly maxPerKey?: number | undefined;
}

const retryAfterMs = 2000;

/** Runs tasks of one key one after the other, in the order in which they came, and tasks of different keys side by side. */
export class KeyedQueue {
  readonly #maxPerKey: number;
  readonly #waiting = new Map<string, (() => Promise<void>)[]>();

  constructor(options: KeyedQueueOptions = {}) {
    this.#maxPerKey = options.maxPerKey ?? 1000;
  }

  /** Keys with a task that runs or waits. */
  get busyKeys(): number {
    return this.#waiting.size;
  }

  /** Tasks of a key that wait, without the one that runs. */
  waiting(key: string): number {
    return this.#waiting.get(key)?.length ?? 0;
  }

  /**
   * Settles as the task does. A task must not run another of its own key and await it: that would wait for itself.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many wait already
   */
  run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const queue = this.#waiting.get(key);
    if (queue === undefined) {
      this.#waiting.set(key, []);
      return this.#first(key, task);
    }
    if (queue.length >= this.#maxPerKey) return Promise.reject(MatrixError.limitExceeded(retryAfterMs));
    return new Promise<T>((resolve, reject) => {
      queue.push(async () => {
        try {
          resolve(await task());
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  async #first<T>(key: string, task: () => Promise<T>): Promise<T> {
    try {
      return await task();
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
