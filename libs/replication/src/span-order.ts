import type { Clock, Timer } from '@rookery/platform';

/** News of rows with `from < position <= position` of a stream to which several processes write. */
export interface Span {
  readonly from: number;
  readonly position: number;
}

export interface SpanOrderOptions<T extends Span> {
  readonly clock: Clock;
  /** Up to where everything is known. */
  readonly current: () => number;
  /** Takes what follows upon {@link current}, which moves on to its position; or what comes after it was given up. Must not throw. */
  readonly apply: (span: T) => void;
  /** News of rows up to here do not come: whoever wrote them is slow, or gone. Must not throw. */
  readonly missed: (upTo: number) => void;
}

/** How long news wait for those before them, milliseconds. */
const gapMs = 250;

/**
 * Puts news of several processes in the order of their positions. Whoever has written a row says so at once, and what one says may
 * overtake what another says about the row before it: who saw the later position without the earlier change would never look for it.
 */
export class SpanOrder<T extends Span> {
  readonly #options: SpanOrderOptions<T>;
  #waiting: T[] = [];
  #timer: Timer | undefined;
  #isClosed = false;
  #waiters: { readonly position: number; readonly resolve: () => void }[] = [];

  constructor(options: SpanOrderOptions<T>) {
    this.#options = options;
  }

  /** Takes news in whatever order they come. */
  offer(span: T): void {
    const { apply, clock, current } = this.#options;
    if (this.#isClosed) return;
    if (span.from <= current()) {
      apply(span);
      this.look();
      return;
    }
    this.#waiting.push(span);
    this.#timer ??= clock.after(gapMs, () => this.#giveUp());
  }

  /** What waits may follow now: {@link SpanOrderOptions.current} has moved. */
  look(): void {
    const { apply, current } = this.#options;
    this.#waiting.sort((one, other) => one.position - other.position);
    while (this.#waiting[0] !== undefined && this.#waiting[0].from <= current()) apply(this.#waiting.shift()!);
    if (this.#waiting.length === 0) this.#stopTimer();
    const [reached, open] = [this.#waiters.filter(({ position }) => position <= current()), this.#waiters];
    if (reached.length === 0) return;
    this.#waiters = open.filter(({ position }) => position > current());
    for (const { resolve } of reached) resolve();
  }

  /** Resolves once everything up to a position is known, or was given up; `undefined`: it is. */
  reached(position: number): Promise<void> | undefined {
    if (this.#isClosed || position <= this.#options.current()) return undefined;
    return new Promise((resolve) => this.#waiters.push({ position, resolve }));
  }

  /** Waits for nothing any more. */
  close(): void {
    this.#isClosed = true;
    this.#stopTimer();
    this.#waiting = [];
    for (const { resolve } of this.#waiters.splice(0)) resolve();
  }

  #giveUp(): void {
    this.#timer = undefined;
    this.#waiting.sort((one, other) => one.position - other.position);
    for (const span of this.#waiting.splice(0)) {
      if (span.from > this.#options.current()) this.#options.missed(span.from);
      this.#options.apply(span);
    }
    this.look();
  }

  #stopTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
