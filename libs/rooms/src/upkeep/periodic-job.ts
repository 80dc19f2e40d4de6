import type { Clock, Logger, Timer } from '@rookery/platform';

/** What a job needs of its surroundings. */
export interface JobParts {
  readonly clock: Clock;
  readonly logger: Logger;
  /** For the log. */
  readonly name: string;
  readonly periodMs: number;
  /** Does the work once. Should end soon when the signal aborts. A rejection is logged; the next run comes all the same. */
  readonly work: (signal: AbortSignal) => Promise<void>;
}

/** Work that is done again and again in the background, never twice at a time. */
export class PeriodicJob {
  readonly #parts: JobParts;
  readonly #stopping = new AbortController();
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;

  constructor(parts: JobParts) {
    this.#parts = parts;
  }

  /** The first run comes after one period. */
  start(): void {
    const { clock, periodMs } = this.#parts;
    this.#timer ??= clock.every(periodMs, () => void this.run());
  }

  /** Does the work now, or joins the run that is under way. Never rejects. */
  run(): Promise<void> {
    if (this.#stopping.signal.aborted) return Promise.resolve();
    this.#running ??= this.#attempt().finally(() => (this.#running = undefined));
    return this.#running;
  }

  /** Starts no more runs, and resolves when the one under way has come to an end. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#stopping.abort();
    await this.#running;
  }

  async #attempt(): Promise<void> {
    const { logger, name, work } = this.#parts;
    try {
      await work(this.#stopping.signal);
    } catch (error) {
      logger.error('Work in the background failed; it is tried again', { job: name, err: error });
    }
  }
}
