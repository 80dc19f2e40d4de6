import { SafePattern } from './safe-pattern.js';

it.each([
  ['casino', 'i', 'A CaSiNo here', true],
  ['^a(b|c)*d$', '', 'abcbcd', true],
  ['^a(b|c)*d$', '', 'abxd', false],
  ['\\bword\\b', '', 'a word, said', true],
  ['\\bword\\b', '', 'swords', false],
  ['^\\d{3,4}$', '', '12345', false],
  ['[^a-z\\]]{2}', '', 'ab]cAB', true],
  ['\\p{Script=Cyrillic}', '', 'naïve д', true],
  ['\\u{1F600}|\\uD83D\\uDE01', '', 'x😁', true],
  ['^two$', 'm', 'one\ntwo', true],
  ['^two$', '', 'one\ntwo', false],
  ['a.b', 's', 'a\nb', true],
  ['a.b', '', 'a\nb', false],
  ['(?:a?){5}b', '', 'aab', true],
  ['(?<name>x+)+y', '', 'xxy', true],
  ['', '', '', true],
  ['^$', '', '', true],
])('/%s/%s of %j is %s', (source, flags, text, expected) => {
  expect(new SafePattern(source, flags).test(text)).toBe(expected);
  expect(new RegExp(source, `${flags}u`).test(text)).toBe(expected);
});

it('says the same as the engine of patterns made by chance', () => {
  let seed = 4711;
  const chance = (of: number): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % of;
  const pick = <T>(from: readonly T[]): T => from[chance(from.length)]!;
  const make = (depth: number): string => {
    const kind = depth <= 0 ? 0 : chance(5);
    if (kind === 0) return pick(['a', 'b', '.', '[ab]', '[^a]', '\\w', '\\s', '\\b', '^', '$', '\\B']);
    if (kind === 1) return make(depth - 1) + make(depth - 1);
    if (kind === 2) return `(?:${make(depth - 1)}|${make(depth - 1)})`;
    return `(?:${make(depth - 1)})${pick(['*', '+', '?', '{2}', '{1,3}', '{0,2}?', '{2,}'])}`;
  };
  for (let i = 0; i < 2_000; i++) {
    const source = make(4);
    const [safe, engine] = [new SafePattern(source), new RegExp(source, 'u')];
    for (let j = 0; j < 5; j++) {
      const text = Array.from({ length: chance(8) }, () => pick(['a', 'b', ' ', '\n', 'é'])).join('');
      if (safe.test(text) !== engine.test(text)) throw new Error(`/${source}/ of ${JSON.stringify(text)}`);
    }
  }
});

it.each(['^(a+)+$', '^(a|a)*$', '^(a|aa)+$', '(.*)*x$'])('takes no longer than the text is: %s', (source) => {
  expect(new SafePattern(source).test(`${'a'.repeat(60_000)}!`)).toBe(false);
});

it('reads a repeated nothing once, however often it is to come', () => {
  expect(new SafePattern('^(?:(?:(?:(?:){1000}){1000}){1000}a){2}$').test('aa')).toBe(true);
  expect(new SafePattern('(((){1000}){1000}){1000}').test('')).toBe(true);
});

it.each(['(a)\\1', '(?=a)', '(?<!a)b', '(?<n>a)\\k<n>', '(', 'a{2,1}', '[b-a]'])('refuses %s', (source) => {
  expect(() => new SafePattern(source)).toThrow(SyntaxError);
});

it('refuses what would grow without a limit', () => {
  expect(() => new SafePattern('(?:a{100}){100}')).toThrow(RangeError);
  expect(() => new SafePattern('a{5000}')).toThrow(RangeError);
  expect(() => new SafePattern('a'.repeat(20_000))).toThrow(RangeError);
  expect(() => new SafePattern('a', 'g')).toThrow(SyntaxError);
});
