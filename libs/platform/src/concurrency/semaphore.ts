import { KeyedCounter } from './keyed-counter.js';

/** Too many wait already. */
export class QueueFullError extends Error {
  override readonly name = 'QueueFullError';

  constructor() {
    super('Too many wait already');
  }
}

/** How many may wait for their turn, and what the next one is told. */
export interface WaitingLimits {
  /** How many may wait; further ones are refused at once. Any number unless told. */
  readonly maxWaiting?: number | undefined;
  /** What is thrown at those; {@link QueueFullError} unless told. */
  readonly refuse?: (() => Error) | undefined;
}

/** Limits of a {@link Semaphore}. */
export interface SemaphoreLimits extends WaitingLimits {
  /** How many permits one holder may have or wait for. Any number unless told. */
  readonly maxPerHolder?: number | undefined;
}

/** Who waits. */
export interface Acquiring {
  /** Gives up the wait; a permit that was given stays. */
  readonly signal?: AbortSignal | undefined;
  /** Whose permit it is, where holders have a limit. */
  readonly holder?: string | undefined;
}

const refused = (): Error => new QueueFullError();

/** A number of permits, given in the order in which they are asked for. */
export class Semaphore {
  readonly #waiting: (() => void)[] = [];
  readonly #holders = new KeyedCounter();
  readonly #maxWaiting: number;
  readonly #maxPerHolder: number;
  readonly #refuse: () => Error;
  readonly #permits: number;
  #free: number;

  constructor(permits: number, limits: SemaphoreLimits = {}) {
    this.#permits = permits;
    this.#free = permits;
    this.#maxWaiting = limits.maxWaiting ?? Infinity;
    this.#maxPerHolder = limits.maxPerHolder ?? Infinity;
    this.#refuse = limits.refuse ?? refused;
  }

  /** How many wait. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** How many have a permit or wait for one. */
  get load(): number {
    return this.#permits - this.#free + this.#waiting.length;
  }

  /**
   * Waits for a permit.
   * @returns what gives it back; calling it again does nothing
   * @throws what `refuse` makes, at once; the signal's reason when it aborts first
   */
  async acquire({ signal, holder }: Acquiring = {}): Promise<() => void> {
    if (holder !== undefined && this.#holders.of(holder) >= this.#maxPerHolder) throw this.#refuse();
    if (this.#free === 0 && this.#waiting.length >= this.#maxWaiting) throw this.#refuse();
    if (holder !== undefined) this.#holders.add(holder);
    if (this.#free > 0) this.#free--;
    else {
      try {
        await this.#turn(signal);
      } catch (error) {
        if (holder !== undefined) this.#holders.remove(holder);
        throw error;
      }
    }
    return this.#given(holder);
  }

  /** A permit where one is free at once, as {@link acquire} gives it; `undefined` where none is. */
  tryAcquire(holder?: string): (() => void) | undefined {
    const isUsedUp = holder !== undefined && this.#holders.of(holder) >= this.#maxPerHolder;
    if (isUsedUp || this.#free === 0) return undefined;
    if (holder !== undefined) this.#holders.add(holder);
    this.#free--;
    return this.#given(holder);
  }

  #given(holder: string | undefined): () => void {
    let isGivenBack = false;
    return () => {
      if (isGivenBack) return;
      isGivenBack = true;
      if (holder !== undefined) this.#holders.remove(holder);
      // The permit goes on to the next one.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    };
  }

  /** Does work with a permit. @throws as {@link acquire}, else what the work throws */
  async run<T>(work: () => Promise<T>, acquiring?: Acquiring): Promise<T> {
    const release = await this.acquire(acquiring);
    try {
      return await work();
    } finally {
      release();
    }
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal === undefined) return void this.#waiting.push(resolve);
      const giveUp = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(pass), 1);
        reject(signal.reason as Error);
      };
      const pass = (): void => {
        signal.removeEventListener('abort', giveUp);
        resolve();
      };
      if (signal.aborted) return reject(signal.reason as Error);
      signal.addEventListener('abort', giveUp, { once: true });
      this.#waiting.push(pass);
    });
  }
}
