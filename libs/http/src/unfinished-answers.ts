import { MatrixError } from '@rookery/matrix-types';
import { HeldBytes, type HeldLimits } from './held-bytes.js';

/** Bytes of answers that modules have begun and that are not whole yet. */
export const unfinishedLimits: HeldLimits = { ofHolder: 67_108_864, altogether: 134_217_728 };
/** What every answer may have gathered without waiting, bytes: most pages are no longer. */
export const gatheredAtOnceBytes = 65_536;
/** Longest time that an answer waits for room. */
export const unfinishedTimeoutMs = 30_000;
/** When to come again, where there was no room. */
const retryUnfinishedMs = 2_000;
/** One for all: a thousand clients may go within one turn of the event loop, and where each was refused tells nothing. */
const noRoom = MatrixError.limitExceeded(retryUnfinishedMs);

interface Waiting {
  readonly sinceMs: number;
  go(): void;
  refuse(): void;
}

/** An answer that is gathered. */
export interface UnfinishedAnswer {
  /**
   * Notes bytes that have come. @returns when more may be asked for; `undefined`: at once
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` after the end, or when there was no room for too long
   */
  take(bytes: number, nowMs: number): Promise<void> | undefined;
  /** The answer is on its way, or nobody wants it any more. */
  end(): void;
}

interface Entry {
  readonly holder: string;
  bytes: number;
  /** Of {@link bytes}, what was promised to it when it was let go on, as much as its last piece had. */
  promisedBytes: number;
  lastBytes: number;
  waiting: Waiting | undefined;
  isOver: boolean;
}

/**
 * The answers that modules have begun. An answer goes out when it is whole, so that what breaks off half-way is an error that a client
 * can read; how fast it comes is up to the module. While too much has been gathered for one user or address, or altogether, only
 * the oldest goes on, and the others are not asked for more: what a client asks for a thousand times at once costs no more memory.
 */
export class UnfinishedAnswers {
  /** Those that hold more than every answer may, in the order in which they began to. */
  readonly #large = new Set<Entry>();
  readonly #largeByHolder = new Map<string, Set<Entry>>();
  readonly #bytes: HeldBytes;
  #isGoingOn = false;

  constructor(private readonly limits: HeldLimits = unfinishedLimits) {
    this.#bytes = new HeldBytes(limits);
  }

  /** Bytes that are held. */
  get altogether(): number {
    return this.#bytes.altogether;
  }

  /** An answer begins. @param holder who is answerable for its bytes */
  begin(holder: string): UnfinishedAnswer {
    const entry: Entry = { holder, bytes: 0, promisedBytes: 0, lastBytes: 0, waiting: undefined, isOver: false };
    return {
      take: (bytes, nowMs) => this.#take(entry, bytes, nowMs),
      end: () => this.#end(entry),
    };
  }

  /** Refuses what has waited for too long. To be called now and then. */
  check(nowMs: number): void {
    for (const { waiting } of this.#large)
      if (waiting !== undefined && nowMs - waiting.sinceMs > unfinishedTimeoutMs) waiting.refuse();
  }

  #take(entry: Entry, bytes: number, nowMs: number): Promise<void> | undefined {
    if (entry.isOver) throw noRoom;
    this.#note(entry, bytes - entry.promisedBytes);
    entry.promisedBytes = 0;
    entry.lastBytes = bytes;
    if (entry.bytes <= gatheredAtOnceBytes) return undefined;
    this.#large.add(entry);
    let own = this.#largeByHolder.get(entry.holder);
    if (own === undefined) this.#largeByHolder.set(entry.holder, (own = new Set()));
    own.add(entry);
    if (this.#mayGoOn(entry)) return undefined;
    return new Promise((resolve, reject) => {
      entry.waiting = {
        sinceMs: nowMs,
        go: resolve,
        refuse: () => {
          reject(noRoom);
          this.#end(entry);
        },
      };
    });
  }

  #mayGoOn(entry: Entry): boolean {
    const { ofHolder, altogether } = this.limits;
    const isFirst = (entries: Iterable<Entry> | undefined): boolean => {
      const [first] = entries ?? [];
      return first === entry;
    };
    return (
      (this.#bytes.altogether <= altogether || isFirst(this.#large)) &&
      (this.#bytes.of(entry.holder) <= ofHolder || isFirst(this.#largeByHolder.get(entry.holder)))
    );
  }

  #note(entry: Entry, bytes: number): void {
    entry.bytes += bytes;
    this.#bytes.add(entry.holder, bytes);
  }

  #end(entry: Entry): void {
    if (entry.isOver) return;
    entry.isOver = true;
    this.#bytes.give(entry.holder, entry.bytes);
    this.#large.delete(entry);
    const own = this.#largeByHolder.get(entry.holder);
    own?.delete(entry);
    if (own?.size === 0) this.#largeByHolder.delete(entry.holder);
    entry.waiting?.refuse();
    if (this.#isGoingOn) return;
    this.#isGoingOn = true;
    // Once, where a thousand clients go at the same time.
    setImmediate(() => {
      this.#isGoingOn = false;
      this.#goOn();
    });
  }

  /** Lets go on who may. Each is promised as much as it took last, or all of them would find the same room. */
  #goOn(): void {
    for (const entry of this.#large) {
      const { waiting } = entry;
      if (waiting === undefined || !this.#mayGoOn(entry)) continue;
      entry.waiting = undefined;
      entry.promisedBytes = entry.lastBytes;
      this.#note(entry, entry.promisedBytes);
      waiting.go();
    }
  }
}
