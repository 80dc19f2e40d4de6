import type { Clock } from '@rookery/platform';

/** Something with a time limit; a link of its lane's list, so that waiting costs no object of its own. */
export abstract class Wait {
  /** Set by its lane. */
  endsAtMs = 0;
  lane: Lane | undefined;
  before: Wait | undefined;
  after: Wait | undefined;

  /** Called once the time is up, after it was taken out. */
  abstract late(): void;
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

  add(wait: Wait, nowMs: number): void {
    wait.endsAtMs = nowMs + this.limitMs;
    wait.lane = this;
    wait.before = this.#last;
    wait.after = undefined;
    if (this.#last) this.#last.after = wait;
    else this.#first = wait;
    this.#last = wait;
    if (!this.#armed) this.#arm(this.limitMs);
  }

  remove(wait: Wait): void {
    if (wait.before) wait.before.after = wait.after;
    else this.#first = wait.after;
    if (wait.after) wait.after.before = wait.before;
    else this.#last = wait.before;
    wait.lane = wait.before = wait.after = undefined;
  }

  #arm(delayMs: number): void {
    this.#armed = true;
    this.clock.after(delayMs, () => {
      const nowMs = this.clock.monotonicMs();
      try {
        for (let wait = this.#first; wait && wait.endsAtMs <= nowMs; wait = this.#first) {
          this.remove(wait);
          wait.late();
        }
      } finally {
        // Only now: what began to wait meanwhile ends after what is left.
        this.#armed = false;
        if (this.#first) this.#arm(Math.max(1, this.#first.endsAtMs - nowMs));
      }
    });
  }
}

/** Time limits of very many short waits, without a timer for each. */
export class Deadlines {
  readonly #lanes = new Map<number, Lane>();

  constructor(private readonly clock: Clock) {}

  /** Lets `wait` be told when `limitMs` are over, unless {@link end} comes before. It must not wait already. */
  begin(wait: Wait, limitMs: number, nowMs: number): void {
    let lane = this.#lanes.get(limitMs);
    if (!lane) this.#lanes.set(limitMs, (lane = new Lane(this.clock, limitMs)));
    lane.add(wait, nowMs);
  }

  /** Takes out what waits; nothing to do for what does not. */
  end(wait: Wait): void {
    wait.lane?.remove(wait);
  }
}
