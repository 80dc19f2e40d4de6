import { setImmediate as nextTurn } from 'node:timers/promises';
import { jsonParts, WrittenList } from './json-parts.js';

const event = (n: number): object => ({
  type: 'org.example',
  n,
  'ü"': [null, true, -1.5e9, { deep: 'x'.repeat(400) }],
});
const events = (count: number): object[] => Array.from({ length: count }, (_, n) => event(n));
const textOf = async (value: unknown): Promise<string> => {
  const written = await jsonParts(value);
  return typeof written === 'string' ? written : Buffer.concat(written).toString();
};

it.each([
  ['nothing', undefined, 'null'],
  ['a short value', { a: 1, b: undefined }, '{"a":1}'],
  ['an empty list that is written', { chunk: new WrittenList() }, '{"chunk":[]}'],
])('writes %s', async (_what, value, text) => {
  expect(await textOf(value)).toBe(text);
});

it('writes what is long as JSON.stringify does', async () => {
  const value = {
    ...{ first: 1, nothing: undefined, call: () => 1, at: new Date(0), empty: [], none: {}, text: 'é'.repeat(300_000) },
    list: [undefined, () => 1, ...events(2_000)],
    rooms: { '!a': { state: events(1_500) }, '!b': { state: [] } },
    ['__proto__' as string]: 1,
  };
  expect(await textOf(value)).toBe(JSON.stringify(value));
  expect(await textOf(events(3_000))).toBe(JSON.stringify(events(3_000)));
});

it('puts written lists in their places, which are lists to all others', async () => {
  const list = new WrittenList();
  for (const part of [[], events(2), [], events(3)]) list.add(part);
  const value = { before: 1, chunk: list, lists: [list, events(1)] };
  expect(list).toHaveLength(5);
  expect(await textOf(value)).toBe(JSON.stringify(value));
  expect(JSON.parse(await textOf(value))).toMatchObject({ before: 1, chunk: [...events(2), ...events(3)] });
  list.addWritten([]);
  list.addWritten(['{"as":1}', '[ "it is" ]']);
  expect(list).toHaveLength(7);
  expect(Buffer.concat(list.parts()).toString()).toMatch(/\},\{"as":1\},\[ "it is" \]\]$/);
});

it('writes about a quarter of a million characters in a turn, however many answers are written', async () => {
  let turn = 0;
  let isDone = false;
  const perTurn = new Map<number, number>();
  const watched = (n: number): object =>
    Object.defineProperty(event(n), 'seen', {
      enumerable: true,
      get: () => {
        perTurn.set(turn, (perTurn.get(turn) ?? 0) + 1);
        return 1;
      },
    });
  const values = ['a', 'b', 'c'].map(() => Array.from({ length: 3_000 }, (_, n) => watched(n)));
  const all = Promise.all(values.map((value) => jsonParts(value))).then(() => void (isDone = true));
  for (; !isDone; turn++) await nextTurn();
  await all;
  const [atOnce, ...later] = perTurn.values();
  expect(atOnce! + later.reduce((sum, each) => sum + each)).toBeGreaterThan(2 * 9_000);
  // Each is looked at before it is written: twice 262,144 characters of 450 each, and those that were only looked at.
  expect(Math.max(...later)).toBeLessThan(1_800);
});

it('says what holds itself', async () => {
  const value: { list: unknown[] } = { list: events(2_000) };
  value.list.push(value);
  await expect(jsonParts(value)).rejects.toThrow('circular');
});
