import { localpartOf } from '@rookery/matrix-types';

/**
 * The kinds of push rules, highest priority first; `postcontent` (MSC4306) holds rules of the server only.
 * @spec client-server-api#push-rules
 */
export const ruleKinds = ['override', 'content', 'postcontent', 'room', 'sender', 'underride'] as const;
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
  /** Of `io.element.msc4306.thread_subscription`. */
  readonly subscribed?: boolean;
  /** Of `im.nheko.msc3664.related_event_match`. */
  readonly rel_type?: string;
  /** The same: relations that are there for old clients count as well. */
  readonly include_fallbacks?: boolean;
}

/** One rule on the wire. @spec client-server-api#push-rules */
export interface PushRule {
  readonly rule_id: string;
  /** Whether the server defines it. */
  readonly default: boolean;
  readonly enabled: boolean;
  readonly actions: readonly PushAction[];
  /** Of `override`, `postcontent` and `underride` rules. */
  readonly conditions?: readonly PushCondition[];
  /** Of `content` rules. */
  readonly pattern?: string;
}

type Lists<Kind extends RuleKind> = { readonly [K in Kind]: readonly PushRule[] };

/** The rules of one user by kind, each list with the most important first; `postcontent` only where threads are a feature. */
export type Ruleset = Lists<Exclude<RuleKind, 'postcontent'>> & Partial<Lists<'postcontent'>>;

/** What the server offers beyond the specification, each with rules of its own. */
export interface RuleFeatures {
  /**
   * Mentions by a name in the text, as clients and bridges write them that know no `m.mentions`; such rules hold for events
   * without this property only. Matrix 1.17 removed them (MSC4210).
   */
  readonly legacyMentions?: boolean;
  /** Subscriptions to threads (MSC4306). */
  readonly threads?: boolean;
  /** Polls (MSC3930). */
  readonly polls?: boolean;
  /** Replies to the user (MSC3664). */
  readonly replies?: boolean;
  /** Calls for people to join a MatrixRTC session (MSC4075): they ring. */
  readonly calls?: boolean;
  /** All encrypted events, so that clients decide (MSC4028); off unless the user switches it on. */
  readonly encryptedEvents?: boolean;
}

/** A rule that a user made, as stored. */
export interface UserRule {
  readonly kind: RuleKind;
  readonly ruleId: string;
  readonly actions: readonly PushAction[];
  readonly conditions?: readonly PushCondition[];
  readonly pattern?: string;
  /** Absent: it is on. */
  readonly enabled?: boolean;
}

/** What a user changed. */
export interface RuleChanges {
  /** The user's own rules, most important first within a kind. */
  readonly rules: readonly UserRule[];
  /** Rules of the server switched on or off, by rule id; absent means the default. */
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
): PushRule => unstableRule(`m.rule.${id}`, conditions, actions, enabled);

const unstableRule = (
  id: string,
  conditions: readonly PushCondition[],
  actions: readonly PushAction[],
  enabled = true,
): PushRule => ({ rule_id: `.${id}`, default: true, enabled, conditions, actions });

const inThread = (subscribed: boolean): PushCondition => ({
  kind: 'io.element.msc4306.thread_subscription',
  subscribed,
});

const threadRules: readonly PushRule[] = [
  unstableRule('io.element.msc4306.rule.unsubscribed_thread', [inThread(false)], []),
  unstableRule('io.element.msc4306.rule.subscribed_thread', [inThread(true)], [notify, sound('default')]),
];

const pollRules: readonly PushRule[] = ['start', 'end'].flatMap((part) => {
  const ofType = match('type', `org.matrix.msc3381.poll.${part}`);
  return [
    unstableRule(`org.matrix.msc3930.rule.poll_${part}_one_to_one`, [twoMembers, ofType], [notify, sound('default')]),
    unstableRule(`org.matrix.msc3930.rule.poll_${part}`, [ofType], [notify]),
  ];
});

const pollResponse = unstableRule(
  'org.matrix.msc3930.rule.poll_response',
  [match('type', 'org.matrix.msc3381.poll.response')],
  [],
);

const encryptedEvent = unstableRule(
  'org.matrix.msc4028.encrypted_event',
  [match('type', 'm.room.encrypted')],
  [notify],
  false,
);

/** @param who those whom a call is for */
const rings = (name: string, ...who: readonly PushCondition[]): PushRule =>
  unstableRule(
    `org.matrix.msc4075.rule.rtc.invite_for_${name}`,
    [match('type', 'org.matrix.msc4075.rtc.notification'), ...who],
    [notify, sound('ring')],
  );

const replyTo = (userId: string): PushRule =>
  unstableRule(
    'im.nheko.msc3664.reply',
    [{ kind: 'im.nheko.msc3664.related_event_match', key: 'sender', pattern: userId, rel_type: 'm.in_reply_to' }],
    [notify, highlight, sound('default')],
  );

const named: readonly PushAction[] = [notify, sound('default'), highlight];
const mayNotifyRoom: PushCondition = { kind: 'sender_notification_permission', key: 'room' };
const mentionsRoom = is('content.m\\.mentions.room', true);
const mentions = (userId: string): PushCondition => ({
  kind: 'event_property_contains',
  key: 'content.m\\.mentions.user_ids',
  value: userId,
});
const legacyMentions: ReadonlySet<string> = new Set([
  '.m.rule.contains_display_name',
  '.m.rule.contains_user_name',
  '.m.rule.roomnotif',
]);

/** Whether a rule of the server finds mentions that an event does not list. */
export const isLegacyMention = (ruleId: string): boolean => legacyMentions.has(ruleId);

/**
 * The rules that every user starts with. They name the user, so each has their own copy.
 * @spec client-server-api#predefined-rules
 */
export function defaultRuleset(userId: string, features: RuleFeatures = {}): Ruleset {
  return {
    override: [
      rule('master', [], [], false),
      ...(features.encryptedEvents ? [encryptedEvent] : []),
      rule('suppress_notices', [match('content.msgtype', 'm.notice')], []),
      rule(
        'invite_for_me',
        [match('type', 'm.room.member'), match('content.membership', 'invite'), match('state_key', userId)],
        [notify, sound('default')],
      ),
      rule('member_event', [match('type', 'm.room.member')], []),
      ...(features.replies ? [replyTo(userId)] : []),
      ...(features.calls ? [rings('me', mentions(userId)), rings('room', mentionsRoom, mayNotifyRoom)] : []),
      rule('is_user_mention', [mentions(userId)], named),
      ...(features.legacyMentions ? [rule('contains_display_name', [{ kind: 'contains_display_name' }], named)] : []),
      rule('is_room_mention', [mentionsRoom, mayNotifyRoom], [notify, highlight]),
      ...(features.legacyMentions
        ? [rule('roomnotif', [match('content.body', '@room'), mayNotifyRoom], [notify, highlight])]
        : []),
      rule('tombstone', [match('type', 'm.room.tombstone'), match('state_key', '')], [notify, highlight]),
      rule('reaction', [match('type', 'm.reaction')], []),
      rule('room.server_acl', [match('type', 'm.room.server_acl'), match('state_key', '')], []),
      rule('suppress_edits', [is('content.m\\.relates_to.rel_type', 'm.replace')], []),
      ...(features.polls ? [pollResponse] : []),
    ],
    content: features.legacyMentions
      ? [
          {
            rule_id: '.m.rule.contains_user_name',
            default: true,
            enabled: true,
            pattern: localpartOf(userId),
            actions: named,
          },
        ]
      : [],
    ...(features.threads && { postcontent: threadRules }),
    room: [],
    sender: [],
    underride: [
      rule('call', [match('type', 'm.call.invite')], [notify, sound('ring')]),
      rule('encrypted_room_one_to_one', [twoMembers, match('type', 'm.room.encrypted')], [notify, sound('default')]),
      rule('room_one_to_one', [twoMembers, match('type', 'm.room.message')], [notify, sound('default')]),
      rule('message', [match('type', 'm.room.message')], [notify]),
      rule('encrypted', [match('type', 'm.room.encrypted')], [notify]),
      ...(features.polls ? pollRules : []),
    ],
  };
}

const masterRuleId = '.m.rule.master';

const everything: Required<RuleFeatures> = {
  ...{ legacyMentions: true, threads: true, polls: true, replies: true, calls: true, encryptedEvents: true },
};

/** The kind of each rule of the server. */
export const defaultRuleKinds: ReadonlyMap<string, RuleKind> = new Map(
  ruleKinds.flatMap((kind) =>
    (defaultRuleset('@a:b', everything)[kind] ?? []).map((entry) => [entry.rule_id, kind] as const),
  ),
);

/**
 * A user's whole ruleset: the server's rules with the user's changes, the user's own rules above the server's of the
 * same kind, the master switch above everything.
 * @spec client-server-api#push-rules
 */
export function buildRuleset(userId: string, changes: RuleChanges, features: RuleFeatures = {}): Ruleset {
  const defaults = defaultRuleset(userId, features);
  const enabledOf = (id: string, otherwise: boolean): boolean => changes.enabled.get(id) ?? otherwise;
  const result = {} as Record<RuleKind, PushRule[]>;
  for (const kind of ruleKinds) {
    const ofServer = defaults[kind];
    if (ofServer === undefined) continue;
    const server = ofServer.map((entry) => ({
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
          enabled: entry.enabled ?? true,
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
