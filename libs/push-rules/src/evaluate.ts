import { compileGlob, type Effort, holdsWords } from './glob.js';
import { propertyAt, splitPath } from './event-properties.js';
import {
  isLegacyMention,
  type PushAction,
  type PushCondition,
  type PushRule,
  ruleKinds,
  type RuleKind,
  type Ruleset,
} from './ruleset.js';

/** What conditions ask about beside the event itself. */
export interface PushContext {
  readonly userId: string;
  /** The user's display name in the room, for `contains_display_name`. */
  readonly displayName?: string | undefined;
  /** Joined members of the room. */
  readonly memberCount: number;
  /** The sender's power level; `Infinity` for creators of room version 12. */
  readonly senderPowerLevel: number;
  /** The level that a sender needs to notify by a key, `room` for a mention of the room, as the room's version reads it. */
  readonly notificationLevel: (key: string) => number;
  /** Whether the user is subscribed to the event's thread (MSC4306); absent for an event that is in none. */
  readonly threadSubscribed?: boolean | undefined;
  /** Events that this one points to, by the type of the relation (MSC3664). */
  readonly related?: ReadonlyMap<string, RelatedEvent> | undefined;
}

/** An event to which another one points. */
export interface RelatedEvent {
  readonly event: PushEvent;
  /** The relation is there for clients that do not understand the other one. */
  readonly isFallback: boolean;
}

/** An event in client format: at least `type`, `sender`, `room_id`, `content`. */
export type PushEvent = Readonly<Record<string, unknown>>;

type Check = (event: PushEvent, context: PushContext, effort: Effort) => boolean;

interface CompiledRule {
  readonly ruleId: string;
  readonly kind: RuleKind;
  readonly actions: readonly PushAction[];
  readonly checks: readonly Check[];
}

/** A ruleset ready for evaluation: enabled rules only, in order of priority. */
export type CompiledRuleset = readonly CompiledRule[];

/** The rule that decided, and what it asks for. */
export interface PushMatch {
  readonly ruleId: string;
  readonly kind: RuleKind;
  readonly actions: readonly PushAction[];
}

const never: Check = () => false;

function compileMemberCount(is: string | undefined): Check {
  const parsed = /^(==|<=|>=|<|>)?([0-9]{1,15})$/.exec(is ?? '');
  if (parsed === null) return never;
  const count = Number(parsed[2]);
  switch (parsed[1]) {
    case '<':
      return (_, context) => context.memberCount < count;
    case '>':
      return (_, context) => context.memberCount > count;
    case '<=':
      return (_, context) => context.memberCount <= count;
    case '>=':
      return (_, context) => context.memberCount >= count;
    default:
      return (_, context) => context.memberCount === count;
  }
}

const isSimple = (value: unknown): boolean =>
  value === null || typeof value === 'string' || typeof value === 'boolean' || Number.isSafeInteger(value);

/** A condition that is unknown or malformed never holds. @spec client-server-api#conditions-1 */
function compileCondition(condition: PushCondition): Check {
  switch (condition.kind) {
    case 'event_match': {
      const { key, pattern } = condition;
      if (typeof key !== 'string' || typeof pattern !== 'string') return never;
      const names = splitPath(key);
      const matches = compileGlob(pattern, key === 'content.body' ? 'words' : 'whole');
      return (event, _, effort) => {
        const value = propertyAt(event, names);
        return typeof value === 'string' && matches(value, effort);
      };
    }
    case 'event_property_is': {
      const { key, value: wanted } = condition;
      if (typeof key !== 'string' || !isSimple(wanted)) return never;
      const names = splitPath(key);
      return (event) => propertyAt(event, names) === wanted;
    }
    case 'event_property_contains': {
      const { key, value: wanted } = condition;
      if (typeof key !== 'string' || !isSimple(wanted)) return never;
      const names = splitPath(key);
      return (event, _, effort) => {
        const list = propertyAt(event, names);
        if (!Array.isArray(list)) return false;
        effort.left -= list.length;
        return effort.left > 0 && list.includes(wanted);
      };
    }
    case 'room_member_count':
      return compileMemberCount(condition.is);
    case 'sender_notification_permission': {
      const { key } = condition;
      if (typeof key !== 'string') return never;
      return (_, context) => context.senderPowerLevel >= context.notificationLevel(key);
    }
    case 'contains_display_name':
      return (event, context, effort) => {
        const body = propertyAt(event, ['content', 'body']);
        if (typeof body !== 'string' || !context.displayName || effort.left <= 0) return false;
        return holdsWords(body.toLowerCase(), context.displayName.toLowerCase(), effort);
      };
    case 'io.element.msc4306.thread_subscription': {
      const { subscribed } = condition;
      return typeof subscribed === 'boolean' ? (_, context) => context.threadSubscribed === subscribed : never;
    }
    case 'im.nheko.msc3664.related_event_match':
      return compileRelated(condition);
    default:
      return never;
  }
}

function compileRelated({ key, pattern, rel_type: type, include_fallbacks: withFallbacks }: PushCondition): Check {
  if (typeof type !== 'string') return never;
  const isPattern = typeof key === 'string' && typeof pattern === 'string';
  if (!isPattern && (key !== undefined || pattern !== undefined)) return never;
  const names = isPattern ? splitPath(key) : [];
  const matches = isPattern ? compileGlob(pattern, key === 'content.body' ? 'words' : 'whole') : undefined;
  return (_, context, effort) => {
    const related = context.related?.get(type);
    if (related === undefined || (related.isFallback && withFallbacks !== true)) return false;
    if (matches === undefined) return true;
    const value = propertyAt(related.event, names);
    return typeof value === 'string' && matches(value, effort);
  };
}

/** An event that says whom it mentions mentions nobody else. */
const namesNobodyItself: Check = (event) => propertyAt(event, ['content', 'm.mentions']) === undefined;

function compileRule(kind: RuleKind, rule: PushRule): CompiledRule {
  const checks: Check[] = rule.default && isLegacyMention(rule.rule_id) ? [namesNobodyItself] : [];
  if (kind === 'override' || kind === 'postcontent' || kind === 'underride')
    checks.push(...(rule.conditions ?? []).map(compileCondition));
  else if (kind === 'content') {
    checks.push(compileCondition({ kind: 'event_match', key: 'content.body', pattern: rule.pattern ?? '' }));
  } else if (kind === 'room') checks.push((event) => event['room_id'] === rule.rule_id);
  else checks.push((event) => event['sender'] === rule.rule_id);
  return { ruleId: rule.rule_id, kind, actions: rule.actions, checks };
}

/**
 * The text in which people may be mentioned by their names alone; undefined for an event that has none, or that says itself
 * whom it mentions.
 */
export function textOfOldMentions(content: Readonly<Record<string, unknown>>): string | undefined {
  const { body } = content;
  return typeof body === 'string' && content['m.mentions'] === undefined ? body : undefined;
}

/** Prepares a ruleset once, so that evaluating it per event is a loop over functions. */
export function compileRuleset(ruleset: Ruleset): CompiledRuleset {
  return ruleKinds.flatMap((kind) =>
    (ruleset[kind] ?? []).filter((rule) => rule.enabled).map((rule) => compileRule(kind, rule)),
  );
}

/**
 * What looking through one event's texts for one ruleset may cost: a tenth of a second, about. Thousands of rules on a long message take
 * less, unless they were made for it to take more.
 */
const mostEffort = 10_000_000;

/**
 * The first rule, by priority, whose conditions all hold; `undefined` when none does, and always for the user's own
 * events. Patterns of rules that come behind what would take too long do not match.
 * @spec client-server-api#push-rules
 */
export function evaluate(ruleset: CompiledRuleset, event: PushEvent, context: PushContext): PushMatch | undefined {
  if (event['sender'] === context.userId) return undefined;
  const effort = { left: mostEffort };
  return ruleset.find((rule) => rule.checks.every((check) => check(event, context, effort)));
}

/** What a match means for counting. */
export interface PushOutcome {
  readonly notify: boolean;
  readonly highlight: boolean;
  /** Name of a sound, where one is asked for. */
  readonly sound: string | undefined;
}

/** Reads the actions of a match; a tweak `highlight` without a value is true. @spec client-server-api#actions */
export function outcomeOf(actions: readonly PushAction[]): PushOutcome {
  let highlight = false;
  let sound: string | undefined;
  for (const action of actions) {
    if (typeof action === 'string') continue;
    if (action.set_tweak === 'highlight') highlight = action.value === undefined || action.value === true;
    if (action.set_tweak === 'sound' && typeof action.value === 'string') sound = action.value;
  }
  return { notify: actions.includes('notify'), highlight, sound };
}
