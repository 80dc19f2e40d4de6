import type { Clock, Timer } from '@rookery/platform';

/** How long a server that speaks to us may owe an answer, milliseconds; and for how long it need not have noticed the question. */
const owedMs = 5_000;
const unnoticedMs = 1_000;

/**
 * One try to send a transaction. A server that falls over, or is cut off, takes the answer with it, and nothing tells: the request
 * would wait for all of its time, though the server may be back and speaks to us. Then it is ended, to be made anew.
 */
export class Attempt {
  readonly #controller = new AbortController();
  readonly #sinceMs: number;
  #timer: Timer | undefined;
  #cutAtMs = Infinity;

  constructor(private readonly clock: Clock) {
    this.#sinceMs = clock.monotonicMs();
  }

  /** Aborts when the answer is not to be waited for any longer. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** How long it has taken, milliseconds. */
  get tookMs(): number {
    return this.clock.monotonicMs() - this.#sinceMs;
  }

  /** The server speaks to us: it answers soon, or the question is lost. */
  showedLife(): void {
    const { tookMs } = this;
    // It may have said that before.
    if (tookMs < unnoticedMs || this.#timer !== undefined) return;
    this.#timer = this.clock.after(Math.max(0, owedMs - tookMs), () => this.cut());
  }

  /** Ends it when there is no answer within a time, milliseconds; the shortest of those that were given. */
  cutAfter(limitMs: number): void {
    const atMs = this.clock.monotonicMs() + limitMs;
    if (atMs >= this.#cutAtMs) return;
    this.#cutAtMs = atMs;
    this.#timer?.cancel();
    this.#timer = this.clock.after(limitMs, () => this.cut());
  }

  /** Ends it without an answer. */
  cut(): void {
    this.#controller.abort();
  }

  /** It is over. */
  end(): void {
    this.#timer?.cancel();
  }
}
