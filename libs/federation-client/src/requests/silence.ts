import type { Readable } from 'node:stream';

/** Watches over a server that may take long, as long as it says something. */
export class Silence {
  readonly #controller = new AbortController();
  #timer: NodeJS.Timeout | undefined;

  /** @param longestMs how long it may say nothing, milliseconds */
  constructor(readonly longestMs: number) {}

  /** Aborts when it has said nothing for too long. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Something is wanted of it from now on. */
  begin(): void {
    this.#timer = setTimeout(() => this.#controller.abort(), this.longestMs);
  }

  /** Every piece of its answer counts, and its end ends the watch. */
  follow(answer: Readable): void {
    this.#timer?.refresh();
    answer.on('data', () => this.#timer?.refresh());
    answer.once('close', () => this.end());
  }

  /** Nothing is wanted any more. */
  end(): void {
    clearTimeout(this.#timer);
  }
}
