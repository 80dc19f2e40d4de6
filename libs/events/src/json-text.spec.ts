import fc from 'fast-check';
import { InvalidEventError, NumberText, parseJson } from './index.js';

/** Texts full of what could be taken for a number, or for the end of a string. */
const trickyText = fc.string({ unit: fc.constantFrom(...'"\\[]{},: 019.eE-\n') });
const plainNumber = fc
  .oneof(fc.maxSafeInteger(), fc.constantFrom(0, 1, -1, 2 ** 53 - 1, 1 - 2 ** 53))
  .map((n) => `${n}`);
const oddNumber = fc.constantFrom(
  ...[
    '1.0',
    '-0',
    '0.5',
    '1e3',
    '1E+2',
    '0e0',
    '-0.0',
    '9007199254740992',
    '-9007199254740993',
    '1'.repeat(40),
    '1e400',
  ],
);
const space = fc.constantFrom('', ' ', '\n\t ');

/** A list or an object, as text, of strings and of numbers in the given texts. */
const around = (numbers: readonly string[]): fc.Arbitrary<string> =>
  fc.tuple(fc.array(trickyText, { maxLength: 6 }), fc.nat(), space, fc.boolean()).map(([texts, at, gap, asObject]) => {
    const items = texts.map((text) => JSON.stringify(text));
    items.splice(at % (items.length + 1), 0, ...numbers);
    const members = asObject
      ? items.map((item, i) => `${JSON.stringify(`${i}|${texts[i] ?? ''}`)}${gap}:${gap}${item}`)
      : items;
    const body = members.join(`${gap},${gap}`);
    return asObject ? `{${gap}${body}${gap}}` : `[${gap}${body}${gap}]`;
  });

function numberTexts(value: unknown): string[] {
  if (value instanceof NumberText) return [value.source];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(numberTexts);
}

describe('parseJson', () => {
  it('is JSON.parse where all numbers are canonical', () => {
    fc.assert(
      fc.property(fc.array(plainNumber, { maxLength: 3 }).chain(around), (text) => {
        expect(parseJson(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 2000 },
    );
  });

  it('finds every number that is not, whatever stands around it', () => {
    fc.assert(
      fc.property(
        oddNumber.chain((odd) => fc.tuple(fc.constant(odd), around(['7', odd, '8']))),
        ([odd, text]) => {
          expect(numberTexts(parseJson(text))).toEqual([odd]);
        },
      ),
      { numRuns: 2000 },
    );
  });

  it('does not mind depth, size or names of prototypes', () => {
    const nested = '['.repeat(1_000_000) + '1.0' + ']'.repeat(1_000_000);
    let inner: unknown = parseJson(`{"deep":${nested},"__proto__":{"n":1e3,"__proto__":-0}}`);
    expect(numberTexts((inner as Record<string, unknown>)['__proto__'])).toEqual(['1e3', '-0']);
    inner = (inner as Record<string, unknown>)['deep'];
    for (let i = 0; i < 1_000_000; i++) inner = (inner as unknown[])[0];
    expect(inner).toEqual(new NumberText('1.0'));
    expect(parseJson('1.0')).toEqual(new NumberText('1.0'));
    expect(parseJson(' -0 ')).toEqual(new NumberText('-0'));
  });

  it('does not repair what is not JSON', () => {
    for (const text of [
      '01.0',
      '[1.]',
      '[.5]',
      '[+1.0]',
      '[1e]',
      '[1.0',
      '{1.0:1}',
      '[--1]',
      '[1.0.0]',
      '[1.0x]',
      '',
    ]) {
      expect(() => parseJson(text)).toThrow(InvalidEventError);
    }
  });
});
