import type { Clock } from '@rookery/platform';

/** What was used counts less and less: after this time a little more than a third of it, milliseconds. */
export const fadingMs = 10_000;
/** After so many of these times everything is counted anew, and what is next to nothing is forgotten. */
const sweepAfter = 6;
const nothingMs = 0.5;
/** For so long the usual use is not looked up again, milliseconds. */
const usualForMs = 500;

interface Use {
  /** CPU time and events, as they would count at the moment from which is counted. */
  ms: number;
  events: number;
}

/** CPU time that somebody, or something, has used lately. What is long ago counts little. */
export class RecentUse {
  readonly #uses = new Map<string, Use>();
  #fromMs: number;
  #usualMs = 0;
  #usualUntilMs = -Infinity;

  constructor(private readonly clock: Clock) {
    this.#fromMs = clock.monotonicMs();
  }

  /** Adds CPU time that was used now, and for how many events. */
  add(key: string, ms: number, events: number): void {
    const scale = this.#scale();
    const use = this.#uses.get(key);
    if (use) {
      use.ms += ms * scale;
      use.events += events * scale;
    } else this.#uses.set(key, { ms: ms * scale, events: events * scale });
  }

  /** Milliseconds: a steady use of one hundredth of a thread is one hundredth of {@link fadingMs}. */
  of(key: string): number {
    const use = this.#uses.get(key);
    return use === undefined ? 0 : use.ms / this.#scale();
  }

  /** What an event has cost lately, milliseconds; `undefined` where there was none. */
  perEvent(key: string): number | undefined {
    const use = this.#uses.get(key);
    return use === undefined || use.events <= 0 ? undefined : use.ms / use.events;
  }

  /** What three of four of those have used at least that have used anything, milliseconds. */
  get usual(): number {
    const nowMs = this.clock.monotonicMs();
    if (nowMs < this.#usualUntilMs) return this.#usualMs;
    const scale = this.#scale();
    const uses = [...this.#uses.values()].map(({ ms }) => ms / scale).filter((ms) => ms >= nothingMs);
    uses.sort((a, b) => a - b);
    this.#usualUntilMs = nowMs + usualForMs;
    return (this.#usualMs = uses[Math.floor(uses.length / 4)] ?? 0);
  }

  /** Those that have used the most, the first one the most. */
  most(count: number): [key: string, ms: number][] {
    const scale = this.#scale();
    return [...this.#uses]
      .map(([key, { ms }]): [string, number] => [key, ms / scale])
      .sort(([, a], [, b]) => b - a)
      .slice(0, count);
  }

  /** How much what is used now counts more than what was used at the moment from which is counted. */
  #scale(): number {
    const times = (this.clock.monotonicMs() - this.#fromMs) / fadingMs;
    if (times < sweepAfter) return Math.exp(times);
    this.#fromMs = this.clock.monotonicMs();
    const faded = Math.exp(-times);
    for (const [key, use] of this.#uses) {
      use.ms *= faded;
      use.events *= faded;
      if (use.ms < nothingMs) this.#uses.delete(key);
    }
    return 1;
  }
}
