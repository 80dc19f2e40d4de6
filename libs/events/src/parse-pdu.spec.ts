import { createHash } from 'node:crypto';
import type { JsonObject } from '@rookery/matrix-types';
import {
  canonicalJson,
  eventFromRow,
  hasValidContentHash,
  InvalidEventError,
  NumberText,
  overlongKey,
  parsePdu,
  redactEvent,
  type RoomEvent,
  roomVersionRules,
  roomVersions,
  type RoomVersionRules,
} from './index.js';

const rules = (version: string): RoomVersionRules => roomVersionRules(version) as RoomVersionRules;

/** A PDU of the smallest right shape. */
function minimal(version: string, changes: JsonObject = {}): JsonObject {
  const pdu: JsonObject = {
    ...{ auth_events: [], content: {}, depth: 7, hashes: { sha256: 'x' }, origin_server_ts: 1, prev_events: [] },
    ...{ room_id: '!r:a', sender: '@u:a', signatures: {}, type: 'm.room.message' },
    ...(['1', '2'].includes(version) ? { event_id: '$e:a' } : {}),
    ...changes,
  };
  for (const key of Object.keys(changes)) if (changes[key] === undefined) delete pdu[key];
  return pdu;
}

function problem(input: unknown, version = '10'): string {
  try {
    parsePdu(input, rules(version));
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidEventError);
    return `${(error as InvalidEventError).kind}: ${(error as InvalidEventError).reason}`;
  }
  return 'accepted';
}

/** Inserts JSON text as a value of `content`. */
const withText = (version: string, source: string): string =>
  JSON.stringify(minimal(version, { content: { k: '@@' } })).replace('"@@"', source);

describe('parsePdu', () => {
  it.each(roomVersions)('takes the smallest PDU of version %s, as text and as value', (version) => {
    const pdu = minimal(version);
    const event = parsePdu(JSON.stringify(pdu), rules(version));
    expect(event).toMatchObject({
      type: 'm.room.message',
      sender: '@u:a',
      roomId: '!r:a',
      depth: 7,
      originServerTs: 1,
    });
    expect(event.stateKey).toBeUndefined();
    expect(event.pdu).toEqual(pdu);
    expect(parsePdu(pdu, rules(version))).toEqual(event);
    expect(eventFromRow(JSON.stringify(event.pdu), event.eventId, rules(version))).toEqual(event);
  });

  it('gives ids by the format', () => {
    expect(parsePdu(minimal('1'), rules('1')).eventId).toBe('$e:a');
    const [three, four] = [parsePdu(minimal('3'), rules('3')), parsePdu(minimal('4'), rules('4'))];
    expect(three.eventId).toMatch(/^\$[A-Za-z0-9+/]{43}$/);
    expect(four.eventId).toMatch(/^\$[A-Za-z0-9_-]{43}$/);
    expect(four.eventId).toBe(three.eventId.replaceAll('+', '-').replaceAll('/', '_'));
  });

  it('reads references of both forms', () => {
    const pairs = {
      prev_events: [['$p:a', { sha256: 'x' }]],
      auth_events: [
        ['$a:a', {}],
        ['$b:a', {}],
      ],
    };
    expect(parsePdu(minimal('2', pairs), rules('2'))).toMatchObject({
      prevEventIds: ['$p:a'],
      authEventIds: ['$a:a', '$b:a'],
    });
    expect(problem(minimal('3', pairs), '3')).toContain('prev_events');
    for (const pair of [['$p:a'], ['$p:a', {}, {}], ['$p:a', 'x'], [1, {}], '$p:a']) {
      expect(problem(minimal('2', { prev_events: [pair] }), '2')).toContain('prev_events');
    }
    const plain = { prev_events: ['$p'], auth_events: ['$a', '$b'] };
    expect(parsePdu(minimal('3', plain), rules('3'))).toMatchObject({
      prevEventIds: ['$p'],
      authEventIds: ['$a', '$b'],
    });
    expect(problem(minimal('2', plain), '2')).toContain('prev_events');
  });

  it('finds the target of a redaction where the version keeps it', () => {
    const both = { type: 'm.room.redaction', redacts: '$top', content: { redacts: '$content' } };
    expect(parsePdu(minimal('10', both), rules('10')).redacts).toBe('$top');
    expect(parsePdu(minimal('11', both), rules('11')).redacts).toBe('$content');
    expect(parsePdu(minimal('10', { ...both, redacts: 1 }), rules('10')).redacts).toBeUndefined();
    expect(parsePdu(minimal('10', { redacts: '$top' }), rules('10')).redacts).toBeUndefined();
  });

  it("derives the room of version 12 from the create event's hash", () => {
    const create = { type: 'm.room.create', state_key: '', room_id: undefined };
    const event = parsePdu(minimal('12', create), rules('12'));
    expect(event.roomId).toBe(`!${event.eventId.slice(1)}`);
    expect(problem(minimal('12', { ...create, state_key: 'x' }), '12')).toContain('room_id');
    expect(problem(minimal('12', { ...create, type: 'm.room.topic' }), '12')).toContain('room_id');
    expect(problem(minimal('11', create), '11')).toContain('room_id');
  });

  it('refuses an event of another room', () => {
    expect(() => parsePdu(minimal('10'), rules('10'), { roomId: '!other:a' })).toThrow('another room');
    expect(parsePdu(minimal('10'), rules('10'), { roomId: '!r:a' }).roomId).toBe('!r:a');
  });

  it('drops unsigned data, in hashes and sizes too', () => {
    const bare = parsePdu(minimal('10'), rules('10'));
    const padded = minimal('10', { unsigned: { age: 1.5, padding: 'x'.repeat(70_000) } });
    expect(parsePdu(padded, rules('10'))).toEqual(bare);
  });

  const wrongValues: [key: string, value: unknown][] = [
    ...[
      'type',
      'sender',
      'room_id',
      'content',
      'depth',
      'origin_server_ts',
      'hashes',
      'signatures',
      'prev_events',
      'auth_events',
    ].flatMap((key) => [undefined, null, true, [1], [[]]].map((value): [string, unknown] => [key, value])),
    ['type', 1],
    ['state_key', 1],
    ['state_key', null],
    ['sender', ''],
    ['sender', 'u:a'],
    ['sender', '@u'],
    ['sender', '@u:'],
    ['room_id', '#r:a'],
    ['room_id', 'r:a'],
    ['content', 'x'],
    ['content', []],
    ['depth', -1],
    ['depth', '7'],
    ['depth', 1.5],
    ['depth', 2 ** 63],
    ['origin_server_ts', '1'],
    ['origin_server_ts', 0.5],
    ['hashes', {}],
    ['hashes', { sha256: 1 }],
    ['signatures', { a: 1 }],
    ['signatures', { a: { 'ed25519:1': 1 } }],
    ['prev_events', ['x']],
    ['prev_events', {}],
    ['auth_events', [null]],
    ['type', 'a\0'],
    ['state_key', '\0'],
    ['sender', '@u\0:a'],
    ['auth_events', ['$a\0']],
  ];
  it.each(wrongValues)('refuses %s: %j', (key, value) => {
    // Version 4 leaves numbers to the check of the shape.
    const found = problem(minimal('4', { [key]: value }), '4');
    expect(found).toMatch(/^shape: /);
    expect(found).toContain(key.slice(0, 9));
  });

  it('refuses what is no object', () => {
    for (const input of [
      '',
      'null',
      '[]',
      '1',
      '1.0',
      '"x"',
      '{',
      '{}x',
      null,
      undefined,
      1,
      true,
      [],
      new NumberText('1.0'),
      () => 1,
      Symbol('x'),
      1n,
    ]) {
      expect(problem(input)).toMatch(/^(json|shape): /);
    }
  });

  it('does not read keys from a prototype', () => {
    const inherited = Object.create(minimal('10')) as object;
    expect(problem(inherited)).toContain('type is not a string');
    const own = JSON.stringify(minimal('10')).replace('{', '{"__proto__":{"state_key":"x"},');
    const event = parsePdu(own, rules('10'));
    expect(event.stateKey).toBeUndefined();
    expect(Object.hasOwn(event.pdu, '__proto__')).toBe(true);
  });

  it('refuses values that only look like JSON', () => {
    for (const value of [1n, () => 1, Symbol('x'), NaN, Infinity, new Date(0), Buffer.from('x')]) {
      expect(problem(minimal('4', { content: { k: value } }), '4')).toMatch(/^json: /);
    }
    const circle: JsonObject = {};
    circle['a'] = circle;
    circle['b'] = circle;
    expect(problem(minimal('4', { content: circle }), '4')).toBe('tooLarge: too many values');
  });

  it('refuses half surrogate pairs, in texts and in keys', () => {
    expect(problem(withText('4', '"\\ud800"'), '4')).toMatch(/^json/);
    expect(problem(withText('4', '{"\\udc00":1}'), '4')).toMatch(/^json/);
    expect(problem(withText('4', '"\\ud83d\\ude00"'), '4')).toBe('accepted');
  });

  it('an event nested too deeply is refused, one at the limit accepted', () => {
    const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
    expect(problem(withText('10', nested(500)))).toBe('accepted');
    expect(problem(withText('10', nested(600)))).toBe('json: nested too deeply');
    expect(problem(withText('10', nested(200_000)))).toBe('json: nested too deeply');
    expect(problem(withText('4', `[1.0,${nested(200_000)}]`), '4')).toBe('json: nested too deeply');
    expect(problem(withText('4', '{"a":'.repeat(20_000) + '1' + '}'.repeat(20_000)), '4')).toBe(
      'json: nested too deeply',
    );
  });
});

describe('limits of size', () => {
  it.each(['type', 'state_key', 'sender', 'room_id', 'event_id'])('allows 255 bytes of %s', (key) => {
    const [start = '', end = ''] = { sender: ['@', ':a'], room_id: ['!', ':a'], event_id: ['$', ':a'] }[key] ?? [];
    const fitting = `${start}${'é'.repeat(100)}${'a'.repeat(55 - start.length - end.length)}${end}`;
    expect(Buffer.byteLength(fitting)).toBe(255);
    const tooLong = fitting.replace('aa', 'éa');
    if (key !== 'event_id') {
      expect(problem(minimal('11', { [key]: fitting }), '11')).toBe('accepted');
      expect(problem(minimal('11', { [key]: tooLong }), '11')).toBe(`tooLarge: ${key} is longer than 255 bytes`);
    }
    const version = key === 'event_id' ? '1' : '10';
    const event = (value: string): RoomEvent => parsePdu(minimal(version, { [key]: value }), rules(version));
    expect(overlongKey(event(fitting))).toBeUndefined();
    expect(overlongKey(event(tooLong))).toBe(key);
  });

  it.each(['type', 'state_key', 'sender', 'room_id', 'event_id'])(
    'allows 255 characters of %s before version 11',
    (key) => {
      const [start = '', end = ''] = { sender: ['@', ':a'], room_id: ['!', ':a'], event_id: ['$', ':a'] }[key] ?? [];
      const version = key === 'event_id' ? '2' : '10';
      for (const unit of ['a', 'é', '🙂']) {
        const fitting = `${start}${unit.repeat(255 - start.length - end.length)}${end}`;
        expect(problem(minimal(version, { [key]: fitting }), version)).toBe('accepted');
        expect(problem(minimal(version, { [key]: fitting.replace(unit, unit + unit) }), version)).toBe(
          `tooLarge: ${key} is longer than 255 characters`,
        );
      }
    },
  );

  it('allows 20 previous and 10 auth events', () => {
    const ids = (count: number): string[] => Array.from({ length: count }, (_, i) => `$${i}`);
    expect(problem(minimal('10', { prev_events: ids(20), auth_events: ids(10) }))).toBe('accepted');
    expect(problem(minimal('10', { prev_events: ids(21) }))).toMatch(/^tooLarge: prev_events/);
    expect(problem(minimal('10', { auth_events: ids(11) }))).toMatch(/^tooLarge: auth_events/);
    expect(problem(minimal('10', { auth_events: [`$${'a'.repeat(255)}`] }))).toMatch(/^tooLarge: auth_events/);
    expect(problem(minimal('11', { auth_events: [`$${'é'.repeat(200)}`] }), '11')).toMatch(/^tooLarge: auth_events/);
  });

  it.each([
    ['ASCII', 'x'],
    ['two bytes', 'é'],
    ['control characters', '\u0001'],
  ])('allows 65,536 bytes of canonical JSON, whatever the text: %s', (_, unit) => {
    const bytes = (content: JsonObject): number => Buffer.byteLength(canonicalJson(minimal('10', { content })));
    const each = bytes({ k: unit }) - bytes({ k: '' });
    const count = Math.floor((65_536 - bytes({ k: '' })) / each);
    const rest = 65_536 - bytes({ k: unit.repeat(count) });
    const largest = minimal('10', { content: { k: unit.repeat(count) + 'x'.repeat(rest) } });
    const tooLarge = minimal('10', { content: { k: unit.repeat(count) + 'x'.repeat(rest + 1) } });
    for (const write of [(pdu: object) => pdu, JSON.stringify, (pdu: object) => JSON.stringify(pdu, null, 40)]) {
      expect(problem(write(largest))).toBe('accepted');
      expect(problem(write(tooLarge))).toBe('tooLarge: larger than 65536 bytes');
    }
  });

  it('does not even parse endless text', () => {
    expect(problem(`{"a":"${'x'.repeat(600_000)}"}`)).toBe('tooLarge: text too long');
    // Told before any member is looked at.
    const many: Record<string, unknown> = Object.fromEntries(Array.from({ length: 14_000 }, (_, i) => [`k${i}`, 1]));
    Object.defineProperty(many, 'content', {
      enumerable: true,
      get: () => {
        throw new Error('It was copied');
      },
    });
    expect(problem(many)).toBe('tooLarge: too many keys');
  });
});

describe('numbers', () => {
  const odd = [
    '1.0',
    '0.5',
    '-1.5',
    '1e3',
    '1E3',
    '1e-3',
    '-0',
    '-0.0',
    '0e0',
    '9007199254740992',
    '-9007199254740992',
    '12345678901234567890',
  ];

  it.each(odd)('%s: refused from version 6 on, kept before', (source) => {
    for (const version of ['6', '12']) {
      expect(problem(withText(version, source), version)).toBe('json: a number is not canonical');
      expect(problem(withText(version, `[0,{"a": ${source}}]`), version)).toBe('json: a number is not canonical');
    }
    const event = parsePdu(withText('5', source), rules('5'));
    expect(event.content['k']).toBe(Number(source));
    expect(JSON.stringify(event.pdu)).toContain(`"k":${source}`);
    const row = eventFromRow(JSON.stringify(event.pdu), event.eventId, rules('5'));
    expect(row).toEqual(event);
    expect(row.content['k']).toBe(Number(source));
    expect(redactEvent(row).content).toEqual({});
  });

  it.each(['0', '-1', '9007199254740991', '-9007199254740991'])('%s is canonical', (source) => {
    const event = parsePdu(withText('6', source), rules('6'));
    expect(event.content['k']).toBe(Number(source));
    expect(JSON.stringify(event.pdu)).toContain(`"k":${source}`);
  });

  it('are not seen where there are none', () => {
    for (const text of ['":1.0"', '"[1e3,"', '"\\",1.0"', '"\\\\"', '"a: -0"']) {
      expect(problem(withText('6', text), '6')).toBe('accepted');
    }
    expect(problem(withText('6', '["\\"",1.0]'), '6')).toBe('json: a number is not canonical');
    expect(problem(withText('6', '["\\\\",1.0]'), '6')).toBe('json: a number is not canonical');
  });

  it('beyond binary64 are refused in every version', () => {
    for (const version of roomVersions) expect(problem(withText(version, '1e400'), version)).toMatch(/^json: a number/);
  });

  it('are hashed as their origin wrote them', () => {
    for (const [source, canonical] of [
      ['1.0', '1.0'],
      ['-0', '0'],
      ['1e3', '1000'],
      ['0.0000001', '1e-07'],
      ['1e16', '1e+16'],
      ['12345678901234567890', '12345678901234567890'],
    ] as const) {
      const hashed = `{"auth_events":[],"content":{"k":${canonical}},"depth":7,"origin_server_ts":1,"prev_events":[],"room_id":"!r:a","sender":"@u:a","type":"m.room.message"}`;
      const sha256 = createHash('sha256').update(hashed).digest('base64').slice(0, 43);
      const text = withText('5', source).replace('"sha256":"x"', `"sha256":"${sha256}"`);
      expect(hasValidContentHash(parsePdu(text, rules('5')))).toBe(true);
    }
    const power = (level: string): string =>
      JSON.stringify(minimal('5', { type: 'm.room.power_levels', state_key: '', content: { ban: '@@' } })).replace(
        '"@@"',
        level,
      );
    const id = (level: string): string => parsePdu(power(level), rules('5')).eventId;
    expect(id('50.0')).not.toBe(id('50'));
    expect(id('9223372036854775807')).not.toBe(id('9223372036854775806'));
  });

  it('as depth: up to 2^63-1 before version 6, 2^53-1 from then on', () => {
    const withDepth = (version: string, depth: string): string =>
      JSON.stringify(minimal(version, { depth: '@@' })).replace('"@@"', depth);
    const deepest = parsePdu(withDepth('5', '9223372036854775807'), rules('5'));
    expect(deepest.depth).toBe(rules('5').maxDepth);
    expect(BigInt(String(deepest.depth))).toBeLessThan(2n ** 63n);
    expect(JSON.stringify(deepest.pdu)).toContain('"depth":9223372036854775807');
    expect(problem(withDepth('5', '9223372036854775808'), '5')).toBe('shape: depth is out of range');
    expect(problem(withDepth('5', '1e3'), '5')).toBe('shape: depth is not an integer');
    expect(problem(withDepth('5', '-9007199254740993'), '5')).toBe('shape: depth is out of range');
    expect(problem(withDepth('6', '9007199254740991'), '6')).toBe('accepted');
    expect(problem(withDepth('6', '9007199254740992'), '6')).toMatch(/^json/);
  });
});
