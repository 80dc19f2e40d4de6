import { createHash } from 'node:crypto';
import { hashOf } from './row-hashes.js';

describe('hashOf', () => {
  it('is the sum of the first eight bytes of each hash, in whatever order', () => {
    const lines = Array.from({ length: 500 }, (_, i) => `line ${i} \u00e4\u{1f600}`);
    const expected = lines.reduce(
      (sum, line) => BigInt.asUintN(64, sum + createHash('sha1').update(line).digest().readBigUInt64BE()),
      0n,
    );
    expect(hashOf(lines)).toBe(expected);
    expect(hashOf(lines.toReversed().map((line) => Buffer.from(line)))).toBe(expected);
    expect(hashOf(lines.slice(1))).not.toBe(expected);
    expect(hashOf([])).toBe(0n);
  });
});
