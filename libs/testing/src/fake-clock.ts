import { setImmediate as turn } from 'node:timers/promises';
import { Clock, type Timer } from '@rookery/platform';

/** Somebody waits for a clock that is told to go on: an hour is over in a second, and this is as good as never. Milliseconds of real time. */
const longestAdvanceMs = 200_000;

interface Waiting {
  dueMs: number;
  readonly periodMs: number | undefined;
  readonly fn: () => void;
}

/** A clock that stands still until told. Starts on 2025-01-01 at midnight UTC unless told otherwise. */
export class FakeClock extends Clock {
  readonly #startMs: number;
  #elapsedMs = 0;
  readonly #waiting = new Set<Waiting>();
  /** What {@link threadCpuMs} says: a test that moves it plays work. */
  cpuMs = 0;

  constructor(startMs = 1_735_689_600_000) {
    super();
    this.#startMs = startMs;
  }

  /** Timers that have not fired or been cancelled, for tests that look for leaks. */
  get pendingTimers(): number {
    return this.#waiting.size;
  }

  nowMs(): number {
    return this.#startMs + Math.floor(this.#elapsedMs);
  }
  monotonicMs(): number {
    return this.#elapsedMs;
  }
  override threadCpuMs(): number {
    return this.cpuMs;
  }
  after(delayMs: number, fn: () => void): Timer {
    return this.#add(delayMs, undefined, fn);
  }
  every(periodMs: number, fn: () => void): Timer {
    return this.#add(periodMs, periodMs, fn);
  }

  /**
   * Moves time on, firing what falls due in order, and lets the promises that this settles run in between.
   * @throws Error when that comes to no end; says how far it came and what fired last
   */
  async advance(byMs: number): Promise<void> {
    const startedMs = performance.now();
    const untilMs = this.#elapsedMs + byMs;
    let fired = 0;
    await turn();
    for (let next = this.#next(untilMs); next; next = this.#next(untilMs)) {
      this.#elapsedMs = Math.max(this.#elapsedMs, next.dueMs);
      if (next.periodMs === undefined) this.#waiting.delete(next);
      else next.dueMs += Math.max(next.periodMs, 1);
      next.fn();
      await turn();
      fired++;
      if (performance.now() - startedMs > longestAdvanceMs)
        throw new Error(
          `${fired} timers have fired, and ${untilMs - this.#elapsedMs} of ${byMs} ms are left; ${this.#waiting.size} wait, the last was ${next.fn.toString()}`,
        );
    }
    this.#elapsedMs = Math.max(this.#elapsedMs, untilMs);
    await turn();
  }

  /** Moves time on as a pause of the machine does: what fell due meanwhile fires once, however often it would have. */
  async jump(byMs: number): Promise<void> {
    await turn();
    this.#elapsedMs += byMs;
    for (const entry of this.#waiting)
      if (entry.periodMs !== undefined && entry.dueMs < this.#elapsedMs) entry.dueMs = this.#elapsedMs;
    await this.advance(0);
  }

  #add(delayMs: number, periodMs: number | undefined, fn: () => void): Timer {
    const entry: Waiting = { dueMs: this.#elapsedMs + Math.max(delayMs, 0), periodMs, fn };
    this.#waiting.add(entry);
    return { cancel: () => void this.#waiting.delete(entry) };
  }

  #next(untilMs: number): Waiting | undefined {
    let first: Waiting | undefined;
    for (const entry of this.#waiting) {
      if (entry.dueMs <= untilMs && (!first || entry.dueMs < first.dueMs)) first = entry;
    }
    return first;
  }
}
