import { hash } from 'node:crypto';

/** The sum of the hashes of lines: the same whatever their order. */
export function hashOf(lines: Iterable<string | Uint8Array>): bigint {
  let sum = 0n;
  for (const line of lines) sum += hash('sha1', line, 'buffer').readBigUInt64BE();
  return BigInt.asUintN(64, sum);
}
