import type { Clock, Timer } from '../clock.js';

/** Clocks are set right now and then: no longer than this is slept at a time. */
const longestSleepMs = 86_400_000;

/** Rings at the earliest of the times that it was set to, and is silent then until it is set again. It may ring too early, never too late. */
export class Alarm {
  #timer: Timer | undefined;
  #dueMs = Infinity;
  #stopped = false;

  /** @param ring must not throw */
  constructor(
    private readonly clock: Clock,
    private readonly ring: () => void,
  ) {}

  /** Something is due at a time, milliseconds since the epoch. */
  set(dueMs: number): void {
    if (this.#stopped || dueMs >= this.#dueMs) return;
    this.#timer?.cancel();
    this.#dueMs = dueMs;
    const sleepMs = Math.min(Math.max(dueMs - this.clock.nowMs(), 1), longestSleepMs);
    this.#timer = this.clock.after(sleepMs, () => {
      this.#dueMs = Infinity;
      this.ring();
    });
  }

  /** It does not ring any more. */
  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }
}
