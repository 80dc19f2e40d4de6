import { LRUCache } from 'lru-cache';
import type { Config } from '../config/config.js';

/**
 * When what an entry says ceases to be true, and what becomes of it then.
 * - `never`: it stays true.
 * - `expires`: it is believed for a time, however often it changes meanwhile.
 * - `on write`: whoever changes it drops it after the commit; other processes have to be told.
 * - `stream NAME`: it changes with that stream alone, whose announcements reach all processes.
 */
export type Invalidation = 'never' | 'expires' | 'on write' | `stream ${string}`;

/** How much a cache may hold, before the operator's factor (0.5 unless set), and how long what it holds is true. */
export interface CacheBounds<K, V> {
  readonly invalidation: Invalidation;
  /** In whatever unit `sizeOf` measures: bytes, or entries where it is absent. A function is asked again after a reload. */
  readonly max: number | (() => number);
  /** Size of an entry; at least 1. One unless told. */
  readonly sizeOf?: (value: V, key: K) => number;
  /** Told of each entry that goes, for whatever reason. */
  readonly onGone?: (value: V, key: K) => void;
}

/** What a cache has done since the start, and how full it is. */
export interface CacheReport {
  readonly name: string;
  readonly invalidation: Invalidation;
  /** In the unit of its bounds. */
  readonly size: number;
  readonly maxSize: number;
  readonly lookups: number;
  readonly hits: number;
  /** Size of what had to go for something else. */
  readonly evicted: number;
}

type Something = NonNullable<unknown>;
type AnyCache = Cache<Something, Something>;

/** As long as the settings of a server, so are its caches. */
const ofServers = new WeakMap<Config, AnyCache[]>();

/** The caches of the server with these settings; those of one name together. */
export function cacheReports(config: Config): CacheReport[] {
  const byName = new Map<string, CacheReport>();
  for (const cache of ofServers.get(config) ?? []) {
    const one = cache.report();
    const known = byName.get(one.name);
    byName.set(one.name, known ? together(known, one) : one);
  }
  return [...byName.values()];
}

const together = (a: CacheReport, b: CacheReport): CacheReport => ({
  name: a.name,
  invalidation: a.invalidation,
  size: a.size + b.size,
  maxSize: a.maxSize + b.maxSize,
  lookups: a.lookups + b.lookups,
  hits: a.hits + b.hits,
  evicted: a.evicted + b.evicted,
});

const sweepMs = 60_000;
const swept = new Set<WeakRef<Cache<Something, Something>>>();
let sweeping: NodeJS.Timeout | undefined;

/**
 * A cache whose size and lifetime the operator sets: `max` times `caches.per_cache_factors[name]`, which is
 * `caches.global_factor` where it is not given; with `caches.expire_caches`, what nobody asked for during
 * `caches.cache_entry_ttl` goes. Memory is taken as the cache fills, not before. What was used longest ago goes first, and
 * any entry may vanish at any time: for what can be read again.
 */
export class Cache<K extends Something, V extends Something> {
  #entries: LRUCache<K, V>;
  readonly #name: string;
  readonly #invalidation: Invalidation;
  #lookups = 0;
  #hits = 0;
  #evicted = 0;

  /** @param name snake_case; the name in the settings */
  constructor(config: Config, name: string, bounds: CacheBounds<K, V>) {
    this.#name = name;
    this.#invalidation = bounds.invalidation;
    const ofServer = ofServers.get(config);
    if (ofServer) ofServer.push(this as unknown as AnyCache);
    else ofServers.set(config, [this as unknown as AnyCache]);
    const ttl = config.get('caches.expire_caches') ? config.get('caches.cache_entry_ttl') : 0;
    const make = (): LRUCache<K, V> => {
      const factor = config.get('caches.per_cache_factors')[name] ?? config.get('caches.global_factor');
      const max = typeof bounds.max === 'number' ? bounds.max : bounds.max();
      return new LRUCache<K, V>({
        // Bounded by size even where all sizes are one: a bound on the number would allocate for all of them at once.
        maxSize: Math.max(1, Math.floor(max * factor)),
        sizeCalculation: bounds.sizeOf ?? (() => 1),
        dispose: (value, key, reason) => {
          if (reason === 'evict') this.#evicted += bounds.sizeOf?.(value, key) ?? 1;
          bounds.onGone?.(value, key);
        },
        ...(ttl > 0 && { ttl, updateAgeOnGet: true, ttlResolution: 1_000 }),
      });
    };
    this.#entries = make();
    config.onReload((changed) => {
      if (![...changed].some((setting) => setting.startsWith('caches.') || setting === 'event_cache_size')) return;
      const before = this.#entries.dump();
      this.#entries = make();
      this.#entries.load(before);
    });
    if (ttl > 0) sweep(this as unknown as Cache<Something, Something>);
  }

  /** How many entries there are. */
  get size(): number {
    return this.#entries.size;
  }

  get(key: K): V | undefined {
    const found = this.#entries.get(key);
    this.#lookups++;
    if (found !== undefined) this.#hits++;
    return found;
  }

  /** {@link get} that does not count as use. */
  peek(key: K): V | undefined {
    return this.#entries.peek(key);
  }

  /** @param size instead of what `sizeOf` says. What is larger than the whole cache is not kept. */
  set(key: K, value: V, size?: number): void {
    this.#entries.set(key, value, size === undefined ? {} : { size });
  }

  delete(key: K): void {
    this.#entries.delete(key);
  }

  /** Drops the entries that a test picks; looks at all of them. */
  deleteIf(isDoomed: (value: V, key: K) => boolean): void {
    for (const [key, value] of [...this.#entries.entries()]) if (isDoomed(value, key)) this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
  }

  /** What it has done so far. */
  report(): CacheReport {
    return {
      name: this.#name,
      invalidation: this.#invalidation,
      size: this.#entries.calculatedSize,
      maxSize: this.#entries.maxSize,
      lookups: this.#lookups,
      hits: this.#hits,
      evicted: this.#evicted,
    };
  }

  /** Drops what has expired; done from time to time by itself. */
  sweep(): void {
    this.#entries.purgeStale();
  }
}

/** Expired entries that nobody asks for would stay otherwise. */
function sweep(cache: Cache<Something, Something>): void {
  swept.add(new WeakRef(cache));
  sweeping ??= setInterval(() => {
    for (const reference of swept) {
      const living = reference.deref();
      if (living === undefined) swept.delete(reference);
      else living.sweep();
    }
  }, sweepMs).unref();
}
