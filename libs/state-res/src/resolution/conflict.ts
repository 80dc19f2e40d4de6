import type { StateMap } from '../state-map.js';

/** A state of which single entries are asked for, and seldom all. */
export interface StateView {
  get(key: string): string | undefined;
  entries(): Iterable<readonly [key: string, eventId: string]>;
}

/** State sets, taken apart into what they agree on and what they do not. */
export interface Conflict {
  /** The entries that are the same in every state set. May be a view that reads lazily; it is never copied. */
  readonly unconflicted: { get(key: string): string | undefined; values(): Iterable<string> };
  /** What else each state set holds; a set without anything else is an empty map. */
  readonly sets: readonly StateMap[];
}

/**
 * Separates what the state sets agree on from what they do not. An entry that only some sets have is a conflict, except
 * in version 1 of the algorithm, where only different events are.
 * @spec rooms/v2#definitions
 */
export function findConflict(
  sets: readonly StateMap[],
  algorithm: 'v1' | 'v2' | 'v2.1',
): Conflict & { readonly unconflicted: StateMap } {
  const { agreed: unconflicted, conflicting, judge } = judgeOf(sets, algorithm);
  const [first, ...others] = sets;
  if (first === undefined) return { unconflicted, sets: conflicting };
  for (const [key, id] of first) {
    if (others.every((other) => other.get(key) === id)) unconflicted.set(key, id);
    else judge(key);
  }
  for (const [index, set] of others.entries()) {
    const earlier = sets.slice(0, index + 1);
    for (const key of set.keys()) {
      if (!earlier.some((other) => other.has(key))) judge(key);
    }
  }
  return { unconflicted, sets: conflicting };
}

/** Looks at keys one by one: an entry that every set has with the same event is agreed on, others as {@link findConflict} says. */
function judgeOf(
  sets: readonly Pick<StateView, 'get'>[],
  algorithm: 'v1' | 'v2' | 'v2.1',
): { readonly agreed: Map<string, string>; readonly conflicting: Map<string, string>[]; judge(key: string): void } {
  const agreed = new Map<string, string>();
  const conflicting = sets.map(() => new Map<string, string>());
  const judge = (key: string): void => {
    const ids = sets.map((set) => set.get(key));
    const present = algorithm === 'v1' ? ids.filter((id) => id !== undefined) : ids;
    const [one] = present;
    if (one !== undefined && present.every((id) => id === one)) agreed.set(key, one);
    else for (const [index, id] of ids.entries()) if (id !== undefined) conflicting[index]?.set(key, id);
  };
  return { agreed, conflicting, judge };
}

/** What sets of which it is known where they may differ disagree on. */
export interface NarrowConflict extends Conflict {
  /** Those of the keys at which they may differ on which they agree after all. */
  readonly agreed: StateMap;
}

/** Entries that are looked at before others get a turn. */
const entriesPerTurn = 5_000;

/**
 * {@link findConflict} for sets of which it is known where they may differ: of their other entries none is looked at.
 * @param keys all at which any two of them differ, and maybe others
 * @param views at least one
 */
export async function conflictAmong(
  keys: ReadonlySet<string>,
  views: readonly StateView[],
  algorithm: 'v1' | 'v2' | 'v2.1',
  turn: () => Promise<unknown>,
): Promise<NarrowConflict> {
  const { agreed, conflicting, judge } = judgeOf(views, algorithm);
  let looked = 0;
  for (const key of keys) {
    judge(key);
    looked += views.length;
    if (looked < entriesPerTurn) continue;
    looked = 0;
    await turn();
  }
  const [first] = views;
  const unconflicted = {
    get: (key: string) => (keys.has(key) ? agreed.get(key) : first?.get(key)),
    *values(): Generator<string, void> {
      for (const [key, eventId] of first?.entries() ?? []) if (!keys.has(key)) yield eventId;
      yield* agreed.values();
    },
  };
  return { unconflicted, agreed, sets: conflicting };
}

/** The conflicted state set, by state key. */
export function idsByKey(conflict: Conflict): Map<string, Set<string>> {
  const byKey = new Map<string, Set<string>>();
  for (const set of conflict.sets) {
    for (const [key, id] of set) {
      const ids = byKey.get(key);
      if (ids === undefined) byKey.set(key, new Set([id]));
      else ids.add(id);
    }
  }
  return byKey;
}
