import { domainOf, type JsonObject } from '@rookery/matrix-types';
import fc from 'fast-check';
import {
  addSignatures,
  buildEvent,
  canonicalJson,
  checkOwnContent,
  clientEventView,
  contentHash,
  eventFromRow,
  eventIdOf,
  type EventDraft,
  hasValidContentHash,
  InvalidEventError,
  parsePdu,
  redactEvent,
  redactPdu,
  referenceHash,
  type RoomEvent,
  roomVersionRules,
  roomVersions,
  type RoomVersionRules,
  signEvent,
  SigningKey,
} from './index.js';

const rules = (version: string): RoomVersionRules => roomVersionRules(version) as RoomVersionRules;
const key = SigningKey.fromSeed('test', Buffer.alloc(32, 7));

const draft = (changes: Partial<EventDraft> = {}): EventDraft => ({
  ...{ roomId: '!r:a', type: 'm.room.message', sender: '@u:a', content: { body: 'x' }, originServerTs: 1, depth: 5 },
  ...{ prevEventIds: ['$p'], authEventIds: ['$q', '$r'], eventId: '$own:a' },
  ...changes,
});

describe('buildEvent', () => {
  it.each(roomVersions)('makes what version %s accepts', (version) => {
    const event = buildEvent(draft({ stateKey: 's' }), rules(version));
    expect(event).toMatchObject({
      type: 'm.room.message',
      stateKey: 's',
      prevEventIds: ['$p'],
      authEventIds: ['$q', '$r'],
    });
    expect(hasValidContentHash(event)).toBe(true);
    const signed = signEvent(event, 'a', key);
    expect(signed.eventId).toBe(event.eventId);
    expect(parsePdu(JSON.stringify(signed.pdu), rules(version))).toEqual(signed);
    expect(signed.pdu['signatures']).toEqual({ a: { 'ed25519:test': expect.stringMatching(/^[A-Za-z0-9+/]{86}$/) } });
    expect(event.pdu['signatures']).toEqual({});
    expect(Object.isFrozen(signed)).toBe(true);
  });

  it('lets the sender choose the id in the first format only', () => {
    expect(buildEvent(draft(), rules('2')).eventId).toBe('$own:a');
    const later = buildEvent(draft(), rules('3'));
    expect(later.eventId).not.toBe('$own:a');
    expect(later.pdu).not.toHaveProperty('event_id');
    expect(() => buildEvent(draft({ eventId: undefined }), rules('1'))).toThrow(InvalidEventError);
    const pairs = buildEvent(draft({ referenceHashes: new Map([['$p', 'hash']]) }), rules('1'));
    expect(pairs.pdu).toMatchObject({
      prev_events: [['$p', { sha256: 'hash' }]],
      auth_events: [
        ['$q', {}],
        ['$r', {}],
      ],
    });
  });

  it('puts the target of a redaction where it belongs, and shows clients both places', () => {
    const target = draft({ type: 'm.room.redaction', redacts: '$t', content: { reason: 'x' } });
    const old = buildEvent(target, rules('10'));
    expect(old.pdu).toMatchObject({ redacts: '$t', content: { reason: 'x' } });
    expect(old.content).toEqual({ reason: 'x' });
    const recent = buildEvent(target, rules('11'));
    expect(recent.pdu).not.toHaveProperty('redacts');
    for (const event of [old, recent]) {
      expect(clientEventView(event)).toMatchObject({ redacts: '$t', content: { reason: 'x', redacts: '$t' } });
    }
    // Who sends one like any event names the target in its content, whatever the version.
    const sent = buildEvent({ ...target, content: { reason: 'x', redacts: '$t' } }, rules('10'));
    expect(sent.pdu).toMatchObject({ redacts: '$t' });
    expect(sent.content).toEqual({ reason: 'x' });
  });

  it.each(['10', '12'])('redacts nothing with what can be no event id (version %s)', (version) => {
    for (const redacts of ['', '\0', '$a\0b', `$${'x'.repeat(255)}`]) {
      const event = buildEvent(draft({ type: 'm.room.redaction', redacts, content: {} }), rules(version));
      expect(event.redacts).toBeUndefined();
    }
    const longest = `$${'x'.repeat(254)}`;
    expect(buildEvent(draft({ type: 'm.room.redaction', redacts: longest }), rules(version)).redacts).toBe(longest);
  });

  it.each(roomVersions)('cuts depth to what every server can read, version %s', (version) => {
    const deep = buildEvent(draft({ depth: 2 ** 63, eventId: '$e:a' }), rules(version));
    expect(deep.depth).toBe(2 ** 53 - 1);
    const read = parsePdu(JSON.stringify(deep.pdu), rules(version));
    expect(read.eventId).toBe(deep.eventId);
    expect(read.depth).toBe(deep.depth);
  });

  it('nests content no deeper than every server can read, whatever the version', () => {
    const nested = (levels: number): JsonObject => {
      let value: unknown = 'innermost';
      for (let level = levels + 1; level > 0; level--) value = level % 2 === 0 ? [value] : { a: value };
      return value as JsonObject;
    };
    for (const version of roomVersions) {
      const build = (levels: number): RoomEvent =>
        buildEvent(draft({ content: nested(levels), eventId: '$e:a' }), rules(version));
      expect(build(100).content).toEqual(nested(100));
      expect(() => build(101)).toThrow(expect.objectContaining({ kind: 'json', reason: 'nested too deeply' }));
    }
    checkOwnContent(nested(100));
    expect(() => checkOwnContent(nested(101))).toThrow(InvalidEventError);
    // What others make stays.
    const text = JSON.stringify({ ...buildEvent(draft(), rules('11')).pdu, content: nested(200) });
    expect(parsePdu(text, rules('11')).content).toEqual(nested(200));
  });

  it('measures its own names in bytes in every version', () => {
    for (const version of roomVersions) {
      const build = (): RoomEvent => buildEvent(draft({ type: 'é'.repeat(128), eventId: '$e:a' }), rules(version));
      expect(build).toThrow(expect.objectContaining({ kind: 'tooLarge' }));
    }
  });

  it('refuses numbers that are not canonical, where the version does', () => {
    for (const number of [1.5, 2 ** 53, NaN]) {
      expect(() => buildEvent(draft({ content: { number } }), rules('6'))).toThrow(InvalidEventError);
    }
    expect(buildEvent(draft({ content: { number: 1.5 } }), rules('5')).content).toEqual({ number: 1.5 });
  });

  it('leaves out what is undefined, in the hash as on the wire', () => {
    const event = buildEvent(draft({ content: { body: 'x', nothing: undefined } }), rules('12'));
    const read = parsePdu(JSON.stringify(event.pdu), rules('12'));
    expect(read.eventId).toBe(event.eventId);
    expect(hasValidContentHash(read)).toBe(true);
  });

  it('stays within the size that others accept, signature included', () => {
    const refused = (size: number): boolean => {
      try {
        const event = signEvent(buildEvent(draft({ content: { body: 'x'.repeat(size) } }), rules('12')), 'a', key);
        parsePdu(event.pdu, rules('12'));
        return false;
      } catch (error) {
        expect(error).toMatchObject({ kind: 'tooLarge' });
        return true;
      }
    };
    expect(refused(65_000)).toBe(false);
    // Around the limit building refuses before parsing could.
    for (let size = 65_000; size < 65_536; size += 8) {
      let event;
      try {
        event = buildEvent(draft({ content: { body: 'x'.repeat(size) } }), rules('12'));
      } catch {
        continue;
      }
      expect(() => parsePdu(signEvent(event, 'a', key).pdu, rules('12'))).not.toThrow();
    }
    expect(refused(65_400)).toBe(true);
  });

  it('makes the create event of a room whose id is its hash', () => {
    const create = buildEvent(
      draft({ roomId: undefined, type: 'm.room.create', stateKey: '', prevEventIds: [], authEventIds: [] }),
      rules('12'),
    );
    expect(create.pdu).not.toHaveProperty('room_id');
    expect(create.roomId).toBe(`!${create.eventId.slice(1)}`);
    expect(eventFromRow(JSON.stringify(create.pdu), create.eventId, rules('12'))).toEqual(create);
  });
});

describe('signatures', () => {
  it('add up, the id stays', () => {
    const once = signEvent(buildEvent(draft(), rules('12')), 'a', key);
    const twice = addSignatures(signEvent(once, 'b', key), { a: { 'ed25519:other': 'x' }, ['__proto__']: { k: 'y' } });
    const signatures = twice.pdu['signatures'] as Record<string, Record<string, string>>;
    expect(Object.keys(signatures)).toEqual(['a', 'b', '__proto__']);
    expect(Object.keys(signatures['a'] as object)).toEqual(['ed25519:test', 'ed25519:other']);
    expect(twice.eventId).toBe(once.eventId);
    expect(eventIdOf(twice.pdu, rules('12'))).toBe(once.eventId);
  });

  it('make no event larger than events may be, whoever adds them', () => {
    const longest = SigningKey.fromSeed('k'.repeat(64), new Uint8Array(32).fill(3));
    let large: RoomEvent | undefined;
    for (let size = 65_000; size < 65_536; size++) {
      try {
        large = buildEvent(draft({ content: { body: 'x'.repeat(size) } }), rules('12'));
      } catch {
        break;
      }
    }
    const once = signEvent(large!, domainOf(large!.sender), longest);
    const sizeBytes = Buffer.byteLength(canonicalJson(once.pdu as JsonObject));
    expect(65_536 - sizeBytes).toBeGreaterThanOrEqual(0);
    expect(65_536 - sizeBytes).toBeLessThan(10);
    const tooLarge = expect.objectContaining({ kind: 'tooLarge' });
    expect(() => signEvent(once, 'other.test', key)).toThrow(tooLarge);
    expect(() => addSignatures(once, { 'other.test': { 'ed25519:a': 'x'.repeat(86) } })).toThrow(tooLarge);
    const small = buildEvent(draft(), rules('12'));
    expect(() => addSignatures(small, { a: { k: 'x'.repeat(66_000) } })).toThrow(tooLarge);
    // What is not part of the event does not count.
    const shown = { ...small, pdu: { ...small.pdu, unsigned: { invite_room_state: 'x'.repeat(66_000) } } };
    expect(() => addSignatures(shown, { a: { k: 'x' } })).not.toThrow();
  });
});

describe('redaction', () => {
  const value = fc.jsonValue({ maxDepth: 2 });
  const types = [
    ...[
      'm.room.member',
      'm.room.create',
      'm.room.join_rules',
      'm.room.power_levels',
      'm.room.aliases',
      'm.room.message',
    ],
    ...['m.room.history_visibility', 'm.room.redaction'],
  ];
  const contentKeys = [
    ...['membership', 'creator', 'join_rule', 'allow', 'ban', 'users', 'invite', 'aliases', 'redacts', 'body', 'x'],
    ...['join_authorised_via_users_server', 'third_party_invite', 'history_visibility'],
  ];
  const pdu = fc.record({
    type: fc.constantFrom(...types),
    content: fc.dictionary(
      fc.constantFrom(...contentKeys),
      fc.oneof(value, fc.constant({ signed: { a: 1 }, display_name: 'x' })),
    ),
    extra: value,
    unsigned: value,
    signatures: fc.constant({ a: { b: 'c' } }),
    hashes: fc.constant({ sha256: 'x' }),
    ...{ membership: value, prev_state: value, origin: value, redacts: value },
  });

  it('is idempotent and keeps the reference hash, in every version', () => {
    fc.assert(
      fc.property(pdu, fc.constantFrom(...roomVersions), (any, version) => {
        const before = structuredClone(any);
        const once = redactPdu(any, rules(version));
        expect(redactPdu(once, rules(version))).toEqual(once);
        expect(referenceHash(once, rules(version))).toBe(referenceHash(any, rules(version)));
        expect(any).toEqual(before);
      }),
      { numRuns: 1000 },
    );
  });

  it('of an event keeps id and signatures, but not the content hash', () => {
    const event = signEvent(buildEvent(draft(), rules('12')), 'a', key);
    const redacted = redactEvent(event);
    expect(redacted).toMatchObject({ eventId: event.eventId, content: {}, type: event.type });
    expect(redacted.pdu['signatures']).toEqual(event.pdu['signatures']);
    expect(redacted.pdu['hashes']).toEqual(event.pdu['hashes']);
    expect(hasValidContentHash(redacted)).toBe(false);
    expect(parsePdu(redacted.pdu, rules('12')).eventId).toBe(event.eventId);
  });

  it('reads content hashes in any base64', () => {
    const event = buildEvent(draft(), rules('12'));
    const other = Buffer.from(contentHash(event.pdu), 'base64').toString('base64url') + '=';
    expect(hasValidContentHash(parsePdu({ ...event.pdu, hashes: { sha256: other } }, rules('12')))).toBe(true);
    for (const sha256 of ['', 'x', '!']) {
      expect(hasValidContentHash(parsePdu({ ...event.pdu, hashes: { sha256 } }, rules('12')))).toBe(false);
    }
  });
});

describe('clientEventView', () => {
  it('shows what clients know and nothing of federation', () => {
    const event = signEvent(buildEvent(draft({ stateKey: '' }), rules('12')), 'a', key);
    expect(clientEventView(event, { age: 3 })).toEqual({
      ...{ event_id: event.eventId, room_id: '!r:a', type: 'm.room.message', sender: '@u:a', origin_server_ts: 1 },
      ...{ content: { body: 'x' }, state_key: '', unsigned: { age: 3 } },
    });
    expect(clientEventView(buildEvent(draft(), rules('12')))).not.toHaveProperty('state_key');
    const { room_id: _roomId, ...rest } = clientEventView(event, { age: 3 });
    expect(clientEventView(event, { age: 3 }, true)).toStrictEqual(rest);
  });
});
