/** Requests that are begun in one turn of the event loop. */
export const arrivalsPerTurn = 32;

/**
 * Begins requests in the order in which they came, no more than some in a turn of the event loop. What a thousand connections
 * bring at once would be begun in one turn otherwise, while nothing else goes on.
 */
export class RequestArrivals {
  readonly #waiting: (() => void)[] = [];
  #begun = 0;

  /** Requests that have come and were not begun. */
  get size(): number {
    return this.#waiting.length;
  }

  /** Begins a request: at once, unless this turn has had its share. */
  add(begin: () => void): void {
    if (this.#begun >= arrivalsPerTurn || this.#waiting.length > 0) this.#waiting.push(begin);
    else this.#begin(begin);
  }

  #begin(begin: () => void): void {
    if (this.#begun++ === 0) setImmediate(() => this.#nextTurn());
    begin();
  }

  #nextTurn(): void {
    this.#begun = 0;
    for (const begin of this.#waiting.splice(0, arrivalsPerTurn)) this.#begin(begin);
  }
}
