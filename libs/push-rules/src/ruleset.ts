/** The five kinds of push rules, highest priority first. @spec client-server-api#push-rules */
export const ruleKinds = ['override', 'content', 'room', 'sender', 'underride'] as const;
export type RuleKind = (typeof ruleKinds)[number];

/** `notify`, or a tweak for the client; unknown actions are kept and ignored. */
export type PushAction = string | { readonly set_tweak: string; readonly value?: unknown };

/** A condition as it is stored and sent; which keys it has depends on `kind`. */
export interface PushCondition {
  readonly kind: string;
  readonly key?: string;
  readonly pattern?: string;
  readonly is?: string;
  readonly value?: unknown;
}

/** One rule on the wire. @spec client-server-api#push-rules */
export interface PushRule {
  readonly rule_id: string;
  /** Whether the server defines it. */
  readonly default: boolean;
  readonly enabled: boolean;
  readonly actions: readonly PushAction[];
  /** Of `override` and `underride` rules. */
  readonly conditions?: readonly PushCondition[];
  /** Of `content` rules. */
  readonly pattern?: string;
}

/** The rules of one user by kind, each list with the most important first. */
export type Ruleset = { readonly [Kind in RuleKind]: readonly PushRule[] };

/** A rule that a user made, as stored. */
export interface UserRule {
  readonly kind: RuleKind;
  readonly ruleId: string;
  readonly actions: readonly PushAction[];
  readonly conditions?: readonly PushCondition[];
  readonly pattern?: string;
}

/** What a user changed. */
export interface RuleChanges {
  /** The user's own rules, most important first within a kind. */
  readonly rules: readonly UserRule[];
  /** Rules switched on or off, by rule id; absent means the default. */
  readonly enabled: ReadonlyMap<string, boolean>;
  /** Other actions for rules of the server, by rule id. */
  readonly actions: ReadonlyMap<string, readonly PushAction[]>;
}

const notify: PushAction = 'notify';
const sound = (value: string): PushAction => ({ set_tweak: 'sound', value });
const highlight: PushAction = { set_tweak: 'highlight' };

const match = (key: string, pattern: string): PushCondition => ({ kind: 'event_match', key, pattern });
const is = (key: string, value: unknown): PushCondition => ({ kind: 'event_property_is', key, value });
const twoMembers: PushCondition = { kind: 'room_member_count', is: '2' };

const rule = (
  id: string,
  conditions: readonly PushCondition[],
  actions: readonly PushAction[],
  enabled = true,
): PushRule => ({ rule_id: `.m.rule.${id}`, default: true, enabled, conditions, actions });

/**
 * The rules that every user starts with. They name the user, so each has their own copy.
 * @spec client-server-api#predefined-rules
 */
export function defaultRuleset(userId: string): Ruleset {
  return {
    override: [
      rule('master', [], [], false),
      rule('suppress_notices', [match('content.msgtype', 'm.notice')], []),
      rule(
        'invite_for_me',
        [match('type', 'm.room.member'), match('content.membership', 'invite'), match('state_key', userId)],
        [notify, sound('default')],
      ),
      rule('member_event', [match('type', 'm.room.member')], []),
      rule(
        'is_user_mention',
        [{ kind: 'event_property_contains', key: 'content.m\\.mentions.user_ids', value: userId }],
        [notify, sound('default'), highlight],
      ),
      rule(
        'is_room_mention',
        [is('content.m\\.mentions.room', true), { kind: 'sender_notification_permission', key: 'room' }],
        [notify, highlight],
      ),
      rule('tombstone', [match('type', 'm.room.tombstone'), match('state_key', '')], [notify, highlight]),
      rule('reaction', [match('type', 'm.reaction')], []),
      rule('room.server_acl', [match('type', 'm.room.server_acl'), match('state_key', '')], []),
      rule('suppress_edits', [is('content.m\\.relates_to.rel_type', 'm.replace')], []),
    ],
    content: [],
    room: [],
    sender: [],
    underride: [
      rule('call', [match('type', 'm.call.invite')], [notify, sound('ring')]),
      rule('encrypted_room_one_to_one', [twoMembers, match('type', 'm.room.encrypted')], [notify, sound('default')]),
      rule('room_one_to_one', [twoMembers, match('type', 'm.room.message')], [notify, sound('default')]),
      rule('message', [match('type', 'm.room.message')], [notify]),
      rule('encrypted', [match('type', 'm.room.encrypted')], [notify]),
    ],
  };
}

const masterRuleId = '.m.rule.master';

/** The kind of each rule of the server. */
export const defaultRuleKinds: ReadonlyMap<string, RuleKind> = new Map(
  ruleKinds.flatMap((kind) => defaultRuleset('@a:b')[kind].map((entry) => [entry.rule_id, kind] as const)),
);

/**
 * A user's whole ruleset: the server's rules with the user's changes, the user's own rules above the server's of the
 * same kind, the master switch above everything.
 * @spec client-server-api#push-rules
 */
export function buildRuleset(userId: string, changes: RuleChanges): Ruleset {
  const defaults = defaultRuleset(userId);
  const enabledOf = (id: string, otherwise: boolean): boolean => changes.enabled.get(id) ?? otherwise;
  const result = {} as Record<RuleKind, PushRule[]>;
  for (const kind of ruleKinds) {
    const server = defaults[kind].map((entry) => ({
      ...entry,
      enabled: enabledOf(entry.rule_id, entry.enabled),
      actions: changes.actions.get(entry.rule_id) ?? entry.actions,
    }));
    const own = changes.rules
      .filter((entry) => entry.kind === kind)
      .map((entry): PushRule => {
        const wire = {
          rule_id: entry.ruleId,
          default: false,
          enabled: enabledOf(entry.ruleId, true),
          actions: entry.actions,
        };
        if (kind === 'content') return { ...wire, pattern: entry.pattern ?? '' };
        if (kind === 'override' || kind === 'underride') return { ...wire, conditions: entry.conditions ?? [] };
        return wire;
      });
    const master = server.filter((entry) => entry.rule_id === masterRuleId);
    result[kind] = [...master, ...own, ...server.filter((entry) => entry.rule_id !== masterRuleId)];
  }
  return result;
}

/** No changes: the default ruleset. */
export const noRuleChanges: RuleChanges = { rules: [], enabled: new Map(), actions: new Map() };
