import type { StateFilter } from '../model/rooms.js';

/** One entry of `required_state`. */
export type StatePair = readonly [type: string, stateKey: string];

const memberType = 'm.room.member';
const any = '*';
const me = '$ME';
const lazy = '$LAZY';

/** How much of a room's state must be read beside what is named. */
export type Breadth = 'named' | 'withoutMembers' | 'all';

/** One client's list of state, compiled. */
class Rule {
  readonly #takesAll: boolean;
  readonly #keysByType = new Map<string, Set<string>>();

  constructor(pairs: readonly StatePair[]) {
    this.#takesAll = pairs.some(([type, key]) => type === any && key === any);
    for (const [type, key] of pairs) {
      if (this.#takesAll && (type === any || key === any)) continue;
      const keys = this.#keysByType.get(type);
      if (keys) keys.add(key);
      else this.#keysByType.set(type, new Set([key]));
    }
  }

  get isLazy(): boolean {
    return this.#keysByType.get(memberType)?.has(lazy) === true;
  }

  get takesAllMembers(): boolean {
    const keys = this.#keysByType.get(memberType);
    return this.#takesAll ? keys === undefined : keys?.has(any) === true;
  }

  get breadth(): Breadth {
    if (this.#takesAll) return this.#keysByType.has(memberType) ? 'withoutMembers' : 'all';
    const keys = this.#keysByType.get(any);
    if (keys === undefined) return 'named';
    return [...keys].some((key) => key === me || key.startsWith('@')) ? 'all' : 'withoutMembers';
  }

  matches(type: string, stateKey: string, userId: string): boolean {
    const keys = this.#keysByType.get(type);
    const isNamed = keys !== undefined && names(keys, stateKey, userId);
    if (this.#takesAll) return keys === undefined || isNamed;
    const everywhere = this.#keysByType.get(any);
    return isNamed || (everywhere !== undefined && names(everywhere, stateKey, userId));
  }

  /** What is named, for a query. */
  *named(userId: string): Generator<readonly [type: string, stateKey?: string]> {
    for (const [type, keys] of this.#keysByType) {
      if (type === any) continue;
      if (keys.has(any)) yield [type];
      else for (const key of keys) if (key !== lazy) yield [type, key === me ? userId : key];
    }
  }
}

/**
 * The state that a client wants of a room. `*` stands for every type or key; beside `["*", "*"]` the other entries restrict
 * their types; `$ME` is the user; `$LAZY` are the members whom the timeline is about. When several lists hold a room, what
 * either wants is sent.
 */
export class RequiredState {
  readonly #rules: readonly Rule[];
  /** Equal for equal wishes; {@link RequiredState.parse} reads it. */
  readonly key: string;
  readonly isLazy: boolean;
  /** Whether everybody's membership is wanted, and not only of those who speak or are named. */
  readonly takesAllMembers: boolean;
  readonly breadth: Breadth;

  private constructor(lists: readonly (readonly StatePair[])[]) {
    const texts = lists.map((pairs) => JSON.stringify([...new Set(pairs.map((pair) => JSON.stringify(pair)))].sort()));
    this.key = JSON.stringify([...new Set(texts)].sort());
    this.#rules = lists.map((pairs) => new Rule(pairs));
    this.isLazy = this.#rules.some((rule) => rule.isLazy);
    this.takesAllMembers = this.#rules.some((rule) => rule.takesAllMembers);
    const breadths = new Set(this.#rules.map((rule) => rule.breadth));
    this.breadth = breadths.has('all') ? 'all' : breadths.has('withoutMembers') ? 'withoutMembers' : 'named';
  }

  static of(pairs: readonly StatePair[]): RequiredState {
    return new RequiredState([pairs]);
  }

  /** Reads {@link key}. */
  static parse(key: string): RequiredState {
    const texts = JSON.parse(key) as string[];
    return new RequiredState(
      texts.map((text) => (JSON.parse(text) as string[]).map((pair) => JSON.parse(pair) as StatePair)),
    );
  }

  /** What either wants. */
  or(other: RequiredState): RequiredState {
    if (other.key === this.key) return this;
    const texts = [...new Set([...(JSON.parse(this.key) as string[]), ...(JSON.parse(other.key) as string[])])];
    return RequiredState.parse(JSON.stringify(texts.sort()));
  }

  /** Whether an entry is wanted, lazily loaded members aside. */
  matches(type: string, stateKey: string, userId: string): boolean {
    return this.#rules.some((rule) => rule.matches(type, stateKey, userId));
  }

  /** The entries that are named, for a query. */
  named(userId: string): NonNullable<StateFilter['types']> {
    return this.#rules.flatMap((rule) => [...rule.named(userId)]);
  }
}

function names(keys: ReadonlySet<string>, stateKey: string, userId: string): boolean {
  return keys.has(any) || keys.has(stateKey) || (stateKey === userId && keys.has(me));
}
