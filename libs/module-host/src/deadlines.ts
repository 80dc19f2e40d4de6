import type { Clock } from '@rookery/platform';

/** Something with a time limit; a link of its lane's list, so that waiting costs no object of its own. */
export abstract class Wait {
  /** Set by its lane. */
  endsAtMs = 0;
  /** When its lane looks at it next: no later than it ends. */
  dueAtMs = 0;
  lane: Lane | undefined = undefined;
  before: Wait | undefined = undefined;
  after: Wait | undefined = undefined;

  /** Called once the time is up, after it was taken out. */
  abstract late(): void;
}

/**
 * Waits of one length, the first to be looked at first, so that one timer serves all. Who waits anew stays in its place until
 * it is looked at: most are gone by then.
 */
class Lane {
  private first: Wait | undefined = undefined;
  private last: Wait | undefined = undefined;
  private armed = false;

  constructor(
    private readonly clock: Clock,
    readonly limitMs: number,
  ) {}

  add(wait: Wait, nowMs: number): void {
    wait.endsAtMs = nowMs + this.limitMs;
    wait.lane = this;
    this.link(wait);
    if (!this.armed) this.arm(this.limitMs);
  }

  remove(wait: Wait): void {
    this.unlink(wait);
    wait.lane = undefined;
  }

  /** Behind all that end no later: nearly always behind all. */
  private link(wait: Wait): void {
    wait.dueAtMs = wait.endsAtMs;
    let before = this.last;
    while (before && before.dueAtMs > wait.dueAtMs) before = before.before;
    const after = before ? before.after : this.first;
    wait.before = before;
    wait.after = after;
    if (before) before.after = wait;
    else this.first = wait;
    if (after) after.before = wait;
    else this.last = wait;
  }

  private unlink(wait: Wait): void {
    if (wait.before) wait.before.after = wait.after;
    else this.first = wait.after;
    if (wait.after) wait.after.before = wait.before;
    else this.last = wait.before;
    wait.before = wait.after = undefined;
  }

  private arm(delayMs: number): void {
    this.armed = true;
    this.clock.after(delayMs, () => {
      const nowMs = this.clock.monotonicMs();
      try {
        for (let wait = this.first; wait && wait.dueAtMs <= nowMs; wait = this.first) {
          if (wait.endsAtMs > nowMs) {
            this.unlink(wait);
            this.link(wait);
          } else {
            this.remove(wait);
            wait.late();
          }
        }
      } finally {
        // Only now: what began to wait meanwhile ends after what is left.
        this.armed = false;
        if (this.first) this.arm(Math.max(1, this.first.dueAtMs - nowMs));
      }
    });
  }
}

/** Time limits of very many short waits, without a timer for each. */
export class Deadlines {
  private readonly lanes = new Map<number, Lane>();
  /** The lane that was asked for last. Nearly all waits have the same limit. */
  private latest: Lane | undefined = undefined;

  constructor(private readonly clock: Clock) {}

  /** Lets `wait` be told when `limitMs` are over, unless {@link end} comes before. What waits already waits anew. */
  begin(wait: Wait, limitMs: number, nowMs: number): void {
    const { lane } = wait;
    if (lane !== undefined) {
      if (lane.limitMs === limitMs) {
        wait.endsAtMs = nowMs + limitMs;
        return;
      }
      lane.remove(wait);
    }
    this.laneOf(limitMs).add(wait, nowMs);
  }

  /** Takes out what waits; nothing to do for what does not. */
  end(wait: Wait): void {
    wait.lane?.remove(wait);
  }

  private laneOf(limitMs: number): Lane {
    if (this.latest?.limitMs === limitMs) return this.latest;
    let lane = this.lanes.get(limitMs);
    if (!lane) this.lanes.set(limitMs, (lane = new Lane(this.clock, limitMs)));
    return (this.latest = lane);
  }
}
