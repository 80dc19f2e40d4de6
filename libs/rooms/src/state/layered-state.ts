import type { StateMap, StateView } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** A whole state that others are laid over. */
export interface StateBase {
  /** Number of its group: the same number, the same entries. */
  readonly group: number;
  readonly state: StateMap;
}

/** Entries that are looked at before others get a turn. */
const entriesPerTurn = 5_000;

/**
 * A state that is made of a whole one and of what lies above that. It is put together for whoever wants all of it, and for nobody else: that
 * costs as much as the room is large, where what lies above is as large as what has happened since.
 */
export class LayeredState implements StateView {
  #size: number | undefined;
  #whole: Promise<StateMap> | undefined;

  /**
   * @param above the lowest first; may be empty. Nothing in them is ever changed
   * @param size where it is known
   */
  constructor(
    readonly base: StateBase,
    readonly above: readonly StateMap[] = [],
    size?: number,
  ) {
    this.#size = size;
  }

  get(key: string): string | undefined {
    for (let index = this.above.length - 1; index >= 0; index--) {
      const eventId = this.above[index]!.get(key);
      if (eventId !== undefined) return eventId;
    }
    return this.base.state.get(key);
  }

  get size(): number {
    if (this.#size === undefined) {
      const added = new Set<string>();
      for (const layer of this.above) for (const key of layer.keys()) if (!this.base.state.has(key)) added.add(key);
      this.#size = this.base.state.size + added.size;
    }
    return this.#size;
  }

  *entries(): Generator<readonly [key: string, eventId: string], void> {
    const over = merged(this.above);
    for (const entry of this.base.state) if (!over.has(entry[0])) yield entry;
    yield* over;
  }

  /** All of it as one map, which must not be changed. Others get a turn in between. */
  whole(): Promise<StateMap> {
    return (this.#whole ??=
      this.above.length === 0 ? Promise.resolve(this.base.state) : laidOver([this.base.state, ...this.above]));
  }

  with(layer: StateMap): LayeredState {
    return new LayeredState(this.base, [...this.above, layer]);
  }
}

/** Layers put together, the lowest first: as many entries as they have. */
export function merged(layers: readonly StateMap[]): Map<string, string> {
  const all = new Map<string, string>();
  for (const layer of layers) for (const [key, eventId] of layer) all.set(key, eventId);
  return all;
}

/** The same for layers of any size; others get a turn in between. */
export async function laidOver(layers: readonly StateMap[]): Promise<Map<string, string>> {
  const all = new Map<string, string>();
  let count = 0;
  for (const layer of layers) {
    for (const [key, eventId] of layer) {
      if (++count % entriesPerTurn === 0) await nextTurn();
      all.set(key, eventId);
    }
  }
  return all;
}

/** The keys at which two states differ. Others get a turn in between. */
export async function keysApart(one: StateMap, other: StateMap): Promise<Set<string>> {
  const apart = new Set<string>();
  let count = 0;
  for (const [key, eventId] of one) {
    if (++count % entriesPerTurn === 0) await nextTurn();
    if (other.get(key) !== eventId) apart.add(key);
  }
  for (const key of other.keys()) {
    if (++count % entriesPerTurn === 0) await nextTurn();
    if (!one.has(key)) apart.add(key);
  }
  return apart;
}
