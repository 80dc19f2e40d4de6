import { canonicalEmail } from './addresses.js';

describe('an email address', () => {
  it('is one for all ways to write it', () => {
    expect(canonicalEmail('Ann.B+C@Example.ORG')).toBe('ann.b+c@example.org');
  });

  it('is none where no mail could be written to it', () => {
    const atLimit = `${'x'.repeat(64)}@${'y'.repeat(255)}`;
    expect(canonicalEmail(atLimit)).toBe(atLimit);
    const refused = [
      `${'x'.repeat(65)}@example.org`,
      `x@${'y'.repeat(256)}`,
      // Longer, or another sign, once folded.
      `${'ß'.repeat(33)}@example.org`,
      'a\u037eb@example.org',
      ...['a..b@example.org', 'a@b@c.org', '@example.org', 'a@', 'a b@example.org', 'a@-example.org', ''],
    ];
    for (const address of refused) expect(() => canonicalEmail(address)).toThrow('Not a valid email address');
  });
});
