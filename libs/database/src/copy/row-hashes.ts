import { hash } from 'node:crypto';

/** So many halves can be added up before a number is no longer exact. */
const exactLines = 2 ** 20;

/** The sum of the hashes of lines, modulo 2^64: the same whatever their order. */
export function hashOf(lines: Iterable<string | Uint8Array>): bigint {
  let sum = 0n;
  let [high, low, count] = [0, 0, 0];
  const add = (): void => {
    sum += (BigInt(high) << 32n) + BigInt(low);
    [high, low, count] = [0, 0, 0];
  };
  for (const line of lines) {
    // As text and in plain numbers: a buffer and a big number for each line would cost more than the hashes do.
    const bytes = hash('sha1', line, 'binary');
    high += wordAt(bytes, 0);
    low += wordAt(bytes, 4);
    if (++count === exactLines) add();
  }
  add();
  return BigInt.asUintN(64, sum);
}

const wordAt = (bytes: string, start: number): number =>
  ((bytes.charCodeAt(start) << 24) |
    (bytes.charCodeAt(start + 1) << 16) |
    (bytes.charCodeAt(start + 2) << 8) |
    bytes.charCodeAt(start + 3)) >>>
  0;
