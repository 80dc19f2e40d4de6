import { MatrixError } from '@rookery/matrix-types';
import { isDeepStrictEqual } from 'node:util';
import { type JsonRules, parseJsonInSlices, parseJsonText } from './json-text.js';

const outcome = async (text: string | Buffer, rules?: JsonRules): Promise<unknown> => {
  try {
    return await parseJsonInSlices(Buffer.from(text), rules);
  } catch (error) {
    return MatrixError.is(error) ? error.errcode : error;
  }
};

/** What `JSON.parse` makes of it. */
const expected = (text: string): unknown => {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return 'M_NOT_JSON';
  }
};

const pad = 'x'.repeat(70_000);
const big = `["${pad}",1]`;
const filler = Array.from({ length: 12_000 }, (_, i) => `"k${i}":[${i}]`).join(',');

describe('JSON text from outside', () => {
  it('is what JSON.parse makes of it, however long', async () => {
    const texts = [
      ...['1', '"a"', '[]', '{}', ' { "a" : [ 1 , 2 ] } ', 'null', '', ' ', '{', '[1,]', '{"a":1,}', '[1}', ']', ','],
      ...[`[${big},${big}]`, `[ ${big} , ${big} ]`, `{"a":${big},"b":1,"c":${big}}`, `[1,${big},2]`],
      ...[`[${big}`, `[${big},]`, `[,${big}]`, `[${big}${big}]`, `[${big} 1]`, `[1 ${big}]`, `[${big},,${big}]`],
      ...[`[-${big}]`, `{"a":-${big}}`, `{"a"${big}}`, `{${big}}`, `{"a":1 "b":${big}}`, `{"a":${big} "b":1}`],
      ...[`{"a":${big},}`, `${big}x`, `x${big}`, `${big}[1]`, `[1]${big}`, ` ${big} `, `{"a":${big}]`],
      ...[`{"a":"\\"${pad}","\\u0062":${big}}`, `[${big},"]",${big},"[,"]`, `{"é":${big},"a":"é"}`],
      ...[`{${filler}}`, `{${filler},}`, `{${filler},"k0":2}`, `{"x":{${filler}},"y":[{${filler}}]}`],
      ...[`{"__proto__":${big},"a":1}`, `{"__proto__":1,${filler}}`, `[${'[],'.repeat(100_000)}[]]`],
      `[${Array.from({ length: 8 }, () => `{"type":"x","content":{${filler}}}`).join(',')}]`,
    ];
    for (const text of texts) {
      for (const long of [text, text + ' '.repeat(300_000)]) {
        const made = await outcome(long);
        // A difference of megabytes helps nobody.
        expect([text.slice(0, 60), isDeepStrictEqual(made, expected(long))]).toEqual([text.slice(0, 60), true]);
      }
    }
    const polluted = (await outcome(`{"__proto__":${big},"a":1}`)) as object;
    expect([Object.getPrototypeOf(polluted), Object.keys(polluted)]).toEqual([Object.prototype, ['__proto__', 'a']]);
  });

  it('passes over a byte order mark, and takes nothing but UTF-8', async () => {
    expect(await outcome('\ufeff{"a":1}')).toEqual({ a: 1 });
    expect(await outcome(`\ufeff[${big}]`)).toEqual([JSON.parse(big)]);
    expect(await outcome(Buffer.from('{"a":"\xe9"}', 'latin1'))).toBe('M_NOT_JSON');
  });

  it('has an end to depth and to the number of values', async () => {
    expect(await outcome('['.repeat(128) + ']'.repeat(128))).toBeInstanceOf(Array);
    expect(await outcome('['.repeat(129) + ']'.repeat(129))).toBe('M_BAD_JSON');
    expect(await outcome(`[${'[],'.repeat(499)}1]`, { maxValues: 1_000 })).toHaveLength(500);
    expect(await outcome(`[${'[],'.repeat(500)}1]`, { maxValues: 1_000 })).toBe('M_TOO_LARGE');
    expect(await outcome(`["${'[{,'.repeat(500)}"]`, { maxValues: 10 })).toHaveLength(1);
  });

  it('has an end to the length of a string, where one is asked for', async () => {
    const rules = { maxStringBytes: 10 };
    for (const [text, made] of [
      ['["xxxxxxxxxx",1]', ['xxxxxxxxxx', 1]],
      ['["éé\\n\\u00",1]', 'M_NOT_JSON'],
      ['["\\u0041\\n\\"",1]', ['A\n"', 1]],
      ['["xxxxxxxxxxx",1]', 'M_TOO_LARGE'],
      ['{"xxxxxxxxxxx":1}', 'M_TOO_LARGE'],
      ['["éééééé"]', 'M_TOO_LARGE'],
      ['["xxxxxxxxx\\n"]', 'M_TOO_LARGE'],
      ['["xxxxxxxxxx', 'M_NOT_JSON'],
      ['["xxxxxxxxx\\', 'M_NOT_JSON'],
    ] as const)
      expect([text, await outcome(text, rules)]).toEqual([text, made]);
    expect(await outcome(`["${pad}"]`)).toEqual([pad]);
  });

  it('refuses numbers that would come out as others', async () => {
    for (const bad of ['1e999', '-1e999', '9007199254740993', '-9007199254740993', '12345678901234567890', '1E+400'])
      expect([bad, await outcome(`{"a":[${bad}]}`)]).toEqual([bad, 'M_BAD_JSON']);
    for (const good of [
      '9007199254740991',
      '-9007199254740991',
      '1e10',
      '0.1',
      '-0',
      '1.5e-400',
      '3.141592653589793238',
    ])
      expect([good, await outcome(`[${good}]`)]).toEqual([good, [Number(good)]]);
    expect(await outcome('[1e999,"1e999"]', { anyNumber: true })).toEqual([Infinity, '1e999']);
    expect(await outcome('{"1e999":"9007199254740993"}')).toEqual({ '1e999': '9007199254740993' });
  });

  it('is read at once while it is short, and lets others have their turn while it is long', async () => {
    expect(parseJsonText(Buffer.from(`[${big}]`))).toEqual([JSON.parse(big)]);
    let turns = 0;
    let done = false;
    const count = (): void => {
      turns++;
      if (!done) setImmediate(count);
    };
    setImmediate(count);
    await parseJsonInSlices(Buffer.from(`[${'{"a":1},'.repeat(120_000)}{}]`));
    done = true;
    expect(turns).toBeGreaterThan(10);
  });
});
