import fc from 'fast-check';
import { canonicalJson, InvalidEventError, parseJson } from './index.js';

/** Canonical JSON's values: no fractions, integers in range, whole code points. */
const text = fc.string({ unit: 'binary', maxLength: 12 });
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    text,
    fc.maxSafeInteger(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 5 }),
    fc.dictionary(text, tie('value'), { maxKeys: 6 }),
  ),
}));

const codePoints = (key: string): number[] => Array.from(key, (char) => char.codePointAt(0) as number);

function compareCodePoints(a: string, b: string): number {
  const x = codePoints(a);
  const y = codePoints(b);
  for (let i = 0; i < Math.min(x.length, y.length); i++) {
    if (x[i] !== y[i]) return (x[i] as number) - (y[i] as number);
  }
  return x.length - y.length;
}

/** Slow and obvious. */
function reference(of: unknown): string {
  if (Array.isArray(of)) return `[${of.map(reference).join(',')}]`;
  if (typeof of !== 'object' || of === null) return JSON.stringify(Object.is(of, -0) ? 0 : of);
  const entries = Object.entries(of).sort(([a], [b]) => compareCodePoints(a, b));
  return `{${entries.map(([key, inner]) => `${JSON.stringify(key)}:${reference(inner)}`).join(',')}}`;
}

describe('canonicalJson', () => {
  it('agrees with a slow and obvious writer, and survives a round trip', () => {
    fc.assert(
      fc.property(value, (any) => {
        const canonical = canonicalJson(any);
        expect(canonical).toBe(reference(any));
        expect(canonicalJson(parseJson(canonical))).toBe(canonical);
        expect(canonicalJson(JSON.parse(JSON.stringify(any, null, 3)))).toBe(canonical);
      }),
      { numRuns: 1000 },
    );
  });

  it('orders keys by code point, not by UTF-16 unit', () => {
    expect(canonicalJson({ '\u{1f600}': 1, '\uff01': 2, '\ue000': 3, z: 4, '\ud7ff': 5 })).toBe(
      '{"z":4,"\ud7ff":5,"\ue000":3,"\uff01":2,"\u{1f600}":1}',
    );
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.string({ unit: 'binary', minLength: 1, maxLength: 3 }), { maxLength: 8 }),
        (keys) => {
          const written = canonicalJson(Object.fromEntries(keys.map((key) => [key, 0])));
          const inOrder = [...keys].sort(compareCodePoints).map((key) => `${JSON.stringify(key)}:0`);
          expect(written).toBe(`{${inOrder.join(',')}}`);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('does not let keys that look like integers jump ahead', () => {
    expect(canonicalJson({ b: 1, 10: 2, 9: 3, a: 4 })).toBe('{"10":2,"9":3,"a":4,"b":1}');
  });

  it('writes the shortest escapes', () => {
    expect(canonicalJson('\b\t\n\f\r"\\/\u0000\u001f\u007f\u2028é🙂')).toBe(
      '"\\b\\t\\n\\f\\r\\"\\\\/\\u0000\\u001f\u007f\u2028é🙂"',
    );
  });

  it('treats keys of prototypes as any other', () => {
    const tricky = '{"__proto__":{"a":1},"constructor":2,"hasOwnProperty":3,"toString":4}';
    expect(canonicalJson(parseJson(tricky))).toBe(tricky);
  });

  it('leaves out what is undefined', () => {
    expect(canonicalJson({ a: undefined, b: [undefined, 1] })).toBe('{"b":[null,1]}');
  });

  it.each([
    ['1', '1'],
    ['-0', '0'],
    ['-0.0', '-0.0'],
    ['1.0', '1.0'],
    ['50.00', '50.0'],
    ['0.10', '0.1'],
    ['1.5', '1.5'],
    ['1e3', '1000'],
    ['1E+2', '100'],
    ['0e5', '0'],
    ['1e-400', '0'],
    // As the servers write it in which rooms of these versions are made.
    ['0.0001', '0.0001'],
    ['0.00012345', '0.00012345'],
    ['0.00009999', '9.999e-05'],
    ['0.00001', '1e-05'],
    ['1e-07', '1e-07'],
    ['-0.00000015', '-1.5e-07'],
    ['5e-324', '5e-324'],
    ['1e15', '1000000000000000'],
    ['1000000000000000.0', '1000000000000000.0'],
    ['9999999999999998.0', '9999999999999998.0'],
    ['1e16', '1e+16'],
    ['10000000000000000.0', '1e+16'],
    ['12345678901234567890.0', '1.2345678901234567e+19'],
    ['1e21', '1e+21'],
    ['1.7976931348623157e308', '1.7976931348623157e+308'],
    ['10000000000000000000000', '10000000000000000000000'],
    ['9007199254740993', '9007199254740993'],
    ['9223372036854775807', '9223372036854775807'],
    ['-9223372036854775808', '-9223372036854775808'],
  ])('writes %s as %s', (source, canonical) => {
    for (const [open, close] of [
      ['', ''],
      ['[', ']'],
      ['{"a":{"b": ', '}}'],
      ['["\\"[1.0", ', ']'],
    ] as const) {
      const before = canonicalJson(parseJson(`${open}0${close}`))
        .split('0')
        .at(-1) as string;
      expect(canonicalJson(parseJson(open + source + close)).endsWith(canonical + before)).toBe(true);
    }
  });

  it.each([
    [1e-7, '1e-07'],
    [0.00001, '1e-05'],
    [0.5, '0.5'],
    [-0, '0'],
    [1e16, '10000000000000000'],
    [1e21, '1e+21'],
  ])('writes the plain number %d so that it is the same when it is read again', (value, canonical) => {
    expect(canonicalJson(value)).toBe(canonical);
    expect(canonicalJson(parseJson(canonical))).toBe(canonical);
    expect(canonicalJson(parseJson(JSON.stringify(value)))).toBe(canonical);
  });

  it('keeps the text of odd numbers through JSON.stringify', () => {
    const odd = '{"a":1.0,"b":[12345678901234567890,-0,1e3],"c":"1.0"}';
    expect(JSON.stringify(parseJson(odd))).toBe(odd);
  });

  it('throws InvalidEventError for what is not JSON', () => {
    for (const wrong of [
      undefined,
      NaN,
      Infinity,
      1n,
      Symbol('a'),
      () => 1,
      [1n],
      { a: () => 1 },
      parseJson('[1e400]'),
    ]) {
      expect(() => canonicalJson(wrong)).toThrow(InvalidEventError);
    }
  });

  it('bounds nesting without overflowing the stack', () => {
    const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
    expect(canonicalJson(parseJson(nested(500)))).toBe(nested(500));
    expect(() => canonicalJson(parseJson(nested(1_000_000)))).toThrow(InvalidEventError);
    const circle: unknown[] = [];
    circle.push(circle);
    expect(() => canonicalJson(circle)).toThrow(InvalidEventError);
  });
});
