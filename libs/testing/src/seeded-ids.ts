import { Ids } from '@rookery/platform';

/** Repeatable "randomness" for tests: the same seed gives the same sequence. Never for secrets. */
export class SeededIds extends Ids {
  #state: number;

  constructor(seed = 1) {
    super();
    this.#state = seed >>> 0;
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.alloc(length);
    for (let i = 0; i < length; i++) bytes[i] = this.#next() & 0xff;
    return bytes;
  }

  integer(below: number): number {
    if (!Number.isSafeInteger(below) || below < 1) throw new RangeError('integer() needs a positive whole number');
    return Math.floor((this.#next() / 2 ** 32) * below);
  }

  // An additive counter through an integer hash: every seed has the full period of 2^32.
  #next(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    return (mixed ^ (mixed >>> 16)) >>> 0;
  }
}
