import {
  buildEvent,
  encodeBase64Url,
  type EventDraft,
  hasValidSignature,
  type KeyLookup,
  parsePdu,
  redactEvent,
  requiredSigners,
  type RoomEvent,
  roomVersionRules,
  roomVersions,
  type RoomVersionRules,
  signEvent,
  signingKeyIds,
  SigningKey,
  verifyEventSignatures,
} from './index.js';

const rules = (version: string): RoomVersionRules => roomVersionRules(version) as RoomVersionRules;
const key = SigningKey.fromSeed('1', Buffer.alloc(32, 1));
const otherKey = SigningKey.fromSeed('2', Buffer.alloc(32, 2));
const lookup: KeyLookup = (_, keyId) =>
  keyId === 'ed25519:1' ? { key: key.verifyKey, validUntilTs: 1000 } : undefined;

const build = (version: string, changes: Partial<EventDraft> = {}): RoomEvent =>
  buildEvent(
    {
      ...{
        roomId: '!r:a',
        type: 'm.room.message',
        sender: '@u:a',
        content: { body: 'x' },
        originServerTs: 1000,
        depth: 5,
      },
      ...{ prevEventIds: [], authEventIds: [], eventId: '$own:a' },
      ...changes,
    },
    rules(version),
  );

const member = (version: string, content: Record<string, unknown>): RoomEvent =>
  build(version, { type: 'm.room.member', stateKey: '@v:b', content });

describe('requiredSigners', () => {
  it.each(roomVersions)('version %s', (version) => {
    const v = Number(version);
    expect(requiredSigners(build(version))).toEqual(['a']);
    expect(requiredSigners(build(version, { eventId: '$own:c' }))).toEqual(v <= 2 ? ['a', 'c'] : ['a']);
    const authorised = { membership: 'join', join_authorised_via_users_server: '@w:d' };
    expect(requiredSigners(member(version, authorised))).toEqual(v >= 8 ? ['a', 'd'] : ['a']);
    expect(requiredSigners(member(version, { ...authorised, membership: 'leave' }))).toEqual(['a']);
    expect(requiredSigners(member(version, { ...authorised, join_authorised_via_users_server: 7 }))).toEqual(
      v >= 8 ? ['a', ''] : ['a'],
    );
    const invite = { membership: 'invite', third_party_invite: {} };
    expect(requiredSigners(member(version, invite))).toEqual(v <= 2 ? ['a'] : []);
    expect(requiredSigners(member(version, { ...invite, membership: 'join' }))).toEqual(['a']);
    expect(requiredSigners(build(version, { content: invite }))).toEqual(['a']);
  });
});

describe('verifyEventSignatures', () => {
  it.each(roomVersions)('accepts what was signed, as received and redacted: version %s', async (version) => {
    const signed = signEvent(build(version), 'a', key);
    const received = parsePdu(JSON.stringify(signed.pdu), rules(version));
    expect(await verifyEventSignatures(received, lookup)).toEqual({ valid: true });
    expect(await verifyEventSignatures(redactEvent(received), lookup)).toEqual({ valid: true });
    expect(hasValidSignature(received, 'a', 'ed25519:1', key.verifyKey)).toBe(true);
    expect(hasValidSignature(received, 'a', 'ed25519:2', key.verifyKey)).toBe(false);
    expect(hasValidSignature(received, 'b', 'ed25519:1', key.verifyKey)).toBe(false);
  });

  it('notices every change of what is covered', async () => {
    const { pdu } = signEvent(build('12', { stateKey: 's' }), 'a', key);
    for (const change of [
      { depth: 6 },
      { type: 'x' },
      { state_key: 't' },
      { room_id: '!s:a' },
      { hashes: { sha256: 'x' } },
      { auth_events: ['$x'] },
    ]) {
      const changed = parsePdu({ ...pdu, ...change }, rules('12'));
      expect(await verifyEventSignatures(changed, lookup)).toEqual({ valid: false, serverName: 'a', reason: 'wrong' });
    }
    // Content is covered by the hash alone.
    expect(await verifyEventSignatures(parsePdu({ ...pdu, content: {} }, rules('12')), lookup)).toEqual({
      valid: true,
    });
  });

  it('says what is wrong', async () => {
    const event = build('12');
    expect(await verifyEventSignatures(event, lookup)).toMatchObject({ reason: 'missing' });
    expect(await verifyEventSignatures(signEvent(event, 'b', key), lookup)).toMatchObject({ reason: 'missing' });
    expect(await verifyEventSignatures(signEvent(event, 'a', otherKey), lookup)).toMatchObject({
      reason: 'unknownKey',
    });
    const forged = signEvent(event, 'a', SigningKey.fromSeed('1', Buffer.alloc(32, 3)));
    expect(await verifyEventSignatures(forged, lookup)).toEqual({ valid: false, serverName: 'a', reason: 'wrong' });
  });

  it('needs one valid signature per server, not all', async () => {
    const event = signEvent(signEvent(build('12'), 'a', otherKey), 'a', key);
    expect(await verifyEventSignatures(event, lookup)).toEqual({ valid: true });
    expect(await verifyEventSignatures(event, async (...args) => lookup(...args))).toEqual({ valid: true });
  });

  it('needs every server', async () => {
    const join = signEvent(member('10', { membership: 'join', join_authorised_via_users_server: '@w:d' }), 'a', key);
    expect(await verifyEventSignatures(join, lookup)).toEqual({ valid: false, serverName: 'd', reason: 'missing' });
    expect(await verifyEventSignatures(signEvent(join, 'd', key), lookup)).toEqual({ valid: true });
  });

  it('looks at the validity of keys from version 5 on', async () => {
    const late = (version: string) => signEvent(build(version, { originServerTs: 1001 }), 'a', key);
    expect(await verifyEventSignatures(late('4'), lookup)).toEqual({ valid: true });
    expect(await verifyEventSignatures(late('5'), lookup)).toEqual({
      valid: false,
      serverName: 'a',
      reason: 'expiredKey',
    });
    expect(await verifyEventSignatures(signEvent(build('5'), 'a', key), lookup)).toEqual({ valid: true });
  });

  it('takes malformed and foreign signatures for wrong ones', async () => {
    const event = signEvent(build('12'), 'a', key);
    const with_ = (ofServer: Record<string, string>): RoomEvent =>
      parsePdu({ ...event.pdu, signatures: { a: ofServer } }, rules('12'));
    for (const signature of ['', '!', 'x', 'eHg', 'A'.repeat(86), 'é'.repeat(86)]) {
      expect(await verifyEventSignatures(with_({ 'ed25519:1': signature }), lookup)).toMatchObject({ reason: 'wrong' });
    }
    expect(await verifyEventSignatures(with_({ 'rsa:1': 'x', __proto__: 'x' }), lookup)).toMatchObject({
      reason: 'missing',
    });
    const right = (event.pdu['signatures'] as Record<string, Record<string, string>>)['a']?.['ed25519:1'] as string;
    const otherAlphabet = `${encodeBase64Url(Buffer.from(right, 'base64'))}==`;
    expect(await verifyEventSignatures(with_({ 'ed25519:1': otherAlphabet }), lookup)).toEqual({ valid: true });
  });

  it('looks at few signatures of a server that claims many', async () => {
    const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`ed25519:k${i}`, 'x']));
    const event = parsePdu({ ...build('12').pdu, signatures: { a: many } }, rules('12'));
    expect(signingKeyIds(event, 'a')).toHaveLength(8);
    let calls = 0;
    await verifyEventSignatures(event, () => void calls++ as undefined);
    expect(calls).toBe(8);
  });
});
