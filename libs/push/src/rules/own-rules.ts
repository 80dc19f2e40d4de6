import { createHash } from 'node:crypto';
import {
  type CompiledRuleset,
  defaultRuleKinds,
  noRuleChanges,
  type PushCondition,
  type RuleChanges,
  type UserRule,
} from '@rookery/push-rules';

/** So many rooms and senders are known to have rules about them; users whose rules would be more are asked about everything. */
const maxPlaces = 500_000;

/** Users whose rules about a room are the same: one judgement serves all of them, except for whom an event names. */
export interface RuleGroup {
  /** Names the rules, whoever has them and whenever. */
  readonly id: string;
  readonly rules: CompiledRuleset;
  /** Also users who are not in the room. */
  readonly users: ReadonlySet<string>;
}

/** Users by the group that they are in now; undefined for none. */
export type Regrouped = ReadonlyMap<string, string | undefined>;

interface Group extends RuleGroup {
  readonly users: Set<string>;
}

/** What is known about a room or a sender. */
interface Place {
  /** Users whose rules about it have to be looked at one by one. */
  readonly alone: Set<string>;
  readonly groups: Map<string, Group>;
  /** Where the tables say something else about a room's groups, or may; absent until they were read. */
  stored: { readonly roomId: string; readonly unsaved: Map<string, string | undefined> } | undefined;
}

/** What a user's rules are about. */
interface About {
  readonly rules: UserRule[];
  /** It is a room, and the rules say the same to whoever has them. */
  isAlike: boolean;
}

/**
 * Who changed their push rules, and what the changes are about: most users only quieten some rooms and some people. Whose
 * changes about a room are the same are kept together.
 */
export class OwnRules {
  /** Users whose rules were not looked at since they changed; they stay where they were until then. */
  readonly #unknown: Set<string>;
  /** Users whose rules may be about any event. */
  readonly #anywhere = new Set<string>();
  readonly #placesOf = new Map<string, ReadonlyMap<string, string | undefined>>();
  readonly #places = new Map<string, Place>();
  #size = 0;

  /** @param compile what changes amount to for users whom an event does not name */
  constructor(
    userIds: Iterable<string>,
    private readonly compile: (changes: RuleChanges) => CompiledRuleset,
    private readonly limit = maxPlaces,
  ) {
    this.#unknown = new Set(userIds);
  }

  /** A user's rules are others now. */
  changed(userId: string): void {
    this.#unknown.add(userId);
  }

  /** Members whose rules were not looked at yet. */
  unknownAmong(members: ReadonlySet<string>): string[] {
    return [...common(this.#unknown, members)];
  }

  /** Takes note of what a user's changes are about. */
  learn(userId: string, changes: RuleChanges): void {
    if (!this.#unknown.delete(userId)) return;
    this.#anywhere.delete(userId);
    const before = this.#placesOf.get(userId);
    const about = aboutOf(changes);
    const size = this.#size - (before?.size ?? 0) + (about?.size ?? 0);
    const places = about === undefined || size > this.limit ? undefined : about;
    if (places === undefined) this.#anywhere.add(userId);
    for (const [name, groupId] of before ?? []) this.#leave(name, groupId, userId);
    this.#placesOf.delete(userId);
    this.#size -= before?.size ?? 0;
    if (places !== undefined && places.size > 0) {
      this.#placesOf.set(userId, new Map([...places].map(([name, what]) => [name, this.#enter(name, what, userId)])));
      this.#size += places.size;
    }
    for (const name of before?.keys() ?? []) this.#tidy(name);
  }

  /**
   * Those of a room's members whose rules have to be looked at one by one for what somebody sends there. For who is neither
   * here nor in one of the room's groups the default rules are the whole truth.
   */
  aloneAmong(members: ReadonlySet<string>, roomId: string, sender: string): Set<string> {
    const found = new Set<string>();
    const about = this.#places.get(placeOf(sender));
    const sets = [this.#unknown, this.#anywhere, this.#places.get(placeOf(roomId))?.alone, about?.alone];
    for (const users of sets) if (users !== undefined) for (const userId of common(users, members)) found.add(userId);
    return found;
  }

  /** Whether a room has groups that {@link groupsAt} cannot tell of yet. */
  hasUnreadGroups(roomId: string): boolean {
    const place = this.#places.get(placeOf(roomId));
    return place !== undefined && place.groups.size > 0 && place.stored?.roomId !== roomId;
  }

  /** What the tables say about a room: its users by group. */
  read(roomId: string, rows: ReadonlyMap<string, string>): void {
    const place = this.#places.get(placeOf(roomId));
    if (place === undefined) return;
    const unsaved = new Map<string, string | undefined>();
    for (const [userId, groupId] of rows)
      if (!place.groups.get(groupId)?.users.has(userId)) unsaved.set(userId, undefined);
    for (const { id, users } of place.groups.values())
      for (const userId of users) if (rows.get(userId) !== id) unsaved.set(userId, id);
    place.stored = { roomId, unsaved };
  }

  /** The groups of a room, once the tables were read. */
  groupsAt(roomId: string): readonly RuleGroup[] {
    const place = this.#places.get(placeOf(roomId));
    return place?.stored?.roomId === roomId ? [...place.groups.values()] : [];
  }

  /** Where the tables have to be changed before an event may refer to a room's groups. */
  unsavedAt(roomId: string): Regrouped {
    const stored = this.#places.get(placeOf(roomId))?.stored;
    return new Map(stored?.roomId === roomId ? stored.unsaved : []);
  }

  /** The tables were changed. */
  saved(roomId: string, regrouped: Regrouped): void {
    const stored = this.#places.get(placeOf(roomId))?.stored;
    if (stored?.roomId !== roomId) return;
    for (const [userId, groupId] of regrouped)
      if (stored.unsaved.has(userId) && stored.unsaved.get(userId) === groupId) stored.unsaved.delete(userId);
  }

  /** The tables know nothing about a room any more. */
  forget(roomId: string): void {
    const place = this.#places.get(placeOf(roomId));
    if (place) place.stored = undefined;
  }

  /** @returns the group's id; undefined for users who are looked at one by one */
  #enter(name: string, { rules, isAlike }: About, userId: string): string | undefined {
    let place = this.#places.get(name);
    if (place === undefined)
      this.#places.set(name, (place = { alone: new Set(), groups: new Map(), stored: undefined }));
    if (!isAlike) {
      place.alone.add(userId);
      return undefined;
    }
    const id = groupIdOf(rules);
    let group = place.groups.get(id);
    if (group === undefined)
      place.groups.set(id, (group = { id, rules: this.compile({ ...noRuleChanges, rules }), users: new Set() }));
    group.users.add(userId);
    place.stored?.unsaved.set(userId, id);
    return id;
  }

  #leave(name: string, groupId: string | undefined, userId: string): void {
    const place = this.#places.get(name);
    if (place === undefined) return;
    if (groupId === undefined) {
      place.alone.delete(userId);
      return;
    }
    const group = place.groups.get(groupId);
    group?.users.delete(userId);
    if (group?.users.size === 0) place.groups.delete(groupId);
    place.stored?.unsaved.set(userId, undefined);
  }

  #tidy(name: string): void {
    const place = this.#places.get(name);
    if (place?.alone.size === 0 && place.groups.size === 0) this.#places.delete(name);
  }
}

/** The common members of two sets, in the time of the smaller one. */
export function* common(a: ReadonlySet<string>, b: ReadonlySet<string>): Generator<string> {
  const [small, large] = a.size < b.size ? [a, b] : [b, a];
  for (const one of small) if (large.has(one)) yield one;
}

/** Patterns match whatever the case. */
const placeOf = (id: string): string => id.toLowerCase();

/** The rooms and senders that changes are about; undefined when they may be about anything. Rules that are off say nothing. */
function aboutOf({ rules, enabled, actions }: RuleChanges): ReadonlyMap<string, About> | undefined {
  if (actions.size > 0) return undefined;
  for (const ruleId of enabled.keys()) if (defaultRuleKinds.has(ruleId)) return undefined;
  const places = new Map<string, About>();
  for (const rule of rules) {
    if (rule.enabled === false) continue;
    const place = placeOfRule(rule);
    if (place === undefined) return undefined;
    const isAlike =
      place.startsWith('!') && rule.conditions?.some(({ kind }) => kind === 'contains_display_name') !== true;
    const about = places.get(placeOf(place));
    if (about === undefined) places.set(placeOf(place), { rules: [rule], isAlike });
    else {
      about.rules.push(rule);
      about.isAlike &&= isAlike;
    }
  }
  return places;
}

/** What rules of one's own are called has no effect, but for those that are called after what they are about. */
function groupIdOf(rules: readonly UserRule[]): string {
  const essence = rules.map(({ kind, ruleId, conditions, actions }) => [
    ...[kind, kind === 'room' ? ruleId : '', conditions ?? [], actions],
  ]);
  return `#${createHash('sha256').update(JSON.stringify(essence)).digest('base64url').slice(0, 16)}`;
}

function placeOfRule({ kind, ruleId, conditions = [] }: UserRule): string | undefined {
  if (kind === 'room' || kind === 'sender') return ruleId;
  if (kind !== 'override' && kind !== 'underride') return undefined;
  return conditions.find(isPlace)?.pattern;
}

const isPlace = ({ kind, key, pattern }: PushCondition): boolean =>
  kind === 'event_match' && (key === 'room_id' || key === 'sender') && pattern !== undefined && !/[*?]/.test(pattern);
