import type { StateMap } from '../state-map.js';

/** State sets, taken apart into what they agree on and what they do not. */
export interface Conflict {
  /** The entries that are the same in every state set. May be a view that reads lazily; it is never copied. */
  readonly unconflicted: Pick<StateMap, 'get' | 'values'>;
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
  const unconflicted = new Map<string, string>();
  const conflicting = sets.map(() => new Map<string, string>());
  const [first, ...others] = sets;
  if (first === undefined) return { unconflicted, sets: conflicting };

  /** For a key that not every set has with the same event. */
  const judge = (key: string): void => {
    const ids = sets.map((set) => set.get(key));
    const present = ids.filter((id) => id !== undefined);
    const [one] = present;
    if (one === undefined) return;
    if (algorithm === 'v1' && present.every((id) => id === one)) unconflicted.set(key, one);
    else for (const [index, id] of ids.entries()) if (id !== undefined) conflicting[index]?.set(key, id);
  };
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
