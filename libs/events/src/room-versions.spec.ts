import { defaultRoomVersion, redactPdu, roomVersionRules, roomVersions, type RoomVersionRules } from './index.js';

const rules = (version: string): RoomVersionRules => roomVersionRules(version) as RoomVersionRules;

/** First room version for which `holds` is true; every later one must agree. */
function since(holds: (rules: RoomVersionRules) => boolean): string | undefined {
  const first = roomVersions.findIndex((version) => holds(rules(version)));
  expect(roomVersions.map((version) => holds(rules(version)))).toEqual(
    roomVersions.map((_, i) => first >= 0 && i >= first),
  );
  return roomVersions[first];
}

describe('room versions', () => {
  it('are 1 to 12, new rooms get 12', () => {
    expect(roomVersions).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12']);
    expect(defaultRoomVersion).toBe('12');
    for (const version of roomVersions) expect(rules(version).version).toBe(version);
  });

  it('anything else is no room version', () => {
    for (const version of ['', '0', '13', '1.0', ' 1', '__proto__', 'org.matrix.msc3757.10', 1, null, undefined, {}]) {
      expect(roomVersionRules(version)).toBeUndefined();
    }
  });

  it('change at the right version', () => {
    expect(since((r) => r.stateResolution !== 'v1')).toBe('2');
    expect(since((r) => r.stateResolution === 'v2.1')).toBe('12');
    expect(since((r) => r.eventFormat !== 'v1')).toBe('3');
    expect(since((r) => r.eventFormat === 'v4')).toBe('4');
    expect(since((r) => !r.redactionAuthRule)).toBe('3');
    expect(since((r) => r.keyValidityEnforced)).toBe('5');
    expect(since((r) => r.strictCanonicalJson)).toBe('6');
    expect(since((r) => r.strictByteLimits)).toBe('11');
    expect(since((r) => r.powerLevelValues !== 'intStringFloat')).toBe('6');
    expect(since((r) => r.powerLevelValues === 'int')).toBe('10');
    expect(since((r) => !r.aliasesAuthRule)).toBe('6');
    expect(since((r) => r.notificationLevelsChecked)).toBe('6');
    expect(since((r) => r.maxDepth === 2 ** 53 - 1)).toBe('6');
    expect(since((r) => r.joinRules.knock)).toBe('7');
    expect(since((r) => r.joinRules.restricted)).toBe('8');
    expect(since((r) => r.joinRules.knockRestricted)).toBe('10');
    expect(since((r) => r.redactsInContent)).toBe('11');
    expect(since((r) => r.creatorIsSender)).toBe('11');
    expect(since((r) => r.privilegedCreators)).toBe('12');
    expect(since((r) => r.createEventImplied)).toBe('12');
    expect(since((r) => r.roomIdFormat === 'createEventHash')).toBe('12');
  });
});

describe('redaction', () => {
  const everyKey = {
    ...{ event_id: 1, type: 'x', room_id: 1, sender: 1, state_key: 1, content: {}, hashes: 1, signatures: 1, depth: 1 },
    ...{ prev_events: 1, prev_state: 1, auth_events: 1, origin: 1, origin_server_ts: 1, membership: 1 },
    ...{ redacts: 1, unsigned: 1, extra: 1, constructor: 1 },
  };

  it('keeps the top-level keys of the version', () => {
    const kept = (version: string): string[] => Object.keys(redactPdu(everyKey, rules(version))).sort();
    const common = [
      ...[
        'auth_events',
        'content',
        'depth',
        'event_id',
        'hashes',
        'origin_server_ts',
        'prev_events',
        'room_id',
        'sender',
      ],
      ...['signatures', 'state_key', 'type'],
    ];
    for (const version of roomVersions.slice(0, 10)) {
      expect(kept(version)).toEqual([...common, 'membership', 'origin', 'prev_state'].sort());
    }
    for (const version of ['11', '12']) expect(kept(version)).toEqual(common);
  });

  const keptContent = (version: string, type: string, content: unknown): unknown =>
    redactPdu({ type, content }, rules(version))['content'];

  const cases: [type: string, content: Record<string, unknown>, since: Record<number, unknown>][] = [
    [
      'm.room.member',
      {
        membership: 'join',
        displayname: 'x',
        join_authorised_via_users_server: '@a:b',
        third_party_invite: { signed: { a: 1 }, display_name: 'x' },
      },
      {
        1: { membership: 'join' },
        9: { membership: 'join', join_authorised_via_users_server: '@a:b' },
        11: { membership: 'join', join_authorised_via_users_server: '@a:b', third_party_invite: { signed: { a: 1 } } },
      },
    ],
    [
      'm.room.create',
      { creator: '@a:b', room_version: '1', 'm.federate': false },
      { 1: { creator: '@a:b' }, 11: { creator: '@a:b', room_version: '1', 'm.federate': false } },
    ],
    [
      'm.room.join_rules',
      { join_rule: 'restricted', allow: [1], extra: 1 },
      { 1: { join_rule: 'restricted' }, 8: { join_rule: 'restricted', allow: [1] } },
    ],
    [
      'm.room.power_levels',
      {
        ban: 1,
        events: 2,
        events_default: 3,
        kick: 4,
        redact: 5,
        state_default: 6,
        users: 7,
        users_default: 8,
        invite: 9,
        notifications: 10,
      },
      {
        1: { ban: 1, events: 2, events_default: 3, kick: 4, redact: 5, state_default: 6, users: 7, users_default: 8 },
        11: {
          ban: 1,
          events: 2,
          events_default: 3,
          kick: 4,
          redact: 5,
          state_default: 6,
          users: 7,
          users_default: 8,
          invite: 9,
        },
      },
    ],
    ['m.room.history_visibility', { history_visibility: 'shared', x: 1 }, { 1: { history_visibility: 'shared' } }],
    ['m.room.aliases', { aliases: ['#a:b'], x: 1 }, { 1: { aliases: ['#a:b'] }, 6: {} }],
    ['m.room.redaction', { redacts: '$a', reason: 'x' }, { 1: {}, 11: { redacts: '$a' } }],
    ['m.room.message', { body: 'x', membership: 'join' }, { 1: {} }],
    ['constructor', { body: 'x' }, { 1: {} }],
  ];

  it.each(cases)('keeps of %s what the version says', (type, content, changes) => {
    let expected: unknown;
    for (const version of roomVersions) {
      expected = changes[Number(version)] ?? expected;
      expect({ version, content: keptContent(version, type, content) }).toStrictEqual({ version, content: expected });
    }
  });

  it('takes odd third-party invites as other servers do', () => {
    expect(keptContent('11', 'm.room.member', { third_party_invite: {} })).toEqual({ third_party_invite: {} });
    expect(keptContent('11', 'm.room.member', { third_party_invite: 'x' })).toEqual({});
  });

  it('does not fall over content that is no object', () => {
    for (const content of [null, [], 'x', 1]) expect(keptContent('10', 'm.room.member', content)).toEqual({});
    expect(redactPdu({ type: 1 }, rules('10'))).toStrictEqual({ type: 1 });
    expect(keptContent('10', 'm.room.member', {})).toStrictEqual({});
  });
});
