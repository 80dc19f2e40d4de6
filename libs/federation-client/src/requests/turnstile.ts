/** Too many wait already. */
export class TurnstileFull extends Error {
  override readonly name = 'TurnstileFull';
}

interface Lane {
  running: number;
  readonly waiting: (() => void)[];
}

/** Lets a bounded number pass at once for each key, and a bounded number wait, in order of arrival. */
export class Turnstile {
  readonly #lanes = new Map<string, Lane>();

  constructor(
    private readonly maxRunning: number,
    private readonly maxWaiting: number,
  ) {}

  /** How many pass or wait for a key. */
  load(key: string): number {
    const lane = this.#lanes.get(key);
    return lane === undefined ? 0 : lane.running + lane.waiting.length;
  }

  /**
   * Waits for one's turn.
   * @returns what gives the place back; calling it again does nothing
   * @throws TurnstileFull at once; the signal's reason when it aborts first
   */
  async enter(key: string, signal: AbortSignal): Promise<() => void> {
    let lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, (lane = { running: 0, waiting: [] }));
    if (lane.running < this.maxRunning) lane.running++;
    else {
      if (lane.waiting.length >= this.maxWaiting) throw new TurnstileFull('Too many wait already');
      await this.#turn(lane, signal);
    }
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#leave(key, lane);
    };
  }

  #turn({ waiting }: Lane, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const give = (): void => {
        waiting.splice(waiting.indexOf(pass), 1);
        reject(signal.reason as Error);
      };
      const pass = (): void => {
        signal.removeEventListener('abort', give);
        resolve();
      };
      if (signal.aborted) return reject(signal.reason as Error);
      signal.addEventListener('abort', give, { once: true });
      waiting.push(pass);
    });
  }

  #leave(key: string, lane: Lane): void {
    const next = lane.waiting.shift();
    // The place goes on to the next one; the count stays.
    if (next !== undefined) return next();
    if (--lane.running === 0) this.#lanes.delete(key);
  }
}
