import { MatrixError } from '@rookery/matrix-types';

/** How many large answers are made at once. */
export interface TurnLimits {
  /** For one user, or one address where nobody is logged in. */
  readonly ofHolder: number;
  readonly altogether: number;
  /** Requests of one that may wait for their turn; more are refused. */
  readonly waiting: number;
  /** Who has left so many bytes unread waits until they are read, or cut off. */
  readonly unreadBytes: number;
}

export const turnLimits: TurnLimits = { ofHolder: 4, altogether: 64, waiting: 250, unreadBytes: 16_777_216 };
/** Of requests that modules answer: they only come one by one, each turn being short, so that more of them may wait. */
export const moduleTurnLimits: TurnLimits = { ...turnLimits, waiting: 1_000 };
/** Longest time that a request waits for its turn. */
export const turnTimeoutMs = 30_000;
/** When to come again, where no turn could be had. */
const retryTurnMs = 2_000;

interface Waiting {
  readonly sinceMs: number;
  go(): void;
  refuse(error: MatrixError): void;
}

interface Holder {
  making: number;
  readonly waiting: Set<Waiting>;
}

/** A request's place among those whose answers are made. */
export interface AnswerTurn {
  /** Resolves when the answer may be made; `undefined`: at once. @throws MatrixError 429 `M_LIMIT_EXCEEDED` */
  readonly ready: Promise<void> | undefined;
  /** The answer is made, or nobody wants it any more. */
  end(): void;
}

/**
 * Turns at making large answers. Nobody has more than a few made at once, nor any more while too much of what was made is
 * unread: what a client asks for a thousand times at once costs no more memory, and holds up nobody else, than what it reads.
 */
export class AnswerTurns {
  readonly #holders = new Map<string, Holder>();
  /** Those of whom a request may go as soon as there is room, the longest waiting first. */
  readonly #ready = new Set<string>();
  #making = 0;
  /** Whether an answer was begun in this turn of the event loop: what needs not wait for anything is made within it. */
  #isTurnTaken = false;

  /** @param unreadOf bytes of answers that somebody has not read yet */
  constructor(
    private readonly unreadOf: (holder: string) => number,
    private readonly limits: TurnLimits = turnLimits,
  ) {}

  /** Answers that are being made. */
  get making(): number {
    return this.#making;
  }

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many requests wait */
  take(name: string, nowMs: number): AnswerTurn {
    const holder = this.#holderOf(name);
    if (holder.waiting.size === 0 && this.#mayGo(name, holder) && this.#hasRoom) {
      this.#begin(holder);
      return { ready: undefined, end: this.#ending(name, holder) };
    }
    if (holder.waiting.size >= this.limits.waiting) throw MatrixError.limitExceeded(retryTurnMs);
    let end = (): void => undefined;
    const ready = new Promise<void>((resolve, reject) => {
      const waiting: Waiting = {
        sinceMs: nowMs,
        go: () => {
          holder.waiting.delete(waiting);
          this.#begin(holder);
          end = this.#ending(name, holder);
          resolve();
        },
        refuse: (error) => {
          holder.waiting.delete(waiting);
          this.#tidy(name, holder);
          reject(error);
        },
      };
      end = () => waiting.refuse(MatrixError.limitExceeded(retryTurnMs));
      holder.waiting.add(waiting);
    });
    this.#look(name, holder);
    return { ready, end: () => end() };
  }

  /** Somebody has read, or lost, something. */
  wake(name: string): void {
    const holder = this.#holders.get(name);
    if (holder) this.#look(name, holder);
  }

  /** Refuses what has waited for too long. To be called now and then. */
  check(nowMs: number): void {
    for (const { waiting } of this.#holders.values())
      for (const each of waiting) {
        if (nowMs - each.sinceMs <= turnTimeoutMs) break;
        each.refuse(MatrixError.limitExceeded(retryTurnMs));
      }
  }

  get #hasRoom(): boolean {
    return !this.#isTurnTaken && this.#making < this.limits.altogether;
  }

  #begin(holder: Holder): void {
    holder.making++;
    this.#making++;
    this.#isTurnTaken = true;
    // A thousand requests may have come in one turn; each answer is begun in another one.
    setImmediate(() => {
      this.#isTurnTaken = false;
      this.#goOn();
    });
  }

  #ending(name: string, holder: Holder): () => void {
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      holder.making--;
      this.#making--;
      setImmediate(() => this.#look(name, holder));
    };
  }

  /** Lets go who may go, after something has changed for one of them. */
  #look(name: string, holder: Holder): void {
    if (holder.waiting.size > 0 && this.#mayGo(name, holder)) this.#ready.add(name);
    this.#goOn();
    this.#tidy(name, holder);
  }

  #goOn(): void {
    for (const next of this.#ready) {
      if (!this.#hasRoom) return;
      const own = this.#holders.get(next);
      const [first] = own?.waiting ?? [];
      // Whoever may go on stands behind the others again.
      this.#ready.delete(next);
      if (own === undefined || first === undefined || !this.#mayGo(next, own)) continue;
      first.go();
      if (own.waiting.size > 0 && this.#mayGo(next, own)) this.#ready.add(next);
    }
  }

  #mayGo(name: string, { making }: Holder): boolean {
    return making < this.limits.ofHolder && this.unreadOf(name) < this.limits.unreadBytes;
  }

  #holderOf(name: string): Holder {
    let holder = this.#holders.get(name);
    if (holder === undefined) this.#holders.set(name, (holder = { making: 0, waiting: new Set() }));
    return holder;
  }

  #tidy(name: string, holder: Holder): void {
    // It may have come again meanwhile, under the same name: that one is still needed.
    if (holder.making === 0 && holder.waiting.size === 0 && this.#holders.get(name) === holder) {
      this.#holders.delete(name);
      this.#ready.delete(name);
    }
  }
}
