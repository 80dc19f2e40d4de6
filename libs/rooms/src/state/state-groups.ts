import type { StateMap } from '@rookery/state-res';
import type { ChainLink } from './state-groups.query.js';

/** A state group that is to be written. */
export interface GroupPlan {
  readonly group: number;
  readonly position: number;
  /** The group that `rows` is a delta over; absent: `rows` is everything. */
  readonly prev: number | undefined;
  readonly rows: StateMap;
  /** Entries of the whole state. */
  readonly size: number;
  /** Its own chain, itself first. */
  readonly chain: readonly ChainLink[];
  /** It has been written already. */
  readonly isStored?: boolean;
}

/**
 * Digits of the chain. Position p is written as a delta over p without the last unit of its lowest non-zero digit, so
 * that a chain of n changes has at most 15 hops per digit, while a change is rewritten once per digit on average:
 * 1 row most of the time, 16 every 16th, 256 every 256th.
 */
const base = 16;

/** The position that the group at `position` is a delta over. */
export function deltaTarget(position: number): number {
  let step = 1;
  while (position % (step * base) === 0) step *= base;
  return position - step;
}

/**
 * Plans the group that follows `chain` by `changes` (keys that are set; none is removed).
 * @param chain chain of the group before, nearest first
 * @param deltasOf rows of single groups; asked only where several deltas are merged
 * @param size number of entries of the whole state after the change
 * @param whole the whole state after the change; asked only where writing it is the cheapest
 */
export async function planGroup(
  group: number,
  chain: readonly ChainLink[],
  changes: StateMap,
  deltasOf: (groups: readonly number[]) => Promise<ReadonlyMap<number, StateMap>>,
  size: number,
  whole: () => Promise<StateMap>,
): Promise<GroupPlan> {
  const parent = chain[0]!;
  const position = parent.position + 1;
  const target = deltaTarget(position);
  const found = chain.findIndex((link) => link.position <= target);
  const index = found < 0 ? 0 : found;
  let rows = changes;
  if (index > 0) {
    const skipped = chain.slice(0, index).map((link) => link.group);
    const deltas = await deltasOf(skipped);
    const merged = new Map<string, string>();
    for (const skippedGroup of skipped.reverse()) {
      for (const [key, eventId] of deltas.get(skippedGroup) ?? []) merged.set(key, eventId);
    }
    for (const [key, eventId] of changes) merged.set(key, eventId);
    rows = merged;
  }
  if (rows.size >= size) return fullGroup(group, await whole());
  const rest = chain.slice(index);
  return { group, position, prev: rest[0]!.group, rows, size, chain: [{ group, position }, ...rest] };
}

/** Plans a group that holds its whole state, which is not copied: the first of a room, or one from which keys were removed. */
export function fullGroup(group: number, state: StateMap): GroupPlan {
  return { group, position: 0, prev: undefined, rows: state, size: state.size, chain: [{ group, position: 0 }] };
}
