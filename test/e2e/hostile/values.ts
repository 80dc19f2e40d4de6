import type { Dice } from './dice.js';
import type { Names } from './examples.js';

/** JSON text that no JavaScript value is written as; see {@link toJsonText}. */
class RawJson {
  constructor(readonly text: string) {}
  toJSON(): string {
    return `\u0001raw:${this.text}\u0001`;
  }
}

/** JSON of a value that may hold raw pieces of text. */
export const toJsonText = (value: unknown): string =>
  (JSON.stringify(value) ?? 'null').replace(/"\\u0001raw:(.*?)\\u0001"/gs, (_, text: string) =>
    text.replaceAll('\\"', '"'),
  );

const long = 'x'.repeat(100_000);
const nested = (open: string, close: string, depth: number): RawJson =>
  new RawJson(`${open.repeat(depth)}1${close.repeat(depth)}`);

/** What stands where something else was expected. */
const values: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  -0,
  1e21,
  Number.MAX_SAFE_INTEGER,
  2 ** 31,
  2 ** 53,
  new RawJson('1e400'),
  new RawJson('-1e400'),
  new RawJson('123456789012345678901234567890'),
  new RawJson('1.0'),
  '',
  ' ',
  'NaN',
  'Infinity',
  '-1',
  'null',
  '0x10',
  long,
  'a\u0000b',
  '\u0000',
  '\ud800',
  'a\udfff\ud800',
  '\ufffe\uffff',
  '\u202e\u200b\r\n',
  '𝕏'.repeat(300),
  '%',
  "'; DROP TABLE users; --",
  '../../../etc/passwd',
  '__proto__',
  'constructor',
  '{{7*7}}<script>',
  '*'.repeat(500),
  '(a+)+$',
  [],
  {},
  [null],
  [[]],
  [{}],
  ['\u0000'],
  { '': '' },
  { '\u0000': '\u0000' },
  { '\ud800': 1 },
  new RawJson('{"__proto__":{"admin":true}}'),
  new RawJson('{"constructor":{"prototype":{"admin":true}}}'),
  new RawJson('{"toString":1,"hasOwnProperty":null,"length":-1}'),
  new RawJson('{"a":1,"a":2}'),
  nested('[', ']', 100),
  nested('{"a":', '}', 100),
  nested('[', ']', 500),
  nested('{"a":', '}', 500),
  new Array<number>(5_000).fill(7),
  Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, i])),
];

/** Ids of every kind, right and wrong. */
const ids = (names: Names): string[] => [
  names.userId,
  names.otherUserId,
  names.roomId,
  names.eventId,
  names.alias,
  names.serverName,
  names.syncToken,
  names.pageToken,
  names.deviceId,
  '@nobody:rookery.test',
  '@a:127.0.0.1:1',
  '!a:127.0.0.1:1',
  '#a:127.0.0.1:1',
  '$a:127.0.0.1:1',
  '!unknown:rookery.test',
  `!${'u'.repeat(43)}`,
  '#unknown:rookery.test',
  `$${'u'.repeat(43)}`,
  '@',
  '!',
  '#',
  '$',
  ':',
  '@:',
  '@a',
  '@a:',
  '@:rookery.test',
  '@a:b:c:d',
  '@a:[::1',
  '@a:rookery.test:99999',
  '@A B:rookery.test',
  '@a\u0000:rookery.test',
  '!a\u0000:rookery.test',
  `@${'u'.repeat(300)}:rookery.test`,
  `!${'r'.repeat(300)}:rookery.test`,
  `#${'r'.repeat(300)}:rookery.test`,
  `$${'r'.repeat(300)}`,
  '@é:rookery.test',
];

/** Any value at all; a fresh one, since it may be damaged further. */
export function hostileValue(dice: Dice, names: Names): unknown {
  const value = dice.chance(0.3) ? dice.pick(ids(names)) : dice.pick(values);
  return value instanceof RawJson ? value : structuredClone(value);
}

/** Text for a query or, in another place, a path. */
export function hostileText(dice: Dice, names: Names): string {
  const value = hostileValue(dice, names);
  return (typeof value === 'string' ? value : toJsonText(value)).slice(0, dice.chance(0.1) ? 20_000 : 3_000);
}

const numbers = [
  '60000',
  '-1',
  '0',
  '1.5',
  '1e9',
  '999999999',
  '99999999999999999999',
  'NaN',
  'Infinity',
  '',
  ' 1',
  '+1',
  '0x1',
  '٣',
];
const tokens = [
  's',
  't',
  's0',
  's-1',
  's99999999999999999999',
  't1-1',
  't-1_-1',
  's1_2_3_4_5_6_7_8_9_10',
  's1__',
  's1_x',
  'p',
  '0/0',
  's1.5',
  'S1',
  's\u0000',
];
const filters = [
  '{',
  '[]',
  'null',
  '1',
  '0',
  '-1',
  '{"room":1}',
  '{"room":{"timeline":{"limit":-1}}}',
  '{"room":{"timeline":{"limit":1e300}}}',
  '{"room":{"timeline":{"types":["****************a"]}}}',
  '{"room":{"rooms":[null]}}',
  '{"event_fields":["\\u0000","__proto__","..","a\\\\\\\\."]}',
  '{"presence":{"senders":"x"}}',
  '{"room":{"state":{"types":{}}}}',
  '{"types":["\\u0000"],"senders":["\\u0000"],"rooms":["\\u0000"],"limit":5}',
  '{"room":{"timeline":{"types":["\\u0000"],"senders":["\\ud800"]},"rooms":["\\u0000"]}}',
];

/** A wrong value for a query parameter, near to what it means. */
export function hostileParameter(dice: Dice, name: string, names: Names): string {
  if (dice.chance(0.35)) return hostileText(dice, names);
  if (/filter/.test(name)) return dice.pick(filters);
  if (/from|since|to$|at$|pos|batch/.test(name)) return dice.pick(tokens);
  if (/limit|timeout|ts|depth|delay|version|width|height/.test(name)) return dice.pick(numbers);
  return dice.pick([...numbers, ...tokens, ...filters]);
}

/** A copy of a right body with one to three things wrong. */
export function hostileBody(dice: Dice, right: unknown, names: Names): unknown {
  if (dice.chance(0.06)) return hostileValue(dice, names);
  const body = structuredClone(right ?? {});
  // What was made many is damaged no further: each damage would be there as often.
  for (let left = dice.pick([1, 1, 1, 2, 3]); left > 0 && !damage(dice, body, names); left--);
  return body;
}

type Holder = Record<string, unknown>;

/** Every object and array inside a value, itself first. */
function holders(value: unknown, found: Holder[] = []): Holder[] {
  if (typeof value !== 'object' || value === null || value instanceof RawJson) return found;
  found.push(value as Holder);
  for (const inner of Object.values(value)) holders(inner, found);
  return found;
}

/** @returns whether it made many out of one */
function damage(dice: Dice, body: unknown, names: Names): boolean {
  const holder = dice.pick(holders(body));
  if (holder === undefined) return false;
  const keys = Object.keys(holder);
  const key = keys.length === 0 ? 'extra' : dice.pick(keys);
  const how = dice.next();
  if (how < 0.6) holder[key] = hostileValue(dice, names);
  else if (how < 0.75) delete holder[key];
  else if (how < 0.85 && !Array.isArray(holder)) {
    // The same value under a wrong name: keys are often ids.
    const name = hostileText(dice, names);
    Object.defineProperty(holder, name, { value: holder[key], enumerable: true, configurable: true, writable: true });
  } else if (how < 0.9) holder[key] = [holder[key]];
  else if (how < 0.95) holder[key] = { [key]: holder[key] };
  else if (toJsonText(holder[key] ?? null).length > 1_000) holder[key] = null;
  else {
    if (Array.isArray(holder)) holder.push(...new Array<unknown>(2_000).fill(holder[key] ?? 1));
    else for (let i = 0; i < 2_000; i++) holder[`@u${i}:rookery.test`] = holder[key];
    return true;
  }
  return false;
}

/** Bodies that are no JSON, or not what they say. */
export const brokenBodies: readonly (string | Buffer)[] = [
  '',
  '{',
  '}',
  '{"a":}',
  "{'a':1}",
  '{"a":1,}',
  'NaN',
  '{"a":NaN}',
  'null',
  '[]',
  '"text"',
  '1',
  '\ufeff{}',
  '{}{}',
  '{"a":"\u0001"}',
  '['.repeat(100_000),
  '{"a":'.repeat(5_000),
  '<xml/>',
  'a=b&c=d',
  Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]),
  Buffer.from([0x00]),
  Buffer.from('{"a":1}', 'utf16le'),
];

/** Pieces of a path that are wrong as they stand, percent-encoding included. */
export const brokenSegments: readonly string[] = [
  '%',
  '%zz',
  '%00',
  'a%00b',
  '%ff%fe',
  '%c0%80',
  '%ed%a0%80',
  '%2f',
  '..%2f..',
  '%2e%2e',
  '%252e',
  '.',
  '..',
  '',
  '%20',
  '%0d%0aX:%20y',
  ';a=b',
  '*',
  'x'.repeat(300),
  'x'.repeat(2_500),
  '%F0%9F%98%80'.repeat(100),
];

/** Texts that have broken servers before. */
export const dangerousTexts: readonly string[] = [
  '',
  ' ',
  '-1',
  '1.5',
  '99999999999999999999',
  'NaN',
  'a\u0000b',
  'a\nb\r\n',
  '\ufffd',
  '__proto__',
  'constructor',
  '%',
  '*',
  '@a:127.0.0.1:1',
  '!a:rookery.test',
  '$a',
  's1_1_1_1_1_1_1_1',
  'x'.repeat(1_000),
  '{"a":1}',
  '[]',
];

/** Values that have broken servers before. */
const dangerousValues: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 2 ** 53, 1e21, new RawJson('1e400'), '', 'a\u0000b', '\ud800', '__proto__'],
  ...['x'.repeat(100_000), [], {}, [null], ['a\u0000b'], ['\ud800'], { 'a\u0000b': 'a\u0000b' }, { '\ud800': {} }],
  nested('[', ']', 100),
];

/** The body as JSON text, with one value or key damaged in each copy. */
export function* damagedCopies(body: unknown): Generator<string> {
  const count = holders(structuredClone(body)).length;
  for (let at = 0; at < count; at++) {
    const keys = Object.keys(holders(structuredClone(body))[at]!);
    for (const key of keys) {
      const copy = structuredClone(body);
      const holder = holders(copy)[at]!;
      const value = holder[key];
      for (const wrong of dangerousValues) {
        holder[key] = wrong;
        yield toJsonText(copy);
      }
      delete holder[key];
      yield toJsonText(copy);
      if (Array.isArray(holder)) continue;
      for (const name of ['', 'a\u0000b', '\ud800', 'x'.repeat(1_000)]) {
        holder[name] = value;
        yield toJsonText(copy);
        delete holder[name];
      }
    }
  }
}
