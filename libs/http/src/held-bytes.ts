/** Bytes that may be held at most. */
export interface HeldLimits {
  /** For one user or server, or the network of one address where nobody has proved who it is. */
  readonly ofHolder: number;
  readonly altogether: number;
}

/** Counts bytes in memory by those they are held for, so that nobody makes the process hold them without bound. */
export class HeldBytes {
  readonly #byHolder = new Map<string, number>();
  #altogether = 0;

  constructor(readonly limits: HeldLimits) {}

  /** How many bytes are held. */
  get altogether(): number {
    return this.#altogether;
  }

  /** How many bytes are held for somebody. */
  of(holder: string): number {
    return this.#byHolder.get(holder) ?? 0;
  }

  /** Notes more bytes. @returns whether they are within the limits; if not, nothing is noted */
  take(holder: string, bytes: number): boolean {
    const held = this.of(holder) + bytes;
    if (held > this.limits.ofHolder || this.#altogether + bytes > this.limits.altogether) return false;
    this.#note(holder, held, bytes);
    return true;
  }

  /** Notes more bytes, whatever the limits are. */
  add(holder: string, bytes: number): void {
    this.#note(holder, this.of(holder) + bytes, bytes);
  }

  /** Bytes that are held no longer. */
  give(holder: string, bytes: number): void {
    this.#note(holder, this.of(holder) - bytes, -bytes);
  }

  #note(holder: string, held: number, change: number): void {
    this.#altogether += change;
    if (held > 0) this.#byHolder.set(holder, held);
    else this.#byHolder.delete(holder);
  }
}
