import type { Clock, Timer } from '@rookery/platform';
import type { BestEffort } from './best-effort.js';

/** Keys that wait; whoever comes under another one then is not told of. */
const maxKeys = 1_000;

/** Who came where, told together a while after the first of them. Best effort. */
export class ArrivalBatches {
  #arrivals = new Map<string, Set<string>>();
  #timer: Timer | undefined;

  /**
   * @param what the news, for the log
   * @param tell is given all that came since the last time, by key
   */
  constructor(
    private readonly clock: Clock,
    private readonly effort: BestEffort,
    private readonly delayMs: number,
    private readonly what: string,
    private readonly tell: (arrivals: ReadonlyMap<string, ReadonlySet<string>>) => Promise<void>,
  ) {}

  /** Notes that one came, under a key; twice is once. */
  add(key: string, one: string): void {
    const known = this.#arrivals.get(key);
    if (known) known.add(one);
    else if (this.#arrivals.size < maxKeys) this.#arrivals.set(key, new Set([one]));
    this.#timer ??= this.clock.after(this.delayMs, () => this.effort.try(this.what, () => this.#tellAll()));
  }

  /** Who came under a key has gone again: where nobody was told yet, nobody is. */
  remove(key: string, one: string): void {
    const known = this.#arrivals.get(key);
    if (known?.delete(one) === true && known.size === 0) this.#arrivals.delete(key);
  }

  /** Nobody is told any more. */
  cancel(): void {
    this.#timer?.cancel();
  }

  #tellAll(): Promise<void> {
    const arrivals = this.#arrivals;
    this.#timer = undefined;
    this.#arrivals = new Map();
    return this.tell(arrivals);
  }
}
