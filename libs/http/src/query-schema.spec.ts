import { param, queryOf, type QueryParam } from './query-schema.js';

type Given = Readonly<Record<string, string | readonly string[] | undefined>>;

const read = <T>(one: QueryParam<T>, query: Given): T => queryOf({ x: one }).read({ query }).x as T;
const refusal = (one: QueryParam<unknown>, query: Given): string | undefined => {
  try {
    read(one, query);
    return undefined;
  } catch (error) {
    const { errcode, message } = error as { errcode: string; message: string };
    return `${errcode}: ${message}`;
  }
};

describe('parameters of query strings', () => {
  it.each([
    [param.string('A text.'), undefined],
    [param.integer('A number.', { otherwise: 7 }), 7],
    [param.boolean('Whether.', { otherwise: true }), true],
    [param.choice('Which.', ['a', 'b'], { otherwise: 'b' }), 'b'],
    [param.strings('Some.'), []],
    [param.parsed('A thing.', 'text', (text) => text ?? 'nothing'), 'nothing'],
  ])('are what counts without them when absent or empty: %#', (one, without) => {
    expect([read<unknown>(one, {}), read<unknown>(one, { x: '' })]).toEqual([without, without]);
  });

  it.each<[QueryParam<unknown>, string | readonly string[], unknown]>([
    [param.string('A text.'), 'a b', 'a b'],
    [param.integer('A number.'), '15', 15],
    [param.integer('A number.', { min: 1, max: 10, clamp: true }), '0', 1],
    [param.integer('A number.', { min: 1, max: 10, clamp: true }), '99', 10],
    [param.boolean('Whether.'), 'false', false],
    [param.choice('Which.', ['a', 'b']), 'a', 'a'],
    [param.choices('Which.', ['a', 'b']), ['a', '', 'b'], ['a', 'b']],
    [param.strings('Some.'), 'one', ['one']],
    [param.strings('Some.', { empty: true }), ['', 'one'], ['', 'one']],
    [param.parsed('A thing.', 'text', (text) => `<${text}>`), 'a', '<a>'],
  ])('are read: %#', (one, given, value) => expect(read(one, { x: given })).toEqual(value));

  it.each<[QueryParam<unknown>, Given, string]>([
    [param.string('A text.', { required: true }), {}, "M_MISSING_PARAM: Missing query parameter 'x'"],
    [param.string('A text.', { required: true }), { x: '' }, "M_MISSING_PARAM: Missing query parameter 'x'"],
    [param.string('A text.'), { x: ['a', 'b'] }, "M_INVALID_PARAM: Query parameter 'x' may be given once only"],
    [param.string('A text.', { maxLength: 2 }), { x: 'abc' }, "M_INVALID_PARAM: Query parameter 'x' is too long"],
    [param.integer('A number.'), { x: '1.5' }, "M_INVALID_PARAM: Query parameter 'x' must be an integer"],
    [param.integer('A number.'), { x: '-1' }, "M_INVALID_PARAM: Query parameter 'x' must be at least 0"],
    [param.integer('A number.', { max: 3 }), { x: '4' }, "M_INVALID_PARAM: Query parameter 'x' must be at most 3"],
    [
      param.integer('A number.', { clamp: true, max: 3 }),
      { x: '-4' },
      "M_INVALID_PARAM: Query parameter 'x' must be at least 0",
    ],
    [param.boolean('Whether.'), { x: 'yes' }, "M_INVALID_PARAM: Query parameter 'x' must be one of true, false"],
    [param.choice('Which.', ['a', 'b']), { x: 'c' }, "M_INVALID_PARAM: Query parameter 'x' must be one of a, b"],
    [
      param.choices('Which.', ['a', 'b']),
      { x: ['a', 'c'] },
      "M_INVALID_PARAM: Query parameter 'x' must be one of a, b",
    ],
    [
      param.strings('Some.', { max: 1 }),
      { x: ['a', 'b'] },
      "M_INVALID_PARAM: Query parameter 'x' may be given 1 times at most",
    ],
  ])('are refused: %#', (one, query, words) => expect(refusal(one, query)).toBe(words));

  it('go by their other names where the first is absent, and a list by all of them', () => {
    expect(read(param.integer('A number.', { also: ['y', 'z'] }), { z: '3', y: '2' })).toBe(2);
    expect(read(param.integer('A number.', { also: ['y'] }), { x: '0', y: '2' })).toBe(0);
    expect(refusal(param.integer('A number.', { also: ['y'] }), { y: 'b' })).toContain("'y' must be an integer");
    expect(read(param.strings('Some.', { also: ['y'] }), { y: 'b', x: ['a'] })).toEqual(['a', 'b']);
  });

  it('say in words what their bounds are', () => {
    expect(param.integer('A number.', { min: 1, max: 10, clamp: true, otherwise: 5 }).limits).toBe(
      '1 to 10, the nearest counts; default `5`',
    );
    expect(param.choice('Which.', ['a', 'b']).type).toBe('`a`, `b`');
  });
});
