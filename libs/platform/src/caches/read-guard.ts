/** So many changes by key are noted while something is being read; with more, whatever is being read counts as old. */
const maxNoted = 10_000;

/** Something that is being read and may be kept afterwards. */
export interface Reading<K> {
  /** Whether what was read of a key is still what there is: nobody changed it since the reading began. */
  isCurrent(key: K): boolean;
  /** Has to be called, whatever became of it. */
  end(): void;
}

/**
 * Says whether what was read may be kept: who reads from the database while somebody else writes may get what was there before,
 * or half of what is there afterwards. Costs nothing while nobody reads.
 */
export class ReadGuard<K> {
  readonly #changedAt = new Map<K, number>();
  readonly #writing = new Map<K, number>();
  #readings = 0;
  #changes = 0;
  #allChangedAt = 0;

  /** Begin before the first query. */
  begin(): Reading<K> {
    const since = this.#changes;
    let isOver = false;
    this.#readings++;
    return {
      isCurrent: (key) =>
        since >= this.#allChangedAt && since >= (this.#changedAt.get(key) ?? 0) && !this.#writing.has(key),
      end: () => {
        if (isOver) return;
        isOver = true;
        if (--this.#readings === 0) this.#changedAt.clear();
      },
    };
  }

  /** What a key stands for has changed. Call it once the change is durable. */
  changed(key: K): void {
    if (this.#readings === 0) return;
    if (this.#changedAt.size >= maxNoted) return this.changedAll();
    this.#changedAt.set(key, ++this.#changes);
  }

  /** Anything may have changed. */
  changedAll(): void {
    this.#allChangedAt = ++this.#changes;
    this.#changedAt.clear();
  }

  /**
   * What a key stands for is being changed: what is read of it until then is not to be kept, since nobody can tell whether it
   * holds the change. For what is brought up to date rather than dropped.
   * @returns call it when the change is durable, or will not be
   */
  changing(key: K): () => void {
    this.#writing.set(key, (this.#writing.get(key) ?? 0) + 1);
    this.changed(key);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      const left = (this.#writing.get(key) ?? 1) - 1;
      if (left > 0) this.#writing.set(key, left);
      else this.#writing.delete(key);
      this.changed(key);
    };
  }
}
