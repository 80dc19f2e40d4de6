/**
 * Remembers when each key last changed, so that "anything new for these since then?" is mostly answered without the database.
 * Bounded: it forgets the keys that changed longest ago, and then knows from which position on it can still tell.
 *
 * A {@link Stream} has one for each kind of key, and records changes before anybody can be told of the position.
 */
export class StreamChangeCache {
  readonly #maxKeys: number;
  // In the order of the changes.
  readonly #positions = new Map<string, number>();
  #earliest: number;
  #latest: number;

  /**
   * @param position the stream's position now: of changes before it nothing is known
   * @param maxKeys how many keys are remembered
   */
  constructor(position: number, maxKeys = 100_000) {
    this.#earliest = position;
    this.#latest = position;
    this.#maxKeys = maxKeys;
  }

  /** Begins anew: nothing is known of changes before `position`, and everything after it will be told. */
  startAt(position: number): void {
    this.#positions.clear();
    this.#earliest = position;
    this.#latest = position;
  }

  /** Since this position every change is known. */
  get earliestKnown(): number {
    return this.#earliest;
  }

  get size(): number {
    return this.#positions.size;
  }

  /** Records that a key changed at a position. */
  changed(key: string, position: number): void {
    if (position > this.#latest) this.#latest = position;
    if (position <= (this.#positions.get(key) ?? -Infinity)) return;
    this.#positions.delete(key);
    this.#positions.set(key, position);
    if (this.#positions.size <= this.#maxKeys) return;
    for (const [oldest, oldestPosition] of this.#positions) {
      this.#positions.delete(oldest);
      if (oldestPosition > this.#earliest) this.#earliest = oldestPosition;
      break;
    }
  }

  /** Whether the key may have changed after `since`; false is certain, true may be ignorance. */
  hasChanged(key: string, since: number): boolean {
    if (since < this.#earliest) return true;
    return (this.#positions.get(key) ?? -Infinity) > since;
  }

  /** Whether any key may have changed after `since`. */
  anyChanged(since: number): boolean {
    return since < this.#earliest || this.#latest > since;
  }

  /** Those of `keys` that may have changed after `since`; all of them when that is too long ago to tell. */
  changedSince(keys: ReadonlySet<string> | readonly string[], since: number): string[] {
    if (since < this.#earliest) return [...keys];
    if (this.#latest <= since) return [];
    const count = Array.isArray(keys) ? keys.length : (keys as ReadonlySet<string>).size;
    if (count > this.#positions.size && !Array.isArray(keys)) {
      const wanted = keys as ReadonlySet<string>;
      return [...this.#positions].flatMap(([key, position]) => (position > since && wanted.has(key) ? [key] : []));
    }
    return [...keys].filter((key) => (this.#positions.get(key) ?? -Infinity) > since);
  }

  /** The position of the key's last change, if it is remembered. */
  lastChange(key: string): number | undefined {
    return this.#positions.get(key);
  }

  /** Forgets everything before `position`: after changes that were not recorded one by one. */
  invalidate(position: number): void {
    this.#earliest = Math.max(this.#earliest, position);
    this.#latest = Math.max(this.#latest, position);
    for (const [key, changedAt] of this.#positions) if (changedAt <= position) this.#positions.delete(key);
  }
}
