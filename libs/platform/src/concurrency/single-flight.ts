/** Shares work among those who want the same at the same time: who comes while it is under way gets its result. */
export class SingleFlight<T> {
  readonly #flights = new Map<string, Promise<T>>();

  /** How many are under way. */
  get size(): number {
    return this.#flights.size;
  }

  /** What is under way for a key. */
  get(key: string): Promise<T> | undefined {
    return this.#flights.get(key);
  }

  /** Resolves when nothing is under way, whatever became of it. */
  async settled(): Promise<void> {
    while (this.#flights.size > 0) await Promise.allSettled(this.#flights.values());
  }

  /** Begins the work, unless it is under way; settles as it does. What it throws at once is thrown, and nothing remembered. */
  run(key: string, work: () => Promise<T>): Promise<T> {
    const running = this.#flights.get(key);
    if (running !== undefined) return running;
    const flight = work().finally(() => this.#flights.delete(key));
    this.#flights.set(key, flight);
    return flight;
  }
}
