import { MatrixError } from '@rookery/matrix-types';
import type { Clock } from '@rookery/platform';

interface Entry {
  readonly value: Promise<unknown>;
  readonly expiresAtMs: number;
}

/** Answers that a module wants remembered, least recently used ones forgotten first. */
export class ModuleCaches {
  readonly #caches = new Map<string, Map<string, Entry>>();

  constructor(private readonly clock: Pick<Clock, 'monotonicMs'>) {}

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
    return (key) => {
      const known = entries.get(key);
      entries.delete(key);
      if (known && known.expiresAtMs > this.clock.monotonicMs()) {
        entries.set(key, known);
        return known.value as Promise<T>;
      }
      // A plain JavaScript module may give a value, or throw, at once.
      const value = Promise.resolve(key).then(load);
      const entry = { value, expiresAtMs: this.clock.monotonicMs() + ttlMs };
      entries.set(key, entry);
      value.catch(() => {
        if (entries.get(key) === entry) entries.delete(key);
      });
      if (entries.size > maxEntries) {
        for (const oldest of entries.keys()) {
          entries.delete(oldest);
          break;
        }
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
}
