import { type HeldLimits, HeldBytes } from './held-bytes.js';

/** Bytes of answers that clients have not read yet. */
export const answerLimits: HeldLimits = { ofHolder: 67_108_864, altogether: 268_435_456 };
/** How long a client may leave what is written to it where it is, or take next to nothing of it. */
export const answerTimeoutMs = 60_000;
/** Less than this is next to nothing, bytes. */
export const leastTakenBytes = 16_384;
/** So is, of an answer that holds much, less than this part: within an hour it is read. */
const leastTakenShare = 1 / 60;

/** An answer that the client has not read whole. */
export interface UnreadAnswer {
  /** Who is answerable for it. */
  readonly holder: string;
  /** Bytes that the system took so far; `undefined` while nothing waits for the client. */
  readonly takenBytes: number | undefined;
  /** Ends the connection. */
  cut(): void;
}

interface Entry {
  readonly holder: string;
  readonly bytes: number;
  takenBytes: number | undefined;
  sinceMs: number;
}

/**
 * The answers that clients have not read yet. Who reads too slowly is cut off; so is, of a user or address that leaves too
 * much unread, what waits for the longest time, and the same of all together. The newest one always stays: a single answer
 * may be larger than the limit.
 */
export class UnreadAnswers {
  readonly #entries = new Map<UnreadAnswer, Entry>();
  readonly #byHolder = new Map<string, Set<UnreadAnswer>>();
  readonly #bytes: HeldBytes;

  constructor(limits: HeldLimits = answerLimits) {
    this.#bytes = new HeldBytes(limits);
  }

  /** Answers under way. */
  get size(): number {
    return this.#entries.size;
  }

  /** Bytes that somebody has not read yet. */
  bytesOf(holder: string): number {
    return this.#bytes.of(holder);
  }

  /** Notes an answer of which the client has not taken everything at once. */
  add(answer: UnreadAnswer, bytes: number, nowMs: number): void {
    const { holder } = answer;
    this.#entries.set(answer, { holder, bytes, takenBytes: answer.takenBytes, sinceMs: nowMs });
    let own = this.#byHolder.get(holder);
    if (own === undefined) this.#byHolder.set(holder, (own = new Set()));
    own.add(answer);
    this.#bytes.add(holder, bytes);
    const { limits } = this.#bytes;
    while (this.#bytes.of(holder) > limits.ofHolder && this.#cutOldest(own, answer));
    while (this.#bytes.altogether > limits.altogether && this.#cutOldest(this.#entries.keys(), answer));
  }

  /** An answer is read, or its client has gone. */
  remove(answer: UnreadAnswer): void {
    const entry = this.#entries.get(answer);
    if (entry === undefined) return;
    this.#entries.delete(answer);
    this.#bytes.give(entry.holder, entry.bytes);
    const own = this.#byHolder.get(entry.holder);
    own?.delete(answer);
    if (own?.size === 0) this.#byHolder.delete(entry.holder);
  }

  /** Cuts off who has taken nothing, or next to nothing, for a minute. To be called now and then. */
  check(nowMs: number): void {
    for (const [answer, entry] of this.#entries) {
      const { takenBytes } = answer;
      const leastBytes = Math.max(leastTakenBytes, entry.bytes * leastTakenShare);
      if (takenBytes === undefined || takenBytes - (entry.takenBytes ?? -Infinity) >= leastBytes) {
        entry.takenBytes = takenBytes;
        entry.sinceMs = nowMs;
      } else if (nowMs - entry.sinceMs > answerTimeoutMs) this.#cut(answer);
    }
  }

  #cut(answer: UnreadAnswer): void {
    this.remove(answer);
    answer.cut();
  }

  #cutOldest(answers: Iterable<UnreadAnswer>, newest: UnreadAnswer): boolean {
    for (const answer of answers) {
      if (answer === newest) return false;
      this.#cut(answer);
      return true;
    }
    return false;
  }
}
