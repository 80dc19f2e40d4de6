import { buildRuleset, compileRuleset, noRuleChanges, type RuleChanges, type UserRule } from '@rookery/push-rules';
import { OwnRules } from './own-rules.js';

const [alice, bob, carol] = ['@alice:a', '@bob:a', '@carol:a'] as const;
const members = new Set([alice, bob, carol]);
const changes = (...rules: Partial<UserRule>[]): RuleChanges => ({
  ...noRuleChanges,
  rules: rules.map((rule) => ({ kind: 'override', ruleId: 'x', actions: [], ...rule })),
});
const matches = (key: string, pattern: string): Partial<UserRule> => ({
  conditions: [
    { kind: 'event_property_is', key: 'content.x', value: 1 },
    { kind: 'event_match', key, pattern },
  ],
});

const rulesOf = (userIds: readonly string[], limit?: number): OwnRules =>
  new OwnRules(userIds, (own) => compileRuleset(buildRuleset('@:', own)), limit);

describe('whom own rules concern', () => {
  /** One by one, or with others. */
  const among = (rules: OwnRules, roomId = '!other:a', sender = '@zoe:a'): string[] => {
    if (rules.hasUnreadGroups(roomId)) rules.read(roomId, new Map());
    const grouped = rules.groupsAt(roomId).flatMap(({ users }) => [...users]);
    return [...rules.aloneAmong(members, roomId, sender), ...grouped];
  };

  it('is everybody with rules that were not looked at yet, as far as they are in the room', () => {
    expect(among(rulesOf([alice, '@far:a']))).toEqual([alice]);
  });

  it.each<[name: string, rule: Partial<UserRule>, place: { roomId?: string; sender?: string }]>([
    ['a room', { kind: 'room', ruleId: '!room:a' }, { roomId: '!room:a' }],
    ['a sender', { kind: 'sender', ruleId: '@dan:a' }, { sender: '@dan:a' }],
    ['a room, by a condition', matches('room_id', '!room:a'), { roomId: '!room:a' }],
    ['a room, by a condition in other letters', matches('room_id', '!ROOM:a'), { roomId: '!Room:a' }],
    ['a sender, by a condition', { kind: 'underride', ...matches('sender', '@dan:a') }, { sender: '@dan:a' }],
  ])('are those with a rule about %s only there', (_, rule, { roomId, sender }) => {
    const rules = rulesOf([alice]);
    rules.learn(alice, changes(rule));
    expect(among(rules)).toEqual([]);
    expect(among(rules, roomId, sender)).toEqual([alice]);
  });

  it.each<[name: string, changes: RuleChanges]>([
    ['a word', changes({ kind: 'content', pattern: 'lunch' })],
    ['a pattern of rooms', changes(matches('room_id', '!room*'))],
    ['another part of the event', changes(matches('type', 'm.room.message'))],
    ['nothing in particular', changes({ conditions: [] })],
    ['a room and a word', changes({ kind: 'room', ruleId: '!room:a' }, { kind: 'content', pattern: 'lunch' })],
    ['a rule of the server', { ...noRuleChanges, enabled: new Map([['.m.rule.message', false]]) }],
    ['what a rule of the server does', { ...noRuleChanges, actions: new Map([['.m.rule.message', []]]) }],
  ])('are those with a rule about %s everywhere', (_, about) => {
    const rules = rulesOf([alice]);
    rules.learn(alice, about);
    expect(among(rules)).toEqual([alice]);
  });

  it('are nobody once all changes were taken back, and again who changes something', () => {
    const rules = rulesOf([alice]);
    rules.learn(alice, changes({ kind: 'room', ruleId: '!room:a' }));
    rules.changed(alice);
    expect(among(rules)).toEqual([alice]);
    expect(rules.unknownAmong(members)).toEqual([alice]);
    rules.learn(alice, changes({ kind: 'room', ruleId: '!room:a', enabled: false }));
    expect(among(rules, '!room:a')).toEqual([]);
    rules.changed(bob);
    expect(among(rules)).toEqual([bob]);
  });

  it('are not learned of without end', () => {
    const rules = rulesOf([alice, bob], 2);
    rules.learn(alice, changes({ kind: 'room', ruleId: '!1:a' }, { kind: 'room', ruleId: '!2:a' }));
    rules.learn(bob, changes({ kind: 'room', ruleId: '!3:a' }));
    expect(among(rules)).toEqual([bob]);
    rules.changed(alice);
    rules.learn(alice, noRuleChanges);
    rules.changed(bob);
    rules.learn(bob, changes({ kind: 'room', ruleId: '!3:a' }));
    expect(among(rules)).toEqual([]);
    expect(among(rules, '!3:a')).toEqual([bob]);
  });
});

describe('groups of users with the same rules about a room', () => {
  const room = '!room:a';
  const muted = changes({ kind: 'room', ruleId: room });
  const override = (ruleId: string): RuleChanges =>
    changes({ ruleId, conditions: [{ kind: 'event_match', key: 'room_id', pattern: room }] });
  const groupsAt = (rules: OwnRules): string[][] => rules.groupsAt(room).map(({ users }) => [...users].toSorted());

  it('are told apart by what the rules say, not by what they are called', () => {
    const rules = rulesOf([alice, bob, carol]);
    rules.learn(alice, override('x'));
    rules.learn(bob, override('y'));
    rules.learn(carol, muted);
    expect(groupsAt(rules)).toEqual([]);
    expect(rules.hasUnreadGroups(room)).toBe(true);
    rules.read(room, new Map());
    expect(rules.hasUnreadGroups(room)).toBe(false);
    expect(groupsAt(rules)).toEqual([[alice, bob], [carol]]);
    expect([...rules.aloneAmong(members, room, '@zoe:a')]).toEqual([]);
    expect(new Set(rules.groupsAt(room).map(({ id }) => id)).size).toBe(2);
  });

  it('have the name of their rules, whoever is in them', () => {
    const ids = [alice, bob].map((userId) => {
      const rules = rulesOf([userId]);
      rules.learn(userId, muted);
      rules.read(room, new Map());
      return rules.groupsAt(room)[0]!.id;
    });
    expect(ids[0]).toBe(ids[1]);
    expect(ids[0]).toMatch(/^#[\w-]{16}$/);
  });

  it('do not take in users whose rules ask for their name, and these are looked at alone', () => {
    const rules = rulesOf([alice]);
    const { conditions = [] } = matches('room_id', room);
    rules.learn(alice, changes({ conditions: [...conditions, { kind: 'contains_display_name' }] }));
    expect(rules.hasUnreadGroups(room)).toBe(false);
    expect([...rules.aloneAmong(members, room, '@zoe:a')]).toEqual([alice]);
  });

  it('tell what the tables do not know yet, until they do', () => {
    const rules = rulesOf([alice, bob, carol]);
    rules.learn(alice, muted);
    rules.learn(bob, muted);
    rules.learn(carol, noRuleChanges);
    rules.read(room, new Map());
    const id = rules.groupsAt(room)[0]!.id;
    rules.read(room, new Map([alice, carol].map((userId) => [userId, id])));
    expect([...rules.unsavedAt(room)]).toEqual([
      [carol, undefined],
      [bob, id],
    ]);
    const saving = rules.unsavedAt(room);
    rules.changed(bob);
    // Until the new rules are looked at, the old ones hold.
    expect(groupsAt(rules)).toEqual([[alice, bob]]);
    rules.learn(bob, noRuleChanges);
    rules.saved(room, saving);
    expect([...rules.unsavedAt(room)]).toEqual([[bob, undefined]]);
    rules.forget(room);
    expect(rules.hasUnreadGroups(room)).toBe(true);
  });

  it('go with their last user', () => {
    const rules = rulesOf([alice]);
    rules.learn(alice, muted);
    rules.read(room, new Map());
    rules.changed(alice);
    rules.learn(alice, noRuleChanges);
    expect([rules.groupsAt(room), rules.unsavedAt(room).size]).toEqual([[], 0]);
  });
});
