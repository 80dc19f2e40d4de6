import type { RoomVersionRules } from '@rookery/events';

/** Where each group of auth rules stands in the numbered list of one room version. */
export interface RuleNumbers {
  readonly authEvents: number;
  readonly federate: number;
  readonly aliases: number;
  readonly member: number;
  /** Within the rules of `m.room.member`. */
  readonly membership: {
    readonly join: string;
    readonly invite: string;
    readonly leave: string;
    readonly ban: string;
    readonly knock: string;
    readonly unknown: string;
  };
  readonly senderJoined: number;
  readonly thirdPartyInvite: number;
  readonly requiredLevel: number;
  readonly ownStateKey: number;
  readonly powerLevels: number;
  /** Within the rules of `m.room.power_levels`: the first one of versions 1 to 9, about `users`. */
  readonly powerLevelUsers: number;
  readonly redaction: number;
}

const cache = new WeakMap<RoomVersionRules, RuleNumbers>();

/** The numbering follows from the rules that a room version adds or leaves out. */
export function ruleNumbersOf(rules: RoomVersionRules): RuleNumbers {
  let numbers = cache.get(rules);
  if (numbers === undefined) cache.set(rules, (numbers = compute(rules)));
  return numbers;
}

function compute(rules: RoomVersionRules): RuleNumbers {
  const authEvents = rules.createEventImplied ? 3 : 2;
  const federate = authEvents + 1;
  const aliases = federate + 1;
  const member = rules.aliasesAuthRule ? aliases + 1 : aliases;
  const join = rules.joinRules.restricted ? 3 : 2;
  const knock = join + 4;
  const inMember = (rule: number): string => `${member}.${rule}`;
  return {
    authEvents,
    federate,
    aliases,
    member,
    membership: {
      join: inMember(join),
      invite: inMember(join + 1),
      leave: inMember(join + 2),
      ban: inMember(join + 3),
      knock: inMember(knock),
      unknown: inMember(rules.joinRules.knock ? knock + 1 : knock),
    },
    senderJoined: member + 1,
    thirdPartyInvite: member + 2,
    requiredLevel: member + 3,
    ownStateKey: member + 4,
    powerLevels: member + 5,
    powerLevelUsers: rules.powerLevelValues === 'int' ? 3 : 1,
    redaction: member + 6,
  };
}
