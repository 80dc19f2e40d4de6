import { noRuleChanges, type RuleChanges, type UserRule } from '@rookery/push-rules';
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

describe('whom own rules concern', () => {
  const among = (rules: OwnRules, roomId = '!other:a', sender = '@zoe:a'): string[] => [
    ...rules.among(members, roomId, sender),
  ];

  it('is everybody with rules that were not looked at yet, as far as they are in the room', () => {
    expect(among(new OwnRules([alice, '@far:a']))).toEqual([alice]);
  });

  it.each<[name: string, rule: Partial<UserRule>, place: { roomId?: string; sender?: string }]>([
    ['a room', { kind: 'room', ruleId: '!room:a' }, { roomId: '!room:a' }],
    ['a sender', { kind: 'sender', ruleId: '@dan:a' }, { sender: '@dan:a' }],
    ['a room, by a condition', matches('room_id', '!room:a'), { roomId: '!room:a' }],
    ['a room, by a condition in other letters', matches('room_id', '!ROOM:a'), { roomId: '!Room:a' }],
    ['a sender, by a condition', { kind: 'underride', ...matches('sender', '@dan:a') }, { sender: '@dan:a' }],
  ])('are those with a rule about %s only there', (_, rule, { roomId, sender }) => {
    const rules = new OwnRules([alice]);
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
    const rules = new OwnRules([alice]);
    rules.learn(alice, about);
    expect(among(rules)).toEqual([alice]);
  });

  it('are nobody once all changes were taken back, and again who changes something', () => {
    const rules = new OwnRules([alice]);
    rules.learn(alice, changes({ kind: 'room', ruleId: '!room:a' }));
    rules.changed(alice);
    expect(among(rules)).toEqual([alice]);
    rules.learn(alice, { ...noRuleChanges, enabled: new Map([['!room:a', false]]) });
    expect(among(rules, '!room:a')).toEqual([]);
    rules.changed(bob);
    expect(among(rules)).toEqual([bob]);
  });

  it('are not learned of without end', () => {
    const rules = new OwnRules([alice, bob], 2);
    rules.learn(alice, changes({ kind: 'room', ruleId: '!1:a' }, { kind: 'room', ruleId: '!2:a' }));
    rules.learn(bob, changes({ kind: 'room', ruleId: '!3:a' }));
    expect(among(rules)).toEqual([bob]);
    rules.changed(alice);
    rules.learn(bob, changes({ kind: 'room', ruleId: '!3:a' }));
    expect(among(rules)).toEqual([alice]);
  });
});
