import type { Clock, Timer } from '@rookery/platform';

/** Something that is to happen when its time has come. */
export interface Deadline {
  readonly onExpired: () => void;
}

const maxSteps = 1000;

/**
 * Deadlines of many waiters on one timer. They fire up to one tick late and never early; the timer runs only while something
 * waits.
 */
export class DeadlineWheel {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #slots = new Map<number, Set<Deadline>>();
  readonly #slotOf = new Map<Deadline, number>();
  #timer: Timer | undefined;
  #done = 0;

  constructor(clock: Clock, tickMs = 50) {
    this.#clock = clock;
    this.#tickMs = tickMs;
  }

  get size(): number {
    return this.#slotOf.size;
  }

  add(deadline: Deadline, delayMs: number): void {
    const now = this.#clock.monotonicMs();
    if (this.#timer === undefined) {
      this.#done = Math.floor(now / this.#tickMs);
      this.#timer = this.#clock.every(this.#tickMs, () => this.#tick());
    }
    const slot = Math.max(Math.ceil((now + delayMs) / this.#tickMs), this.#done + 1);
    let deadlines = this.#slots.get(slot);
    if (!deadlines) this.#slots.set(slot, (deadlines = new Set()));
    deadlines.add(deadline);
    this.#slotOf.set(deadline, slot);
  }

  remove(deadline: Deadline): void {
    const slot = this.#slotOf.get(deadline);
    if (slot === undefined) return;
    this.#slotOf.delete(deadline);
    const deadlines = this.#slots.get(slot);
    deadlines?.delete(deadline);
    if (deadlines?.size === 0) this.#slots.delete(slot);
    this.#rest();
  }

  #tick(): void {
    const now = Math.floor(this.#clock.monotonicMs() / this.#tickMs);
    // After a long sleep of the machine there are fewer slots than ticks.
    const due =
      now - this.#done > maxSteps
        ? [...this.#slots.keys()].filter((slot) => slot <= now).toSorted((a, b) => a - b)
        : Array.from({ length: Math.max(now - this.#done, 0) }, (_, i) => this.#done + 1 + i);
    this.#done = Math.max(now, this.#done);
    for (const slot of due) {
      const deadlines = this.#slots.get(slot);
      if (!deadlines) continue;
      this.#slots.delete(slot);
      for (const deadline of deadlines) {
        // One that expires may remove others of its slot.
        if (this.#slotOf.get(deadline) !== slot) continue;
        this.#slotOf.delete(deadline);
        deadline.onExpired();
      }
    }
    this.#rest();
  }

  #rest(): void {
    if (this.#slotOf.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
