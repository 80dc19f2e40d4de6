import type { Clock } from '@rookery/platform';

/** One wait among those with the same limit; taken out in constant time. */
interface Wait {
  readonly endsAtMs: number;
  readonly late: () => void;
  before: Wait | undefined;
  after: Wait | undefined;
  over: boolean;
}

/** Waits of one length, the oldest first: the first is always the next to end, so one timer serves all. */
class Lane {
  #first: Wait | undefined;
  #last: Wait | undefined;
  #armed = false;

  constructor(
    private readonly clock: Clock,
    private readonly limitMs: number,
  ) {}

  add(late: () => void): Wait {
    const endsAtMs = this.clock.monotonicMs() + this.limitMs;
    const wait: Wait = { endsAtMs, late, before: this.#last, after: undefined, over: false };
    if (this.#last) this.#last.after = wait;
    else this.#first = wait;
    this.#last = wait;
    if (!this.#armed) this.#arm(this.limitMs);
    return wait;
  }

  remove(wait: Wait): void {
    if (wait.over) return;
    wait.over = true;
    if (wait.before) wait.before.after = wait.after;
    else this.#first = wait.after;
    if (wait.after) wait.after.before = wait.before;
    else this.#last = wait.before;
  }

  #arm(delayMs: number): void {
    this.#armed = true;
    this.clock.after(delayMs, () => {
      this.#armed = false;
      const nowMs = this.clock.monotonicMs();
      for (let wait = this.#first; wait && wait.endsAtMs <= nowMs; wait = this.#first) {
        this.remove(wait);
        wait.late();
      }
      if (this.#first) this.#arm(Math.max(1, this.#first.endsAtMs - nowMs));
    });
  }
}

/** Time limits of very many short waits, without a timer for each. */
export class Deadlines {
  readonly #lanes = new Map<number, Lane>();

  constructor(private readonly clock: Clock) {}

  /** Calls `late` after `limitMs`, unless what it gives is called before. */
  after(limitMs: number, late: () => void): () => void {
    let lane = this.#lanes.get(limitMs);
    if (!lane) this.#lanes.set(limitMs, (lane = new Lane(this.clock, limitMs)));
    const wait = lane.add(late);
    return () => lane.remove(wait);
  }
}
