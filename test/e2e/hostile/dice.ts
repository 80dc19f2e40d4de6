/** Chance that can be had again: the same seed gives the same choices. */
export class Dice {
  #state: number;

  /** @param seed any text */
  constructor(seed: string) {
    let hash = 2166136261;
    for (let i = 0; i < seed.length; i++) hash = Math.imul(hash ^ seed.charCodeAt(i), 16777619);
    this.#state = hash >>> 0;
  }

  /** At least 0, less than 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  }
  /** A whole number below `count`. */
  below(count: number): number {
    return Math.floor(this.next() * count);
  }
  /** Whether something of this likelihood happens. */
  chance(likelihood: number): boolean {
    return this.next() < likelihood;
  }
  /** One of several. */
  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)]!;
  }
}
