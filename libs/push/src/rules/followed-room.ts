import { parseUserRule, type PushCondition, type RuleKind, ruleKinds, type UserRule } from '@rookery/push-rules';

/**
 * A user's own rules after they followed one room into another: below each active rule that is about the old room stands one
 * that says the same about the new room, where there is none yet.
 * @param rules in the user's order, the most important of each kind first
 * @param most at most so many rules come out
 * @returns each kind that has more rules now, whole
 */
export function rulesWithSuccessor(
  rules: readonly UserRule[],
  oldRoomId: string,
  newRoomId: string,
  most: number,
): Map<RuleKind, UserRule[]> {
  const changed = new Map<RuleKind, UserRule[]>();
  let left = most - rules.length;
  for (const kind of ruleKinds) {
    const own = rules.filter((rule) => rule.kind === kind);
    const taken = new Set(own.map((rule) => rule.ruleId));
    const moved = own.flatMap((rule) => {
      const successor = left > 0 && rule.enabled !== false ? successorOf(rule, oldRoomId, newRoomId) : undefined;
      if (successor === undefined || taken.has(successor.ruleId)) return [rule];
      taken.add(successor.ruleId);
      left--;
      return [rule, successor];
    });
    if (moved.length > own.length) changed.set(kind, moved);
  }
  return changed;
}

function successorOf(rule: UserRule, oldRoomId: string, newRoomId: string): UserRule | undefined {
  if (rule.kind === 'room') return rule.ruleId === oldRoomId ? { ...rule, ruleId: newRoomId } : undefined;
  const isAbout = (condition: PushCondition): boolean =>
    condition.key === 'room_id' && (condition.pattern === oldRoomId || condition.value === oldRoomId);
  if (!rule.conditions?.some(isAbout)) return undefined;
  // Clients know the rule that mutes a room by the room's id; what other rules are called says nothing.
  const ruleId = rule.ruleId.includes(oldRoomId)
    ? rule.ruleId.replaceAll(oldRoomId, newRoomId)
    : `${rule.ruleId} ${newRoomId}`;
  const conditions = rule.conditions.map((condition) => {
    if (!isAbout(condition)) return condition;
    return condition.pattern === oldRoomId ? { ...condition, pattern: newRoomId } : { ...condition, value: newRoomId };
  });
  const successor = parseUserRule(rule.kind, ruleId, { actions: rule.actions, conditions });
  return successor.ok ? successor.value : undefined;
}
