import { randomBytes, randomInt } from 'node:crypto';

const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ';
const upper = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

/** The only source of randomness. Everything here is unpredictable: fit for secrets. */
export abstract class Ids {
  /** `length` random bytes. */
  abstract bytes(length: number): Buffer;
  /** A random integer in `[0, below)`. */
  abstract integer(below: number): number;

  /** `length` random ASCII letters of either case (5.7 bits each). */
  letters(length: number): string {
    return this.#pick(letters, length);
  }
  /** `length` random upper-case ASCII letters (4.7 bits each): device ids. */
  upperLetters(length: number): string {
    return this.#pick(upper, length);
  }
  #pick(alphabet: string, length: number): string {
    let text = '';
    for (let i = 0; i < length; i++) text += alphabet[this.integer(alphabet.length)];
    return text;
  }
}

/** The system's random source. */
export class SystemIds extends Ids {
  bytes(length: number): Buffer {
    return randomBytes(length);
  }
  integer(below: number): number {
    return randomInt(below);
  }
}
