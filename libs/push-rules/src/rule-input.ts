import { isJsonObject } from '@rookery/matrix-types';
import { type PushAction, type PushCondition, type RuleKind, type UserRule, ruleKinds } from './ruleset.js';

/** A value, or why it cannot be taken. */
export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly reason: string };

const fail = (reason: string): { ok: false; reason: string } => ({ ok: false, reason });

const maxActions = 20;
const maxConditions = 50;
const maxPatternLength = 1000;

/** Whether a path segment names a kind of rules. */
export const isRuleKind = (value: string): value is RuleKind => (ruleKinds as readonly string[]).includes(value);

/**
 * Checks a list of actions. The removed `dont_notify` and `coalesce` are kept as given, since old clients send them and look
 * for them: like every action that is unknown, they do nothing.
 * @spec client-server-api#actions
 */
export function parseActions(value: unknown): Parsed<PushAction[]> {
  if (!Array.isArray(value)) return fail('actions must be a list');
  if (value.length > maxActions) return fail(`more than ${maxActions} actions`);
  const actions: PushAction[] = [];
  for (const action of value as unknown[]) {
    if (action === 'notify' || action === 'dont_notify' || action === 'coalesce') actions.push(action);
    else if (isJsonObject(action) && typeof action['set_tweak'] === 'string') {
      actions.push(action as { set_tweak: string; value?: unknown });
    } else return fail('an action must be "notify" or an object with set_tweak');
  }
  return { ok: true, value: actions };
}

function parseConditions(value: unknown): Parsed<PushCondition[]> {
  if (!Array.isArray(value)) return fail('conditions must be a list');
  if (value.length > maxConditions) return fail(`more than ${maxConditions} conditions`);
  for (const condition of value as unknown[]) {
    if (!isJsonObject(condition) || typeof condition['kind'] !== 'string') return fail('a condition must have a kind');
    for (const name of ['key', 'pattern', 'is']) {
      const text = condition[name];
      if (text !== undefined && typeof text !== 'string') return fail(`${name} of a condition must be a string`);
      if (typeof text === 'string' && text.length > maxPatternLength) return fail(`${name} of a condition is too long`);
    }
  }
  return { ok: true, value: value as PushCondition[] };
}

/**
 * Checks what a client wants to store as a rule.
 * @spec client-server-api#put_matrixclientv3pushrulesglobalkindruleid
 */
export function parseUserRule(kind: RuleKind, ruleId: string, body: unknown): Parsed<UserRule> {
  if (kind === 'postcontent') return fail('rules of this kind belong to the server');
  if (ruleId.startsWith('.')) return fail('rule ids that begin with a dot belong to the server');
  if (ruleId === '' || /[/\\]/.test(ruleId)) return fail('a rule id must not be empty or contain slashes');
  if (!isJsonObject(body)) return fail('a rule must be an object');
  if (kind === 'room' && !ruleId.startsWith('!')) return fail('the id of a room rule is a room id');
  if (kind === 'sender' && !(ruleId.startsWith('@') && ruleId.includes(':')))
    return fail('the id of a sender rule is a user id');
  const actions = parseActions(body['actions']);
  if (!actions.ok) return actions;
  const rule: UserRule = { kind, ruleId, actions: actions.value };
  if (kind === 'content') {
    const pattern = body['pattern'];
    if (typeof pattern !== 'string') return fail('a content rule needs a pattern');
    if (pattern.length > maxPatternLength) return fail('the pattern is too long');
    return { ok: true, value: { ...rule, pattern } };
  }
  if (kind === 'override' || kind === 'underride') {
    const conditions = parseConditions(body['conditions'] ?? []);
    if (!conditions.ok) return conditions;
    return { ok: true, value: { ...rule, conditions: conditions.value } };
  }
  return { ok: true, value: rule };
}

/** Ids that rules of the server had before they became stable. */
const formerIds: ReadonlyMap<string, string> = new Map([
  ['.org.matrix.msc3952.is_user_mention', '.m.rule.is_user_mention'],
  ['.org.matrix.msc3952.is_room_mention', '.m.rule.is_room_mention'],
  ['.org.matrix.msc3958.suppress_edits', '.m.rule.suppress_edits'],
  ['.com.beeper.suppress_edits', '.m.rule.suppress_edits'],
]);

/** The id of a stored rule as it is now: rules that became stable have a new one. */
export const presentRuleId = (storedId: string): string => formerIds.get(storedId) ?? storedId;
