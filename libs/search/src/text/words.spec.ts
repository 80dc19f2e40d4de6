import { highlightsOf, queryWordsOf, wordsOf } from './words.js';

describe('words', () => {
  it.each([
    ['Hello, World!', ['hello', 'world']],
    ['Café ÜBER naïve', ['cafe', 'uber', 'naive']],
    ['Cafe\u0301', ['cafe']],
    ['foo_bar-baz.42', ['foo', 'bar', 'baz', '42']],
    ['東京都', ['東京', '京都', '都']],
    ['ｶﾀｶﾅ', ['カタ', 'タカ', 'カナ', 'ナ']],
    ['Matrixは便利', ['matrix', 'は便', '便利', '利']],
    ['한국어 문장', ['한국어', '문장']],
    ['ภาษาไทย', ['ภาษา', 'ไทย']],
    ['हिन्दी', ['हिन्दी']],
    ["'); DROP & | : *", ['drop']],
    ['', []],
  ])('of %j', (text, expected) => {
    expect(wordsOf(text, 100)).toEqual(expected);
  });

  it('stop at the limit and cut what is too long', () => {
    expect(wordsOf('a b c d', 2)).toEqual(['a', 'b']);
    expect(wordsOf('x'.repeat(5_000), 2)).toEqual(['x'.repeat(100)]);
    expect(wordsOf('東'.repeat(50), 3)).toHaveLength(3);
  });

  it('are looked for by their beginning, pairs as they are', () => {
    expect(queryWordsOf('Mess mess 東京都 京', 10)).toEqual([
      { text: 'mess', prefix: true },
      { text: '東京', prefix: false },
      { text: '京都', prefix: false },
      { text: '京', prefix: true },
    ]);
    expect(highlightsOf('Mess 東京都', 10)).toEqual(['mess', '東京都']);
  });
});
