import { cacheBound, type CacheReport, type Config, type CountedCache, countCache } from '@rookery/platform';

/** Keys that are remembered before the operator's factor. */
const usualKeys = 200_000;
/** A key, a number, and their place in a map. */
const bytesOfEntry = 120;

/** How large a change cache is, and under which name it is told of. */
export interface ChangeCacheOptions {
  /** In the settings and the metrics: `account_data_user_changes`. */
  readonly name: string;
  readonly stream: string;
  /** How many keys are remembered, before the operator's factor; 200,000 unless told. */
  readonly maxKeys?: number | undefined;
  /** Whose `caches.*` count; without settings the factor is the usual one, a half. */
  readonly config?: Config | undefined;
}

/**
 * Remembers when each key last changed, so that "anything new for these since then?" is mostly answered without the database.
 * Bounded: it forgets the keys that changed longest ago, and then knows from which position on it can still tell.
 *
 * A {@link Stream} has one for each kind of key, and records changes before anybody can be told of the position.
 */
export class StreamChangeCache implements CountedCache {
  readonly #options: ChangeCacheOptions;
  #maxKeys: number;
  // In the order of the changes.
  readonly #positions = new Map<string, number>();
  #earliest: number;
  #latest: number;
  #lookups = 0;
  #hits = 0;
  #evicted = 0;

  /** @param position the stream's position now: of changes before it nothing is known */
  constructor(position: number, options: ChangeCacheOptions) {
    this.#earliest = position;
    this.#latest = position;
    this.#options = options;
    this.#maxKeys = this.#bound();
    const { config } = options;
    if (config === undefined) return;
    countCache(config, this);
    config.onReload((changed) => {
      if (![...changed].some((setting) => setting.startsWith('caches.'))) return;
      this.#maxKeys = this.#bound();
      while (this.#positions.size > this.#maxKeys) this.#forgetOldest();
    });
  }

  #bound(): number {
    const { config, name, maxKeys = usualKeys } = this.#options;
    return config === undefined ? Math.max(1, Math.floor(maxKeys / 2)) : cacheBound(config, name, maxKeys);
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
    if (this.#positions.size > this.#maxKeys) this.#forgetOldest();
  }

  /** What changed longest ago: of changes up to there nothing is known any more. */
  #forgetOldest(): void {
    for (const [oldest, oldestPosition] of this.#positions) {
      this.#positions.delete(oldest);
      this.#evicted++;
      if (oldestPosition > this.#earliest) this.#earliest = oldestPosition;
      break;
    }
  }

  /** Whether it can tell of changes since a position. */
  #knows(since: number): boolean {
    this.#lookups++;
    if (since < this.#earliest) return false;
    this.#hits++;
    return true;
  }

  /**
   * Whether the key may have changed after `since`; false is certain, true may be ignorance. With `upTo` for what is told as it
   * stands, not as it stood at a position: false as well where the key has changed behind it, which is news for who reads up to
   * there, and for nobody twice.
   */
  hasChanged(key: string, since: number, upTo = Infinity): boolean {
    const isKnown = this.#knows(since);
    const last = this.#positions.get(key);
    return last === undefined ? !isKnown : (last > since || !isKnown) && last <= upTo;
  }

  /** Whether any key may have changed after `since`. */
  anyChanged(since: number): boolean {
    return !this.#knows(since) || this.#latest > since;
  }

  /** Those of `keys` that may have changed after `since`, all of them when that is too long ago to tell; `upTo` as there. */
  changedSince(keys: ReadonlySet<string> | readonly string[], since: number, upTo = Infinity): string[] {
    if (!this.#knows(since)) return [...keys].filter((key) => (this.#positions.get(key) ?? -Infinity) <= upTo);
    if (this.#latest <= since) return [];
    const isNews = (position: number): boolean => position > since && position <= upTo;
    const count = Array.isArray(keys) ? keys.length : (keys as ReadonlySet<string>).size;
    if (count > this.#positions.size && !Array.isArray(keys)) {
      const wanted = keys as ReadonlySet<string>;
      return [...this.#positions].flatMap(([key, position]) => (isNews(position) && wanted.has(key) ? [key] : []));
    }
    return [...keys].filter((key) => isNews(this.#positions.get(key) ?? -Infinity));
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

  bytesPerEntry(): number {
    return bytesOfEntry;
  }

  /** Nothing goes for being idle: what is not remembered of one key is not known of any. */
  dropIdle(): number {
    return 0;
  }

  report(): CacheReport {
    return {
      ...{ name: this.#options.name, invalidation: `stream ${this.#options.stream}` },
      ...{ entries: this.#positions.size, size: this.#positions.size, maxSize: this.#maxKeys },
      ...{ lookups: this.#lookups, hits: this.#hits, evicted: this.#evicted },
    };
  }
}
