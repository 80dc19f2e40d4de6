import { LRUCache } from 'lru-cache';
import type { Config } from '../config/config.js';
import { roughBytes } from './memory.js';
import { ReadGuard, type Reading } from './read-guard.js';

/**
 * What becomes of entries that cease to be true.
 * - `never`: they stay true.
 * - `expires`: they are believed for a time, however often it changes meanwhile.
 * - `on write`: whoever changes it drops them after the commit.
 * - `stream NAME`: they change with that stream alone, and are dropped when it moves.
 */
export type Invalidation = 'never' | 'expires' | ChangedBy;
type ChangedBy = 'on write' | `stream ${string}`;

/**
 * What a process beside the one that writes does with a cache whose entries cease to be true.
 * - `told`: it is told, by the name of the cache or with the stream, and drops everything where it may have missed something.
 * - `checked`: whoever uses an entry compares it with what every process knows, and reads anew where it differs.
 * - `not kept`: nobody tells it, so it keeps nothing.
 */
export type Elsewhere = 'told' | 'checked' | 'not kept';

/** How much a cache may hold, before the operator's factor (0.5 unless set). */
interface CacheLimits<K, V> {
  /** In whatever unit `sizeOf` measures: bytes, or entries where it is absent. A function is asked again after a reload. */
  readonly max: number | (() => number);
  /** Size of an entry; at least 1. One unless told. */
  readonly sizeOf?: (value: V, key: K) => number;
  /** Told of each entry that goes, for whatever reason, or is replaced. */
  readonly onGone?: (value: V, key: K) => void;
}

/** How much a cache may hold, and how long what it holds is true, here and in other processes. */
export type CacheBounds<K, V> = CacheLimits<K, V> &
  (
    | { readonly invalidation: 'never' | 'expires'; readonly elsewhere?: undefined }
    | { readonly invalidation: ChangedBy; readonly elsewhere: Elsewhere }
  );

/** What a cache has done since the start, and how full it is. */
export interface CacheReport {
  readonly name: string;
  readonly invalidation: Invalidation;
  /** How many entries there are. */
  readonly entries: number;
  /** In the unit of its bounds. */
  readonly size: number;
  readonly maxSize: number;
  readonly lookups: number;
  readonly hits: number;
  /** Size of what had to go for something else. */
  readonly evicted: number;
  /** Size of what nobody had asked for in a while; absent where nothing goes for that. */
  readonly expired?: number;
  /** Size of what ceased to be true; absent where nobody counts that. */
  readonly invalidated?: number;
}

/** What is told of a cache, whichever way it keeps its entries. */
export interface CountedCache {
  /** How many entries there are. */
  readonly size: number;
  /** What it has done so far. */
  report(): CacheReport;
  /** About how much memory an entry holds, bytes. */
  bytesPerEntry(): number;
  /** Drops up to `count` of the entries that were used longest ago, and not within `idleMs`. @returns how many */
  dropIdle(count: number, idleMs: number): number;
}

type Something = NonNullable<unknown>;
type AnyCache = Cache<Something, Something>;

interface CachesOfServer {
  readonly caches: CountedCache[];
  readonly isBesideWriter: boolean;
}

const ofServers = new WeakMap<Config, CachesOfServer>();

function cachesOf(config: Config): CachesOfServer {
  let known = ofServers.get(config);
  if (known === undefined) ofServers.set(config, (known = { caches: [], isBesideWriter: false }));
  return known;
}

/**
 * A server with these settings begins: caches that are made from now on are its own, those of one that had them before are not.
 * @param isBesideWriter it is a process beside the one that writes
 */
export function beginCaches(config: Config, isBesideWriter: boolean): void {
  ofServers.set(config, { caches: [], isBesideWriter });
}

/**
 * Tells of a cache that cannot be a {@link Cache}, with all others: in the metrics, and to what watches the memory.
 * @returns what ends that; call it once
 */
export function countCache(config: Config, cache: CountedCache): () => void {
  const { caches } = cachesOf(config);
  caches.push(cache);
  return () => void caches.splice(caches.indexOf(cache), 1);
}

/** What the operator's settings make of the bound of a cache: `max` times its factor. Ask again after a reload. */
export function cacheBound(config: Config, name: string, max: number): number {
  const factor = config.get('caches.per_cache_factors')[name] ?? config.get('caches.global_factor');
  return Math.max(1, Math.floor(max * factor));
}

/** The caches of the server with these settings; those of one name together. */
export function cacheReports(config: Config): CacheReport[] {
  const byName = new Map<string, CacheReport>();
  for (const cache of cachesOf(config).caches) {
    const one = cache.report();
    const known = byName.get(one.name);
    byName.set(one.name, known ? together(known, one) : one);
  }
  return [...byName.values()];
}

/** About how much memory the caches of the server with these settings hold, bytes by name; estimated from some of their entries. */
export function cacheBytes(config: Config): Map<string, number> {
  const byName = new Map<string, number>();
  for (const cache of cachesOf(config).caches) {
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
  const caches = cachesOf(config).caches.map((cache) => ({ cache, perEntry: cache.bytesPerEntry() }));
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
  entries: a.entries + b.entries,
  size: a.size + b.size,
  maxSize: a.maxSize + b.maxSize,
  lookups: a.lookups + b.lookups,
  hits: a.hits + b.hits,
  evicted: a.evicted + b.evicted,
  ...(a.expired !== undefined && { expired: a.expired + (b.expired ?? 0) }),
  ...(a.invalidated !== undefined && { invalidated: a.invalidated + (b.invalidated ?? 0) }),
});

/** Entries looked at to estimate the memory of a cache. */
const sampled = 50;
/** So many expired entries of a cache are dropped at a time. */
const maxSweptAtOnce = 5_000;
const tickMs = 1_000;
const swept = new Set<WeakRef<AnyCache>>();
let ticking: NodeJS.Timeout | undefined;

// When an entry was used is known to the second: that costs a look-up nothing.
let nowS = secondsNow();

function secondsNow(): number {
  return Math.floor(performance.now() / 1_000);
}

interface Held<V> {
  readonly value: V;
  usedS: number;
}

/** What is being read and kept where nobody changed it meanwhile. */
export interface CacheReading<K, V> extends Reading<K> {
  /** Keeps what was read, unless the key was dropped or set since the reading began. @param size as for {@link Cache.set} */
  keep(key: K, value: V, size?: number): void;
}

/**
 * A cache whose size and lifetime the operator sets: `max` times `caches.per_cache_factors[name]`, which is
 * `caches.global_factor` where it is not given; with `caches.expire_caches`, what nobody asked for during
 * `caches.cache_entry_ttl` goes. Memory is taken as the cache fills, not before. What was used longest ago goes first, and
 * any entry may vanish at any time: for what can be read again.
 *
 * Who reads what is not there uses {@link fetch} or {@link fetchMany}: what somebody drops while it is being read is not kept.
 */
export class Cache<K extends Something, V extends Something> {
  readonly name: string;
  #entries: LRUCache<K, Held<V>>;
  readonly #guard = new ReadGuard<K>();
  readonly #invalidation: Invalidation;
  /** Nobody would tell this process what ceases to be true. */
  readonly #isKept: boolean;
  /** How long an entry stays without being used, milliseconds. */
  #idleMs = Infinity;
  #misses = 0;
  #hits = 0;
  #evicted = 0;
  #expired = 0;
  #invalidated = 0;

  /** @param name snake_case; the name in the settings */
  constructor(config: Config, name: string, bounds: CacheBounds<K, V>) {
    this.name = name;
    this.#invalidation = bounds.invalidation;
    const ofServer = cachesOf(config);
    ofServer.caches.push(this);
    this.#isKept = bounds.elsewhere !== 'not kept' || !ofServer.isBesideWriter;
    const make = (): LRUCache<K, Held<V>> => {
      this.#idleMs = config.get('caches.expire_caches') ? config.get('caches.cache_entry_ttl') || Infinity : Infinity;
      const max = typeof bounds.max === 'number' ? bounds.max : bounds.max();
      return new LRUCache<K, Held<V>>({
        // Bounded by size even where all sizes are one: a bound on the number would allocate for all of them at once.
        maxSize: cacheBound(config, name, max),
        sizeCalculation: ({ value }, key) => bounds.sizeOf?.(value, key) ?? 1,
        dispose: ({ value }, key, reason) => {
          if (reason === 'evict') this.#evicted += bounds.sizeOf?.(value, key) ?? 1;
          bounds.onGone?.(value, key);
        },
      });
    };
    this.#entries = make();
    config.onReload((changed) => {
      if (![...changed].some((setting) => setting.startsWith('caches.') || setting === 'event_cache_size')) return;
      const before = this.#entries.dump();
      this.#entries = make();
      this.#entries.load(before);
    });
    swept.add(new WeakRef(this as unknown as AnyCache));
    ticking ??= setInterval(tickCaches, tickMs).unref();
  }

  /** How many entries there are. */
  get size(): number {
    return this.#entries.size;
  }

  get(key: K): V | undefined {
    const held = this.#entries.get(key);
    if (held === undefined) {
      this.#misses++;
      return undefined;
    }
    this.#hits++;
    held.usedS = nowS;
    return held.value;
  }

  /** {@link get} that does not count as use. */
  peek(key: K): V | undefined {
    return this.#entries.peek(key)?.value;
  }

  /** Whether there is an entry; does not count as use. */
  has(key: K): boolean {
    return this.#entries.has(key);
  }

  /**
   * Keeps what is known to be so now; what somebody reads of the key meanwhile is older.
   * @param size instead of what `sizeOf` says. What is larger than the whole cache is not kept.
   */
  set(key: K, value: V, size?: number): this {
    this.#guard.changed(key);
    this.#keep(key, value, size);
    return this;
  }

  delete(key: K): void {
    this.#guard.changed(key);
    const before = this.#entries.calculatedSize;
    this.#entries.delete(key);
    this.#invalidated += before - this.#entries.calculatedSize;
  }

  /** {@link delete} for several. */
  forget(keys: Iterable<K>): void {
    for (const key of keys) this.delete(key);
  }

  /** Drops the entries that a test picks; looks at all of them. */
  deleteIf(isDoomed: (value: V, key: K) => boolean): void {
    this.#guard.changedAll();
    const before = this.#entries.calculatedSize;
    for (const [key, { value }] of [...this.#entries.entries()]) if (isDoomed(value, key)) this.#entries.delete(key);
    this.#invalidated += before - this.#entries.calculatedSize;
  }

  clear(): void {
    this.#guard.changedAll();
    this.#invalidated += this.#entries.calculatedSize;
    this.#entries.clear();
  }

  /** {@link clear}, for whoever tells of changes that may have been missed. */
  forgetAll(): void {
    this.clear();
  }

  /** What is kept of a key, else what `load` reads, which is kept unless the key changes meanwhile. @throws what `load` throws */
  async fetch<T extends V | undefined>(key: K, load: () => Promise<T>): Promise<V | T> {
    const known = this.get(key);
    if (known !== undefined) return known;
    const reading = this.begin();
    try {
      const value = await load();
      if (value !== undefined) reading.keep(key, value);
      return value;
    } finally {
      reading.end();
    }
  }

  /**
   * {@link fetch} for many keys: `load` is asked once for all that are not kept, and not at all where there are none. What it
   * does not find is absent.
   */
  async fetchMany(keys: Iterable<K>, load: (missing: K[]) => Promise<ReadonlyMap<K, V>>): Promise<Map<K, V>> {
    const found = new Map<K, V>();
    const missing: K[] = [];
    for (const key of keys) {
      const known = this.get(key);
      if (known === undefined) missing.push(key);
      else found.set(key, known);
    }
    if (missing.length === 0) return found;
    const reading = this.begin();
    try {
      for (const [key, value] of await load(missing)) {
        found.set(key, value);
        reading.keep(key, value);
      }
      return found;
    } finally {
      reading.end();
    }
  }

  /** For who reads in another way than {@link fetch}: begin before the first query. */
  begin(): CacheReading<K, V> {
    const reading = this.#guard.begin();
    return {
      keep: (key, value, size) => {
        if (reading.isCurrent(key)) this.#keep(key, value, size);
      },
      isCurrent: (key) => reading.isCurrent(key),
      end: () => reading.end(),
    };
  }

  /** About how much memory an entry holds, bytes: the mean of some of those that were used last. */
  bytesPerEntry(): number {
    let count = 0;
    let bytes = 0;
    for (const [key, { value }] of this.#entries.entries()) {
      bytes += roughBytes(key) + roughBytes(value);
      if ((count += 1) === sampled) break;
    }
    // What a class hides cannot be seen from here; where entries are measured in bytes, at least that much is there.
    return count === 0 ? 0 : Math.max(bytes / count, this.#entries.calculatedSize / this.#entries.size);
  }

  /** Drops up to `count` of the entries that were used longest ago, and not within `idleMs`. @returns how many */
  dropIdle(count: number, idleMs: number): number {
    const before = this.#entries.calculatedSize;
    const dropped = this.#dropIdle(count, idleMs);
    this.#evicted += before - this.#entries.calculatedSize;
    return dropped;
  }

  #dropIdle(count: number, idleMs: number): number {
    const doomed: K[] = [];
    for (const key of this.#entries.rkeys()) {
      if (doomed.length === count) break;
      const { usedS = nowS } = this.#entries.peek(key) ?? {};
      if ((nowS - usedS) * 1_000 < idleMs) break;
      doomed.push(key);
    }
    for (const key of doomed) this.#entries.delete(key);
    return doomed.length;
  }

  /** What it has done so far. */
  report(): CacheReport {
    return {
      name: this.name,
      invalidation: this.#invalidation,
      entries: this.#entries.size,
      size: this.#entries.calculatedSize,
      maxSize: this.#entries.maxSize,
      lookups: this.#hits + this.#misses,
      hits: this.#hits,
      evicted: this.#evicted,
      expired: this.#expired,
      invalidated: this.#invalidated,
    };
  }

  /** Drops what nobody asked for in a while; done from time to time by itself. */
  sweep(): void {
    if (this.#idleMs === Infinity) return;
    const before = this.#entries.calculatedSize;
    this.#dropIdle(maxSweptAtOnce, this.#idleMs);
    this.#expired += before - this.#entries.calculatedSize;
  }

  #keep(key: K, value: V, size: number | undefined): void {
    if (!this.#isKept) return;
    const held: Held<V> = { value, usedS: nowS };
    if (size === undefined) this.#entries.set(key, held);
    else this.#entries.set(key, held, { size });
  }
}

/** Looks at the time, and drops what has expired: entries that nobody asks for would stay otherwise. */
export function tickCaches(): void {
  nowS = secondsNow();
  for (const reference of swept) {
    const living = reference.deref();
    if (living === undefined) swept.delete(reference);
    else living.sweep();
  }
}
