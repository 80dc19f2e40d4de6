import { defaultRuleKinds, type PushCondition, type RuleChanges, type UserRule } from '@rookery/push-rules';

/** So many rooms and senders are known to have rules about them; users whose rules would be more are asked about everything. */
const maxPlaces = 500_000;

/** Who changed their push rules, and what the changes are about: most users only quieten some rooms and some people. */
export class OwnRules {
  /** Users whose rules may be about any event, and those whose rules were not looked at yet. */
  readonly #anywhere: Set<string>;
  readonly #placesOf = new Map<string, ReadonlySet<string>>();
  readonly #usersAt = new Map<string, Set<string>>();
  #size = 0;

  constructor(
    userIds: Iterable<string>,
    private readonly limit = maxPlaces,
  ) {
    this.#anywhere = new Set(userIds);
  }

  /** A user's rules are others now. */
  changed(userId: string): void {
    for (const place of this.#placesOf.get(userId) ?? []) {
      const users = this.#usersAt.get(place);
      users?.delete(userId);
      if (users?.size === 0) this.#usersAt.delete(place);
      this.#size--;
    }
    this.#placesOf.delete(userId);
    this.#anywhere.add(userId);
  }

  /** Takes note of what a user's changes are about. */
  learn(userId: string, changes: RuleChanges): void {
    if (!this.#anywhere.has(userId)) return;
    const places = placesOf(changes);
    if (places === undefined || this.#size + places.size > this.limit) return;
    this.#anywhere.delete(userId);
    this.#placesOf.set(userId, places);
    this.#size += places.size;
    for (const place of places) {
      const users = this.#usersAt.get(place);
      if (users) users.add(userId);
      else this.#usersAt.set(place, new Set([userId]));
    }
  }

  /** Those of a room's members to whom the default rules may not be the whole truth about what somebody sends there. */
  among(members: ReadonlySet<string>, roomId: string, sender: string): Set<string> {
    const found = new Set<string>();
    for (const users of [this.#anywhere, this.#usersAt.get(placeOf(roomId)), this.#usersAt.get(placeOf(sender))]) {
      if (users === undefined) continue;
      const [small, large] = users.size < members.size ? [users, members] : [members, users];
      for (const userId of small) if (large.has(userId)) found.add(userId);
    }
    return found;
  }
}

/** Patterns match whatever the case. */
const placeOf = (id: string): string => id.toLowerCase();

/** The rooms and senders that changes are about; undefined when they may be about anything. */
function placesOf({ rules, enabled, actions }: RuleChanges): ReadonlySet<string> | undefined {
  if (actions.size > 0) return undefined;
  for (const ruleId of enabled.keys()) if (defaultRuleKinds.has(ruleId)) return undefined;
  const places = new Set<string>();
  for (const rule of rules) {
    const place = placeOfRule(rule);
    if (place === undefined) return undefined;
    places.add(placeOf(place));
  }
  return places;
}

function placeOfRule({ kind, ruleId, conditions = [] }: UserRule): string | undefined {
  if (kind === 'room' || kind === 'sender') return ruleId;
  if (kind !== 'override' && kind !== 'underride') return undefined;
  return conditions.find(isPlace)?.pattern;
}

const isPlace = ({ kind, key, pattern }: PushCondition): boolean =>
  kind === 'event_match' && (key === 'room_id' || key === 'sender') && pattern !== undefined && !/[*?]/.test(pattern);
