import { type Clock, ownTurn, type Timer } from '@rookery/platform';

/** Something that wants a turn to send. */
export interface TurnTaker {
  /** It may take long: its server is slow, or did not answer lately. */
  readonly isSlow: boolean;
  /** Uses the turn. Never rejects. */
  run(): Promise<void>;
}

/** Turns of one kind: so many at once of those that have not taken long yet, and what counts as long. */
interface Limits {
  readonly max: number;
  readonly patienceMs: number;
}

/**
 * To servers that answer quickly, and to others. Most of a turn is the way there and back: a message to a thousand servers on the
 * other side of the earth takes as many times that as there are servers for each place.
 */
const fast: Limits = { max: 500, patienceMs: 500 };
const slow: Limits = { max: 100, patienceMs: 5_000 };
/** Turns that have taken long, beside those. With so many of them the others wait until one is over. */
const maxLate = 1_000;

/**
 * Turns that begin in one turn of the event loop. With more, a message to a thousand servers would hold up everybody else; and answers
 * that are there already would wait until all are asked, while what was asked for them stays in memory.
 */
const maxBegun = 20;

interface Turn {
  readonly sinceMs: number;
}

interface Lane extends Limits {
  readonly waiting: TurnTaker[];
  /** The oldest first. */
  readonly running: Set<Turn>;
  timer: Timer | undefined;
}

const laneOf = (limits: Limits): Lane => ({ ...limits, waiting: [], running: new Set(), timer: undefined });

/**
 * Gives turns to send, in the order in which they were asked for. Who has more to send asks again, behind the others. Servers
 * that may not answer have turns of their own; and a turn that takes long, because its server has fallen silent only now,
 * lets the next one begin beside it. So they hold up nobody but themselves.
 */
export class SendingTurns {
  readonly #fast = laneOf(fast);
  readonly #slow = laneOf(slow);
  readonly #running = new Set<Promise<void>>();
  #late = 0;
  /** In this turn of the event loop. */
  #begun = 0;

  constructor(private readonly clock: Clock) {}

  /** Resolves when nobody uses a turn. Turns that are asked for later are not waited for. */
  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }

  /** Calls `run` when it is its turn. */
  ask(taker: TurnTaker): void {
    const lane = taker.isSlow ? this.#slow : this.#fast;
    lane.waiting.push(taker);
    this.#advance(lane);
  }

  #advance(lane: Lane): void {
    this.#makeRoom(lane);
    while (lane.running.size < lane.max && this.#begun < maxBegun) {
      const next = lane.waiting.shift();
      if (next === undefined) return;
      this.#begin(lane, next);
    }
    this.#watch(lane);
  }

  #begin(lane: Lane, taker: TurnTaker): void {
    const turn: Turn = { sinceMs: this.clock.monotonicMs() };
    lane.running.add(turn);
    if (this.#begun++ === 0) void this.#goOnLater();
    const running = taker.run().finally(() => {
      this.#running.delete(running);
      if (lane.running.delete(turn)) return this.#advance(lane);
      this.#late--;
      this.#advance(this.#fast);
      this.#advance(this.#slow);
    });
    this.#running.add(running);
  }

  /** Goes on in a later turn of the event loop. */
  async #goOnLater(): Promise<void> {
    await ownTurn();
    this.#begun = 0;
    this.#advance(this.#fast);
    this.#advance(this.#slow);
  }

  /** Turns that have taken long leave their places to those that wait. */
  #makeRoom(lane: Lane): void {
    if (lane.waiting.length === 0 || lane.running.size < lane.max) return;
    const longSinceMs = this.clock.monotonicMs() - lane.patienceMs;
    for (const turn of lane.running) {
      if (turn.sinceMs > longSinceMs || this.#late >= maxLate) return;
      lane.running.delete(turn);
      this.#late++;
    }
  }

  /** Looks again when the oldest turn has taken long, while somebody waits. */
  #watch(lane: Lane): void {
    const [oldest] = lane.running;
    if (lane.waiting.length === 0 || oldest === undefined || this.#late >= maxLate) return;
    if (lane.running.size < lane.max) return;
    const leftMs = oldest.sinceMs + lane.patienceMs - this.clock.monotonicMs();
    lane.timer ??= this.clock.after(Math.max(1, Math.ceil(leftMs)), () => {
      lane.timer = undefined;
      this.#advance(lane);
    });
  }
}
