/** A place in the chain cover: it reaches everything before it in its chain, and what the links name. */
export interface ChainPosition {
  readonly chain: number;
  readonly sequence: number;
  /** See `AuthLinks` of `state-res`; `undefined` for an event that was placed before they were counted. */
  readonly generation: number | undefined;
}

/** The end of a chain, and how far its links reach into others. */
export interface ChainEnd {
  readonly tip: number;
  /** Per chain that its links name: the greatest sequence number. */
  readonly reach: ReadonlyMap<number, number>;
}

const maxEntries = 200;

/**
 * What the writer of a room remembers of its chain cover, so that the next state event of the room finds its place without
 * asking the database: its auth events are mostly those of the last one. Lives and dies with the room's snapshot.
 */
export class ChainMemory {
  readonly #positions = new Map<string, ChainPosition>();
  readonly #ends = new Map<number, ChainEnd>();

  position(eventId: string): ChainPosition | undefined {
    return this.#positions.get(eventId);
  }

  end(chain: number): ChainEnd | undefined {
    return this.#ends.get(chain);
  }

  /** Takes in what is durable. */
  learn(positions: Iterable<readonly [string, ChainPosition]>, ends: Iterable<readonly [number, ChainEnd]>): void {
    keep(this.#positions, positions);
    keep(this.#ends, ends);
  }
}

/** Puts entries at the end and drops the oldest. */
function keep<K, V>(map: Map<K, V>, entries: Iterable<readonly [K, V]>): void {
  for (const [key, value] of entries) {
    map.delete(key);
    map.set(key, value);
  }
  for (const key of map.keys()) {
    if (map.size <= maxEntries) break;
    map.delete(key);
  }
}
