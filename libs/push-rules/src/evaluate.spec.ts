import { compileRuleset, evaluate, outcomeOf, type PushContext, type PushEvent } from './evaluate.js';
import { parseUserRule, presentRuleId } from './rule-input.js';
import {
  buildRuleset,
  defaultRuleset,
  noRuleChanges,
  type PushCondition,
  type RuleChanges,
  type UserRule,
} from './ruleset.js';

const me = '@alice:example.org';
const room = '!room:example.org';
const context = (changes: Partial<PushContext> = {}): PushContext => ({
  userId: me,
  memberCount: 3,
  senderPowerLevel: 0,
  notificationLevel: () => 50,
  ...changes,
});
const event = (type: string, content: object, more: object = {}): PushEvent => ({
  type,
  content,
  sender: '@bob:example.org',
  room_id: room,
  ...more,
});
const message = (content: object): PushEvent => event('m.room.message', { msgtype: 'm.text', body: 'hi', ...content });
const defaults = compileRuleset(defaultRuleset(me));
const withRules = (rules: UserRule[], more: Partial<RuleChanges> = {}) =>
  compileRuleset(buildRuleset(me, { ...noRuleChanges, rules, ...more }));
const deciding = (conditions: PushCondition[], of: PushEvent, ctx = context()): boolean =>
  evaluate(withRules([{ kind: 'override', ruleId: 'test', actions: ['notify'], conditions }]), of, ctx)?.ruleId ===
  'test';

describe('the default rules', () => {
  it.each<[string, PushEvent, Partial<PushContext>, string | undefined]>([
    ['a notice', message({ msgtype: 'm.notice' }), {}, '.m.rule.suppress_notices'],
    [
      'a notice that mentions',
      message({ msgtype: 'm.notice', 'm.mentions': { user_ids: [me] } }),
      {},
      '.m.rule.suppress_notices',
    ],
    ['my invite', event('m.room.member', { membership: 'invite' }, { state_key: me }), {}, '.m.rule.invite_for_me'],
    [
      'another invite',
      event('m.room.member', { membership: 'invite' }, { state_key: '@c:d' }),
      {},
      '.m.rule.member_event',
    ],
    ['my mention', message({ 'm.mentions': { user_ids: ['@c:d', me] } }), {}, '.m.rule.is_user_mention'],
    ['somebody else mentioned', message({ 'm.mentions': { user_ids: ['@c:d'] } }), {}, '.m.rule.message'],
    ['a mention that is no list', message({ 'm.mentions': { user_ids: me } }), {}, '.m.rule.message'],
    [
      'the room mentioned',
      message({ 'm.mentions': { room: true } }),
      { senderPowerLevel: 50 },
      '.m.rule.is_room_mention',
    ],
    [
      'the room mentioned without the power',
      message({ 'm.mentions': { room: true } }),
      { senderPowerLevel: 49 },
      '.m.rule.message',
    ],
    [
      'the room mentioned, lower level',
      message({ 'm.mentions': { room: true } }),
      { notificationLevel: (key) => (key === 'room' ? 0 : 50) },
      '.m.rule.is_room_mention',
    ],
    [
      'the room mentioned by a creator',
      message({ 'm.mentions': { room: true } }),
      { senderPowerLevel: Infinity },
      '.m.rule.is_room_mention',
    ],
    ['a truthy room mention', message({ 'm.mentions': { room: 'true' } }), { senderPowerLevel: 50 }, '.m.rule.message'],
    ['a tombstone', event('m.room.tombstone', {}, { state_key: '' }), {}, '.m.rule.tombstone'],
    ['a tombstone with a state key', event('m.room.tombstone', {}, { state_key: 'x' }), {}, undefined],
    ['a reaction', event('m.reaction', {}), {}, '.m.rule.reaction'],
    ['server ACLs', event('m.room.server_acl', {}, { state_key: '' }), {}, '.m.rule.room.server_acl'],
    ['an edit', message({ 'm.relates_to': { rel_type: 'm.replace' } }), {}, '.m.rule.suppress_edits'],
    [
      'an edit that mentions me',
      message({ 'm.relates_to': { rel_type: 'm.replace' }, 'm.mentions': { user_ids: [me] } }),
      {},
      '.m.rule.is_user_mention',
    ],
    ['a call', event('m.call.invite', {}), {}, '.m.rule.call'],
    ['encrypted, two members', event('m.room.encrypted', {}), { memberCount: 2 }, '.m.rule.encrypted_room_one_to_one'],
    ['two members', message({}), { memberCount: 2 }, '.m.rule.room_one_to_one'],
    ['a message', message({}), {}, '.m.rule.message'],
    ['encrypted', event('m.room.encrypted', {}), {}, '.m.rule.encrypted'],
    ['anything else', event('org.example', {}), {}, undefined],
  ])('%s', (_, of, changes, expected) => {
    expect(evaluate(defaults, of, context(changes))?.ruleId).toBe(expected);
  });

  it('say nothing about my own events', () => {
    expect(evaluate(defaults, { ...message({}), sender: me }, context())).toBeUndefined();
  });

  it('stop at the master rule when it is on', () => {
    const rules = withRules([{ kind: 'override', ruleId: 'mine', actions: ['notify'] }], {
      enabled: new Map([['.m.rule.master', true]]),
    });
    const match = evaluate(rules, message({}), context());
    expect(match?.ruleId).toBe('.m.rule.master');
    expect(outcomeOf(match?.actions ?? ['notify'])).toEqual({ notify: false, highlight: false, sound: undefined });
  });
});

describe('rules of a user', () => {
  it('come before the rules of the server of the same kind, and kinds have an order', () => {
    const rules = withRules([
      { kind: 'underride', ruleId: 'u', actions: [] },
      { kind: 'sender', ruleId: '@bob:example.org', actions: ['notify'] },
      { kind: 'room', ruleId: room, actions: [] },
      { kind: 'content', ruleId: 'c', actions: ['notify'], pattern: 'hi' },
    ]);
    expect(evaluate(rules, message({}), context())?.ruleId).toBe('c');
    expect(evaluate(rules, message({ body: 'bye' }), context())?.ruleId).toBe(room);
    expect(evaluate(rules, { ...message({ body: 'bye' }), room_id: '!x:y' }, context())?.ruleId).toBe(
      '@bob:example.org',
    );
    expect(evaluate(rules, { ...message({ body: 'bye' }), room_id: '!x:y', sender: '@c:d' }, context())?.ruleId).toBe(
      'u',
    );
  });

  it('hold nobody up who did not make them, however many there are for however long a message', () => {
    const patterns = Array.from({ length: 1_000 }, (_, n) => `${'?a'.repeat(400)}b${n}`);
    const rules = withRules(
      patterns.map((pattern, n): UserRule => ({ kind: 'content', ruleId: `r${n}`, actions: ['notify'], pattern })),
    );
    const startedMs = performance.now();
    expect(evaluate(rules, message({ body: 'a'.repeat(60_000) }), context())?.ruleId).toBe('.m.rule.message');
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });

  it('can be switched off, and change what the server does', () => {
    const rules = withRules([{ kind: 'content', ruleId: 'c', actions: [], pattern: 'hi', enabled: false }], {
      actions: new Map([['.m.rule.message', ['notify', { set_tweak: 'sound', value: 'ping' }]]]),
    });
    const match = evaluate(rules, message({}), context());
    expect(match?.ruleId).toBe('.m.rule.message');
    expect(outcomeOf(match?.actions ?? [])).toEqual({ notify: true, highlight: false, sound: 'ping' });
  });
});

describe('conditions', () => {
  it.each<[string, PushCondition, PushEvent, boolean]>([
    ['glob on a field', { kind: 'event_match', key: 'content.msgtype', pattern: 'M.*' }, message({}), true],
    [
      'glob on a field that is no string',
      { kind: 'event_match', key: 'content.n', pattern: '*' },
      message({ n: 1 }),
      false,
    ],
    ['glob on a missing field', { kind: 'event_match', key: 'content.n', pattern: '*' }, message({}), false],
    [
      'words on the body',
      { kind: 'event_match', key: 'content.body', pattern: 'hi' },
      message({ body: 'well, hi there' }),
      true,
    ],
    [
      'whole on other fields',
      { kind: 'event_match', key: 'content.other', pattern: 'hi' },
      message({ other: 'hi there' }),
      false,
    ],
    [
      'escaped dot',
      { kind: 'event_property_is', key: 'content.a\\.b.c', value: 1 },
      message({ 'a.b': { c: 1 } }),
      true,
    ],
    [
      'escaped backslash',
      { kind: 'event_property_is', key: 'content.a\\\\b', value: null },
      message({ 'a\\b': null }),
      true,
    ],
    [
      'other escapes stand for themselves',
      { kind: 'event_property_is', key: 'content.a\\b', value: true },
      message({ 'a\\b': true }),
      true,
    ],
    ['is, of another type', { kind: 'event_property_is', key: 'content.n', value: 1 }, message({ n: '1' }), false],
    ['is, of a compound value', { kind: 'event_property_is', key: 'content.n', value: {} }, message({ n: {} }), false],
    ['contains', { kind: 'event_property_contains', key: 'content.list', value: 2 }, message({ list: [1, 2] }), true],
    [
      'contains, no list',
      { kind: 'event_property_contains', key: 'content.list', value: 2 },
      message({ list: 2 }),
      false,
    ],
    [
      'inherited keys do not count',
      { kind: 'event_property_is', key: 'content.constructor.name', value: 'Object' },
      message({}),
      false,
    ],
    ['unknown kind', { kind: 'org.example.moon_phase' }, message({}), false],
    ['no pattern', { kind: 'event_match', key: 'type' }, message({}), false],
    ['count without number', { kind: 'room_member_count', is: '>' }, message({}), false],
    ['count missing', { kind: 'room_member_count' }, message({}), false],
  ])('%s', (_, condition, of, expected) => {
    expect(deciding([condition], of)).toBe(expected);
  });

  it.each([
    ['2', 2, true],
    ['==2', 2, true],
    ['==2', 3, false],
    ['<3', 2, true],
    ['<3', 3, false],
    ['>3', 4, true],
    ['>3', 3, false],
    ['<=3', 3, true],
    ['>=3', 3, true],
    ['>=3', 2, false],
  ])('member count %s with %i members: %s', (is, memberCount, expected) => {
    expect(deciding([{ kind: 'room_member_count', is }], message({}), context({ memberCount }))).toBe(expected);
  });

  it('finds the display name in the body, as old rules ask', () => {
    const condition = [{ kind: 'contains_display_name' }];
    expect(deciding(condition, message({ body: 'hello Alice M.' }), context({ displayName: 'alice m' }))).toBe(true);
    expect(deciding(condition, message({ body: 'hello Alicem' }), context({ displayName: 'alice' }))).toBe(false);
    expect(deciding(condition, message({ body: 'hello' }), context())).toBe(false);
  });
});

describe('input', () => {
  it.each<[Parameters<typeof parseUserRule>, boolean]>([
    [
      ['override', 'a', { actions: ['notify'], conditions: [{ kind: 'event_match', key: 'type', pattern: 'm.*' }] }],
      true,
    ],
    [['override', '.a', { actions: [] }], false],
    [['override', 'a/b', { actions: [] }], false],
    [['override', 'a\\b', { actions: [] }], false],
    [['override', '', { actions: [] }], false],
    [['override', 'a', {}], false],
    [['override', 'a', { actions: 'notify' }], false],
    [['override', 'a', { actions: ['shout'] }], false],
    [['override', 'a', { actions: [], conditions: [{}] }], false],
    [['override', 'a', { actions: [], conditions: {} }], false],
    [['content', 'a', { actions: [] }], false],
    [['content', 'a', { actions: [], pattern: 'x' }], true],
    [['room', '!a:b', { actions: [] }], true],
    [['room', 'a', { actions: [] }], false],
    [['sender', '@a:b', { actions: [] }], true],
    [['sender', 'a', { actions: [] }], false],
    [['override', 'a', null], false],
  ])('%j: %s', (args, ok) => {
    expect(parseUserRule(...args).ok).toBe(ok);
  });

  it('keeps actions that were removed, and they do nothing', () => {
    const parsed = parseUserRule('room', '!a:b', { actions: ['dont_notify', 'coalesce'] });
    expect(parsed).toEqual({ ok: true, value: { kind: 'room', ruleId: '!a:b', actions: ['dont_notify', 'coalesce'] } });
    expect(outcomeOf(['dont_notify', 'coalesce'])).toEqual({ notify: false, highlight: false, sound: undefined });
    expect(outcomeOf(['coalesce', 'notify']).notify).toBe(true);
  });

  it('knows rules by the ids that they had before', () => {
    expect(presentRuleId('.org.matrix.msc3952.is_user_mention')).toBe('.m.rule.is_user_mention');
    expect(presentRuleId('.m.rule.contains_user_name')).toBe('.m.rule.contains_user_name');
    expect(presentRuleId('mine')).toBe('mine');
  });
});

describe('mentions of clients that do not list them', () => {
  const legacy = compileRuleset(defaultRuleset(me, { legacyMentions: true }));
  const named = context({ displayName: 'Alice (*) Žofie' });
  const decidedBy = (content: object, ctx = named, rules = legacy): string | undefined =>
    evaluate(rules, message(content), ctx)?.ruleId;

  it.each([
    ['so, alice (*) žofie: hello', '.m.rule.contains_display_name'],
    ['so, alice (x) žofie: hello', '.m.rule.contains_user_name'],
    ['ALICE?', '.m.rule.contains_user_name'],
    ['malice', '.m.rule.message'],
    ['alice2', '.m.rule.message'],
    ['@room come', '.m.rule.message'],
  ])('%s: %s', (body, ruleId) => {
    expect(decidedBy({ body })).toBe(ruleId);
  });

  it('mention the room where the sender may', () => {
    expect(decidedBy({ body: 'come @room!' }, { ...named, senderPowerLevel: 50 })).toBe('.m.rule.roomnotif');
  });

  it('count for no event that lists its mentions, and nowhere where the server does not have them', () => {
    const body = 'alice (*) žofie, alice, @room';
    expect(decidedBy({ body, 'm.mentions': {} }, { ...named, senderPowerLevel: 50 })).toBe('.m.rule.message');
    expect(decidedBy({ body }, { ...named, senderPowerLevel: 50 }, defaults)).toBe('.m.rule.message');
  });
});
