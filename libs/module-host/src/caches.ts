import { MatrixError } from '@rookery/matrix-types';
import { cacheBound, type Clock, type Config, countCache } from '@rookery/platform';

/** Guess of what an entry takes: what a module remembers is not looked into. */
const bytesOfEntry = 1_000;

interface Entry {
  readonly value: Promise<unknown>;
  readonly expiresAtMs: number;
}

/** Whose caches they are, and the settings that size them. */
export interface ModuleCachesOptions {
  readonly config: Config;
  /** Name of the module. */
  readonly module: string;
}

/** Answers that a module wants remembered, least recently used ones forgotten first. */
export class ModuleCaches {
  readonly #caches = new Map<string, Map<string, Entry>>();

  readonly #endings: (() => void)[] = [];

  /** @param options none in the thread of a module, whose caches are its own: their sizes are what the module says */
  constructor(
    private readonly clock: Pick<Clock, 'monotonicMs'>,
    private readonly options?: ModuleCachesOptions,
  ) {}

  /** A function that asks `load` once per key. Failures are not remembered. @throws RangeError when the name is taken */
  register<T>(
    name: string,
    load: (key: string) => Promise<T>,
    { maxEntries = 1000, ttlMs = Infinity }: { readonly maxEntries?: number; readonly ttlMs?: number } = {},
  ): (key: string) => Promise<T> {
    if (this.#caches.has(name)) throw new RangeError(`There is a cache called ${name} already`);
    if (!Number.isInteger(maxEntries) || maxEntries < 1 || maxEntries > 100_000) {
      throw new RangeError('A cache has 1 to 100,000 entries');
    }
    const entries = new Map<string, Entry>();
    this.#caches.set(name, entries);
    const counts = { lookups: 0, hits: 0, evicted: 0 };
    const bound = this.#count(name, entries, maxEntries, counts);
    return (key) => {
      const known = entries.get(key);
      entries.delete(key);
      counts.lookups++;
      if (known && known.expiresAtMs > this.clock.monotonicMs()) {
        entries.set(key, known);
        counts.hits++;
        return known.value as Promise<T>;
      }
      // A plain JavaScript module may give a value, or throw, at once.
      const value = Promise.resolve(key).then(load);
      const entry = { value, expiresAtMs: this.clock.monotonicMs() + ttlMs };
      entries.set(key, entry);
      value.catch(() => {
        if (entries.get(key) === entry) entries.delete(key);
      });
      for (const oldest of entries.keys()) {
        if (entries.size <= bound()) break;
        entries.delete(oldest);
        counts.evicted++;
      }
      return value;
    };
  }

  forget(name: string, key: string): void {
    this.#caches.get(name)?.delete(key);
  }

  /** The answer to a copy of the module in another process that has forgotten something; to nobody else. */
  forgetFor(module: string): (payload: unknown, from: string) => void {
    return (payload, from) => {
      if (from !== module) throw MatrixError.forbidden('Caches of a module are its own');
      const { cache, key } = payload as { readonly cache: string; readonly key: string };
      this.forget(cache, key);
    };
  }

  /** The module has ended: nobody asks any more. */
  end(): void {
    for (const end of this.#endings.splice(0)) end();
  }

  /** Tells of a cache with the server's own. @returns how many entries it may have now */
  #count(
    cache: string,
    entries: Map<string, Entry>,
    maxEntries: number,
    counts: { readonly lookups: number; readonly hits: number; readonly evicted: number },
  ): () => number {
    if (this.options === undefined) return () => maxEntries;
    const { config, module } = this.options;
    const name = `module_${module}_${cache}`.toLowerCase().replace(/[^a-z0-9]+/g, '_');
    // The usual factor is a half: with it, there are as many as the module says.
    const bound = (): number => cacheBound(config, name, 2 * maxEntries);
    this.#endings.push(
      countCache(config, {
        get size() {
          return entries.size;
        },
        bytesPerEntry: () => bytesOfEntry,
        // In the order of their use, but nobody knows when that was.
        dropIdle: () => 0,
        report: () => ({
          ...{ name, invalidation: 'expires', entries: entries.size, size: entries.size, maxSize: bound() },
          ...counts,
        }),
      }),
    );
    return bound;
  }
}
