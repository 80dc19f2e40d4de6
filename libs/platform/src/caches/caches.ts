import { LRUCache } from 'lru-cache';
import type { Config } from '../config/config.js';
import { roughBytes } from './memory.js';

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

/** About how much memory the caches of the server with these settings hold, bytes by name; estimated from some of their entries. */
export function cacheBytes(config: Config): Map<string, number> {
  const byName = new Map<string, number>();
  for (const cache of ofServers.get(config) ?? []) {
    const { name } = cache.report();
    byName.set(name, (byName.get(name) ?? 0) + Math.round(cache.size * cache.bytesPerEntry()));
  }
  return byName;
}

/**
 * Drops what was used longest ago, from every cache alike, until about so many bytes are free.
 * @param idleMs what was used since is kept
 */
export function shedCaches(config: Config, bytes: number, idleMs: number): { entries: number; bytes: number } {
  const caches = (ofServers.get(config) ?? []).map((cache) => ({ cache, perEntry: cache.bytesPerEntry() }));
  const held = caches.reduce((sum, { cache, perEntry }) => sum + cache.size * perEntry, 0);
  const share = held === 0 ? 0 : Math.min(1, bytes / held);
  const shed = { entries: 0, bytes: 0 };
  for (const { cache, perEntry } of caches) {
    const dropped = cache.dropIdle(Math.ceil(cache.size * share), idleMs);
    shed.entries += dropped;
    shed.bytes += Math.round(dropped * perEntry);
  }
  return shed;
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

/** Longer than a server runs. */
const foreverMs = 1_000 * 86_400_000;
/** Entries looked at to estimate the memory of a cache. */
const sampled = 50;
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
  /** How long an entry stays without being used, milliseconds; undefined where nobody notes when it was. */
  readonly #ttl: number | undefined;
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
    const isTuned = config.get('caches.cache_autotuning.max_cache_memory_usage') !== undefined;
    const untilGone = config.get('caches.expire_caches') ? config.get('caches.cache_entry_ttl') : 0;
    // Where memory is watched, it matters when an entry was used.
    const ttl = untilGone > 0 ? untilGone : isTuned ? foreverMs : 0;
    this.#ttl = ttl > 0 ? ttl : undefined;
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

  /** About how much memory an entry holds, bytes: the mean of some of those that were used last. */
  bytesPerEntry(): number {
    let count = 0;
    let bytes = 0;
    for (const [key, value] of this.#entries.entries()) {
      bytes += roughBytes(key) + roughBytes(value);
      if ((count += 1) === sampled) break;
    }
    // What a class hides cannot be seen from here; where entries are measured in bytes, at least that much is there.
    return count === 0 ? 0 : Math.max(bytes / count, this.#entries.calculatedSize / this.#entries.size);
  }

  /** Drops up to `count` of the entries that were used longest ago, and not within `idleMs`. @returns how many */
  dropIdle(count: number, idleMs: number): number {
    const doomed: K[] = [];
    for (const key of this.#entries.rkeys()) {
      if (doomed.length === count) break;
      const age = this.#ttl === undefined ? 0 : this.#ttl - this.#entries.getRemainingTTL(key);
      if (age < idleMs) break;
      doomed.push(key);
    }
    for (const key of doomed) this.#entries.delete(key);
    return doomed.length;
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
