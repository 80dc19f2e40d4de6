/** What is begun in one turn of the event loop: so many at most, and none after so many milliseconds. */
export const arrivalsPerTurn = 32;
const msPerTurn = 4;

/**
 * Begins with what connections bring (requests, pieces of bodies) in the order in which it came, no more than some in a turn of the event
 * loop. What a thousand of them bring at once would be begun in one turn otherwise, while nothing else goes on.
 */
export class NetworkArrivals {
  readonly #waiting: (() => void)[] = [];
  #begun = 0;
  #sinceMs = 0;

  /** @param nowMs the monotonic clock, milliseconds */
  constructor(private readonly nowMs: () => number) {}

  /** What has come and was not begun. */
  get size(): number {
    return this.#waiting.length;
  }

  /** Begins: at once, unless this turn has had its share. */
  add(begin: () => void): void {
    if (this.#waiting.length > 0 || !this.#hasRoom) this.#waiting.push(begin);
    else this.#begin(begin);
  }

  get #hasRoom(): boolean {
    if (this.#begun === 0) return true;
    return this.#begun < arrivalsPerTurn && this.nowMs() - this.#sinceMs < msPerTurn;
  }

  #begin(begin: () => void): void {
    if (this.#begun++ === 0) {
      this.#sinceMs = this.nowMs();
      setImmediate(() => this.#nextTurn());
    }
    begin();
  }

  #nextTurn(): void {
    this.#begun = 0;
    while (this.#hasRoom) {
      const begin = this.#waiting.shift();
      if (begin === undefined) return;
      this.#begin(begin);
    }
  }
}
