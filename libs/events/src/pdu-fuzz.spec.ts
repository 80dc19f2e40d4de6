import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { JsonObject } from '@rookery/matrix-types';
import {
  buildEvent,
  canonicalJson,
  clientEventView,
  eventFromRow,
  hasValidContentHash,
  InvalidEventError,
  maxPduBytes,
  overlongKey,
  parseJson,
  parsePdu,
  redactEvent,
  requiredSigners,
  roomVersionRules,
  roomVersions,
  type RoomVersionRules,
  signEvent,
  SigningKey,
} from './index.js';

/** Another number gives another million; a failure names the input. */
const seed = 20_260_708;
const refusals = 1_000_000;

/** Mulberry32: the same numbers everywhere. */
function random(state: number): (below: number) => number {
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const next = random(seed);
const pick = <T>(list: readonly T[]): T => list[next(list.length)] as T;

const allRules = roomVersions.map((version) => roomVersionRules(version) as RoomVersionRules);
const key = SigningKey.fromSeed('fuzz', Buffer.alloc(32, 5));
const types = ['m.room.member', 'm.room.create', 'm.room.power_levels', 'm.room.redaction', 'm.room.message', 'x'];

/** Right PDUs, a few for each version. */
const samples = allRules.flatMap((rules) =>
  types.map((type) => {
    const event = buildEvent(
      {
        ...{ roomId: '!room:a.example', type, stateKey: type === 'x' ? undefined : '', sender: '@user:a.example' },
        content: { membership: 'join', body: 'text ü 🙂', ban: 50, third_party_invite: { signed: {} }, list: [1, [2]] },
        ...{ originServerTs: 1_700_000_000_000, depth: 12, prevEventIds: ['$p'], authEventIds: ['$a', '$b'] },
        ...{ eventId: '$event:a.example', redacts: type === 'm.room.redaction' ? '$t' : undefined },
      },
      rules,
    );
    const { pdu } = signEvent(event, 'a.example', key);
    return { rules, pdu, text: JSON.stringify(pdu) };
  }),
);

const pduKeys = [
  ...['auth_events', 'content', 'depth', 'event_id', 'hashes', 'origin', 'origin_server_ts', 'prev_events', 'redacts'],
  ...['room_id', 'sender', 'signatures', 'state_key', 'type', 'unsigned', '__proto__', 'constructor', ''],
];
const scalars = [
  ...[null, true, false, undefined, 0, -0, -1, 1.5, 2 ** 53, -(2 ** 53), 1e21, 1e308, NaN, Infinity, 1n, Symbol('s')],
  ...[
    '',
    ' ',
    '@',
    '@:',
    '!',
    '$',
    '#a:b',
    '@u:a',
    '!r:a',
    '$e:a',
    '\0',
    '\ud800',
    '\udfff',
    '🙂',
    '__proto__',
    'm.room.create',
  ],
  ...[
    'a'.repeat(256),
    '$'.padEnd(256, 'é'),
    '@é:'.padEnd(255, 'é'),
    '9'.repeat(20),
    () => 1,
    new Date(0),
    new Uint8Array(3),
    new Map(),
    /x/,
  ],
];
const fragments = [
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '\\',
    '\\u',
    '\\ud800',
    '\\u0000',
    'null',
    'true',
    '1.0',
    '1e400',
    '1e-7',
    '1E16',
    '-0.0',
    '-0',
    '-',
    '0',
    '01',
    'NaN',
  ],
  ...[
    '99999999999999999999',
    '"__proto__":',
    '"a":',
    ' ',
    '\n',
    '\0',
    '\ud83d',
    'é',
    '/*',
    '{"a":',
    '[[',
    ']]',
    '"x",',
    '"content":1,',
  ],
];

function hostile(depth: number): unknown {
  const kind = next(8);
  if (depth <= 0 || kind < 5) return pick(scalars);
  if (kind < 7) return Array.from({ length: next(4) }, () => hostile(depth - 1));
  return Object.fromEntries(Array.from({ length: next(4) }, () => [pick(pduKeys), hostile(depth - 1)]));
}

/** Things too big or too deep, made rarely because they cost the most. */
function monster(): unknown {
  let value: unknown = pick(scalars);
  switch (next(5)) {
    case 0:
      return 'x'.repeat(next(100_000));
    case 1:
      return Array.from({ length: next(70_000) }, () => 0);
    case 2:
      for (let i = next(2000); i > 0; i--) value = [value];
      return value;
    case 3:
      for (let i = next(2000); i > 0; i--) value = { a: value, b: 1 };
      return value;
    default: {
      const circle: JsonObject = {};
      circle['again'] = [circle, circle];
      return circle;
    }
  }
}

/** A copy with one place changed, at the top or inside. */
function mutatedValue(pdu: Readonly<JsonObject>): unknown {
  if (next(200) === 0) return hostile(3);
  const changed: JsonObject = { ...pdu };
  const at = pick(pduKeys);
  const evil = next(500) === 0 ? monster() : hostile(3);
  const inner = changed[at];
  if (next(8) === 0) delete changed[at];
  else if (next(2) === 0 && Array.isArray(inner)) changed[at] = [...(inner as unknown[]), evil];
  else if (next(2) === 0 && typeof inner === 'object' && inner !== null)
    changed[at] = { ...inner, [pick(pduKeys)]: evil };
  else if (next(40) === 0 && Array.isArray(inner))
    changed[at] = Array.from({ length: next(60) }, () => inner[0] as unknown);
  else Object.defineProperty(changed, at, { value: evil, enumerable: true, configurable: true, writable: true });
  return changed;
}

function mutatedText(text: string): string {
  if (next(2000) === 0) return pick(['[', '{"a":', '[1.0,']).repeat(next(60_000)) + pick(['', '1', ']'.repeat(50_000)]);
  const at = next(text.length);
  const cut = at + next(pick([1, 2, 8, 400]));
  return text.slice(0, at) + pick(fragments) + text.slice(cut);
}

function describeInput(input: unknown): string {
  try {
    return typeof input === 'string' ? input.slice(0, 2000) : JSON.stringify(input).slice(0, 2000);
  } catch {
    return 'a value that has no JSON';
  }
}

/** Whatever is accepted must be usable by everything else. */
function useAccepted(input: unknown, rules: RoomVersionRules): void {
  const event = parsePdu(input, rules);
  const row = JSON.stringify(event.pdu);
  const loaded = eventFromRow(row, event.eventId, rules);
  const again = parsePdu(row, rules);
  if (again.eventId !== event.eventId || loaded.depth !== event.depth || loaded.roomId !== event.roomId) {
    throw new Error('reads back as another event');
  }
  if (redactEvent(event).eventId !== event.eventId) throw new Error('redaction changed the id');
  if (Buffer.byteLength(row) > 2 * maxPduBytes) throw new Error('too large');
  const text = canonicalJson(event.pdu);
  if (canonicalJson(parseJson(text)) !== text) throw new Error('has another canonical form when it is read again');
  if (rules.strictByteLimits && overlongKey(event) !== undefined) throw new Error('too long a name');
  hasValidContentHash(event);
  requiredSigners(event);
  clientEventView(event);
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** What is alive after a collection, bytes. */
function heldBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

describe('a million malformed PDUs', () => {
  it('give InvalidEventError and nothing else, in bounded memory', async () => {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    const heldBefore = heldBytes();
    let refused = 0;
    let accepted = 0;
    const reasons = new Map<string, number>();
    try {
      while (refused < refusals) {
        const { rules: own, pdu, text } = pick(samples);
        const rules = next(4) === 0 ? pick(allRules) : own;
        const input = next(2) === 0 ? mutatedValue(pdu) : mutatedText(text);
        try {
          parsePdu(input, rules);
          accepted++;
          // Every accepted input would double the time.
          if (accepted % 8 === 0) useAccepted(input, rules);
        } catch (error) {
          if (!(error instanceof InvalidEventError)) {
            throw new Error(`version ${rules.version}, input ${describeInput(input)}`, { cause: error });
          }
          refused++;
          reasons.set(error.reason, (reasons.get(error.reason) ?? 0) + 1);
          // Let the runner's clock run.
          if (refused % 50_000 === 0) await new Promise(setImmediate);
        }
      }
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
    // The fuzzer reaches every corner of the check, not only the JSON parser.
    expect(reasons.size).toBeGreaterThan(40);
    expect(reasons.get('not JSON')).toBeLessThan(refusals * 0.6);
    expect(accepted).toBeGreaterThan(10_000);
    expect(heldBytes() - heldBefore).toBeLessThan(50_000_000);
    // It is nothing but work: a fifth of a core is enough.
  }, 900_000);
});
