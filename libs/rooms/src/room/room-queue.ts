import { MatrixError } from '@rookery/matrix-types';

/** How many tasks may wait for one room before senders are told to slow down. */
const maxWaiting = 2_000;

/**
 * Work by key: tasks of one key are handed over in order and in batches, keys run in parallel. What arrives while a batch
 * is being worked on makes the next batch, so that many writers of one room share a commit.
 */
export class BatchQueue<Task> {
  readonly #waiting = new Map<string, Task[]>();

  /**
   * @param work does a batch; must settle every task itself and never reject
   * @param maxBatch tasks handed over at a time
   */
  constructor(
    private readonly work: (key: string, tasks: readonly Task[]) => Promise<void>,
    private readonly maxBatch: number,
  ) {}

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many tasks of this key wait already */
  push(key: string, task: Task): void {
    const waiting = this.#waiting.get(key);
    if (waiting) {
      if (waiting.length >= maxWaiting) throw MatrixError.limitExceeded(1000);
      waiting.push(task);
      return;
    }
    const fresh = [task];
    this.#waiting.set(key, fresh);
    void this.#run(key, fresh);
  }

  /** Keys that are being worked on. */
  get size(): number {
    return this.#waiting.size;
  }

  async #run(key: string, waiting: Task[]): Promise<void> {
    // One turn of the loop first: what is sent in the same tick goes into the same batch.
    await Promise.resolve();
    while (waiting.length > 0) await this.work(key, waiting.splice(0, this.maxBatch));
    this.#waiting.delete(key);
  }
}
