import type { Database } from '@rookery/database';
import { writeSuccesses } from '@rookery/federation-client';
import { type Clock, type Logger, Semaphore, type Timer } from '@rookery/platform';

const writeEveryMs = 1_000;

/**
 * Notes how far servers have got, for many of them together. What is not written when the process ends is sent again, which
 * changes nothing for those who have it.
 */
export class SuccessLog {
  #waiting = new Map<string, number>();
  #timer: Timer | undefined;
  readonly #writing = new Semaphore(1);

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {}

  /** A server has got everything up to a place. */
  note(destination: string, streamOrdering: number): void {
    if ((this.#waiting.get(destination) ?? 0) < streamOrdering) this.#waiting.set(destination, streamOrdering);
    this.#timer ??= this.clock.after(writeEveryMs, () => void this.write());
  }

  /** How far a server has got, where that is not written yet. */
  unwritten(destination: string): number {
    return this.#waiting.get(destination) ?? 0;
  }

  /** Writes what was noted. Never rejects. */
  write(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    return this.#writing.run(() => this.#write());
  }

  async #write(): Promise<void> {
    const noted = this.#waiting;
    if (noted.size === 0) return;
    try {
      await this.database.write((tx) => writeSuccesses(tx, new Map(noted)), {
        ...{ name: 'federation_delivered', anyProcess: true },
      });
    } catch (error) {
      this.logger.warn('What other servers have got could not be noted; trying again', { err: error });
      this.#timer ??= this.clock.after(writeEveryMs, () => void this.write());
      return;
    }
    for (const [destination, ordering] of noted)
      if (this.#waiting.get(destination) === ordering) this.#waiting.delete(destination);
  }
}
