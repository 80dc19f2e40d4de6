/** Something that wants a turn to send. */
export interface TurnTaker {
  /** It may take long: its server is slow, or did not answer lately. */
  readonly isSlow: boolean;
  /** Uses the turn. Never rejects. */
  run(): Promise<void>;
}

/** Transactions under way at once: to servers that answer quickly, and to others. */
const maxFast = 100;
const maxSlow = 100;

interface Lane {
  readonly waiting: TurnTaker[];
  readonly max: number;
  running: number;
}

/**
 * Gives turns to send, in the order in which they were asked for. Who has more to send asks again, behind the others. Servers
 * that may not answer have turns of their own, so that they hold up nobody but themselves.
 */
export class SendingTurns {
  readonly #fast: Lane = { waiting: [], max: maxFast, running: 0 };
  readonly #slow: Lane = { waiting: [], max: maxSlow, running: 0 };
  readonly #running = new Set<Promise<void>>();

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
    while (lane.running < lane.max) {
      const next = lane.waiting.shift();
      if (next === undefined) return;
      lane.running++;
      const running = next.run().finally(() => {
        lane.running--;
        this.#running.delete(running);
        this.#advance(lane);
      });
      this.#running.add(running);
    }
  }
}
