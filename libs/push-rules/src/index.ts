/** The default push ruleset and its evaluation. */
export {
  type CompiledRuleset,
  compileRuleset,
  evaluate,
  outcomeOf,
  type PushContext,
  type PushEvent,
  type PushMatch,
  type PushOutcome,
  type RelatedEvent,
  textOfOldMentions,
} from './evaluate.js';
export { propertyAt, splitPath } from './event-properties.js';
export { compileGlob, holdsWords, type Matcher } from './glob.js';
export { isRuleKind, parseActions, type Parsed, parseUserRule, presentRuleId } from './rule-input.js';
export {
  buildRuleset,
  defaultRuleKinds,
  defaultRuleset,
  noRuleChanges,
  type PushAction,
  type PushCondition,
  type PushRule,
  type RuleChanges,
  type RuleFeatures,
  type RuleKind,
  ruleKinds,
  type Ruleset,
  type UserRule,
} from './ruleset.js';
