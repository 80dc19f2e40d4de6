/** Something that waits to be written, and who waits for that. */
interface Queued<Entry> {
  readonly entry: Entry;
  resolve(): void;
  reject(error: unknown): void;
}

/** How much is taken together at most. */
const maxEntries = 32;
/** Writes that may be under way at a time before it counts how long somebody waits. */
const maxAtOnce = 3;
/** So many must wait for each write that is under way before another begins: what is written together costs less. */
const worthAnother = 4;
/** Whoever has waited for so long goes ahead beside what is still being written: one slow write holds up nobody for long. */
const patienceMs = 25;

/**
 * Writes what comes at the same time together: while something is being written, what comes gathers. When a common write
 * fails, each of its entries is written alone, so that nobody fails because of another.
 */
export class GroupCommit<Entry> {
  #waiting: Queued<Entry>[] = [];
  #running = 0;
  #impatient: { cancel(): void } | undefined;

  /**
   * @param write writes entries, all or nothing
   * @param after calls back after a time
   */
  constructor(
    private readonly write: (entries: readonly Entry[]) => Promise<void>,
    private readonly after: (ms: number, then: () => void) => { cancel(): void },
  ) {}

  /**
   * Resolves once the entry is written.
   * @throws what the write throws for this entry alone
   */
  add(entry: Entry): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ entry, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    if (this.#waiting.length === 0) return;
    const enough = this.#running * worthAnother;
    if (this.#running < maxAtOnce && this.#waiting.length >= enough) this.#start();
    else this.#impatient ??= this.after(patienceMs, () => this.#start());
  }

  #start(): void {
    this.#impatient?.cancel();
    this.#impatient = undefined;
    const taken = this.#waiting.splice(0, maxEntries);
    this.#running += 1;
    void this.#settle(taken).then(() => {
      this.#running -= 1;
      this.#next();
    });
    this.#next();
  }

  async #settle(taken: readonly Queued<Entry>[]): Promise<void> {
    try {
      await this.write(taken.map(({ entry }) => entry));
    } catch (error) {
      const [only] = taken;
      if (taken.length === 1) only!.reject(error);
      else await Promise.all(taken.map((each) => this.#settle([each])));
      return;
    }
    for (const each of taken) each.resolve();
  }
}
