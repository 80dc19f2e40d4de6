import { type Acquiring, Semaphore, type WaitingLimits } from './semaphore.js';

/** A number of permits for each key; holds no more keys than have a permit out. */
export class KeyedSemaphore {
  readonly #permits: number;
  readonly #limits: WaitingLimits;
  readonly #byKey = new Map<string, Semaphore>();

  constructor(permits: number, limits: WaitingLimits = {}) {
    this.#permits = permits;
    this.#limits = limits;
  }

  /** How many have a permit of a key or wait for one. */
  load(key: string): number {
    return this.#byKey.get(key)?.load ?? 0;
  }

  /** As {@link Semaphore.acquire}. */
  async acquire(key: string, acquiring?: Acquiring): Promise<() => void> {
    const semaphore = this.#of(key);
    return this.#given(key, semaphore, await semaphore.acquire(acquiring));
  }

  /** As {@link Semaphore.tryAcquire}. */
  tryAcquire(key: string, holder?: string): (() => void) | undefined {
    const semaphore = this.#of(key);
    const release = semaphore.tryAcquire(holder);
    return release && this.#given(key, semaphore, release);
  }

  /** As {@link Semaphore.run}. */
  async run<T>(key: string, work: () => Promise<T>, acquiring?: Acquiring): Promise<T> {
    const release = await this.acquire(key, acquiring);
    try {
      return await work();
    } finally {
      release();
    }
  }

  #of(key: string): Semaphore {
    let semaphore = this.#byKey.get(key);
    if (!semaphore) this.#byKey.set(key, (semaphore = new Semaphore(this.#permits, this.#limits)));
    return semaphore;
  }

  #given(key: string, semaphore: Semaphore, release: () => void): () => void {
    return () => {
      release();
      if (semaphore.load === 0 && this.#byKey.get(key) === semaphore) this.#byKey.delete(key);
    };
  }
}
