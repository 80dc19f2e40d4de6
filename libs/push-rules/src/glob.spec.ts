import fc from 'fast-check';
import { compileGlob } from './glob.js';

describe('whole globs', () => {
  it.each([
    ['cake', 'cake', true],
    ['cake', 'CAKE', true],
    ['cake', 'cakes', false],
    ['cak?', 'cake', true],
    ['cak?', 'cak', false],
    ['c*e', 'ce', true],
    ['c*e', 'cheese', true],
    ['c*e', 'cheeses', false],
    ['*', '', true],
    ['', '', true],
    ['', 'a', false],
    ['a?c', 'a\u{1f600}c', true],
    ['a*b*c', 'abcbc', true],
    ['ab*ba', 'aba', false],
    ['m.room.*', 'm.room.member', true],
    ['m.room.*', 'mxroomxmember', false],
    ['[a-z]', 'b', false],
  ])('%s on %j: %s', (pattern, text, expected) => {
    expect(compileGlob(pattern, 'whole')(text)).toBe(expected);
  });

  it('agrees with a regular expression on every short text', () => {
    const alphabet = fc.stringMatching(/^[ab*?]{0,6}$/);
    const text = fc.stringMatching(/^[ab]{0,8}$/);
    fc.assert(
      fc.property(alphabet, text, (pattern, value) => {
        const expression = new RegExp(`^${pattern.replaceAll('*', '.*').replaceAll('?', '.')}$`);
        expect(compileGlob(pattern, 'whole')(value)).toBe(expression.test(value));
      }),
    );
  });

  it('takes linear time where backtracking would not end', () => {
    const matches = compileGlob(`${'a*'.repeat(200)}b`, 'whole');
    expect(matches('a'.repeat(50_000))).toBe(false);
  });

  it('matches what gets longer in lower case, and what takes two units where one character may be', () => {
    for (const text of ['\u0130', '\u{1f600}'])
      for (const pattern of [text, '*', '?*'])
        expect([text, pattern, compileGlob(pattern, 'whole')(text)]).toEqual([text, pattern, true]);
    expect(compileGlob('??', 'whole')('\u{1f600}\u{1f600}')).toBe(true);
    expect(compileGlob('??', 'whole')('\u{1f600}\u{1f600}a')).toBe(false);
  });

  it('finds nothing more once its effort is used up', () => {
    const text = `${'a'.repeat(50_000)} b`;
    for (const pattern of ['b', 'a', '?', '*b', 'b*']) {
      const [enough, none] = [{ left: 10_000_000 }, { left: 0 }];
      expect([pattern, compileGlob(pattern, 'words')(text, enough)]).toEqual([pattern, pattern !== 'a']);
      expect([pattern, compileGlob(pattern, 'words')(text, none)]).toEqual([pattern, false]);
    }
    // What is as short as the pattern is looked at all the same: rules of the server ask for types.
    expect(compileGlob('m.room.message', 'whole')('m.room.message', { left: 0 })).toBe(true);
  });
});

describe('globs on words', () => {
  it.each([
    ['cake', 'a piece of cake!', true],
    ['cake', 'pancakes', false],
    ['cake', 'cake_shop', false],
    ['cake', 'CAKE', true],
    ['cak*', 'caked in mud', true],
    ['*ake', 'handshake', true],
    ['c*e', 'see a cheesecake here', true],
    ['@room', 'hello @room', true],
    ['al?ce', 'hi alice.', true],
    ['al?ce', 'malice', false],
    ['*', 'anything', true],
    ['', 'anything', false],
    ['日本', '日本', true],
  ])('%s in %j: %s', (pattern, text, expected) => {
    expect(compileGlob(pattern, 'words')(text)).toBe(expected);
  });

  it('agrees with a regular expression on every short text', () => {
    const alphabet = fc.stringMatching(/^[ab*? ]{1,5}$/).filter((pattern) => pattern.replaceAll('*', '') !== '');
    const text = fc.stringMatching(/^[ab !]{0,8}$/);
    fc.assert(
      fc.property(alphabet, text, (pattern, value) => {
        const inner = pattern.replaceAll('*', '.*').replaceAll('?', '.');
        // A boundary is an end of the text or a place with a character that is no letter, digit or underscore on one side.
        const edge = '(?:^|$|\\b|(?<=\\W)|(?=\\W))';
        const begins = pattern.startsWith('*') ? '' : edge;
        const ends = pattern.endsWith('*') ? '' : edge;
        expect(compileGlob(pattern, 'words')(value)).toBe(new RegExp(begins + inner + ends).test(value));
      }),
    );
  });
});
