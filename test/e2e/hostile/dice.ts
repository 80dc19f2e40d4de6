import { randomFrom } from '../../support/random.js';

/** Chance that can be had again: the same seed gives the same choices. */
export class Dice {
  /** At least 0, less than 1. */
  readonly next: () => number;

  /** @param seed any text */
  constructor(seed: string) {
    let hash = 2166136261;
    for (let i = 0; i < seed.length; i++) hash = Math.imul(hash ^ seed.charCodeAt(i), 16777619);
    this.next = randomFrom(hash);
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
