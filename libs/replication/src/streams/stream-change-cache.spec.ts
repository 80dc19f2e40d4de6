import { cacheReports, Config } from '@rookery/platform';
import { StreamChangeCache } from './stream-change-cache.js';

/** One that remembers so many keys with the usual factor. */
const cacheAt = (position: number, keys = 100): StreamChangeCache =>
  new StreamChangeCache(position, { name: 'things_user_changes', stream: 'things', maxKeys: 2 * keys });

describe('StreamChangeCache', () => {
  it('knows what changed since it began, and admits what it does not know', () => {
    const cache = cacheAt(10);
    expect(cache.hasChanged('a', 10)).toBe(false);
    expect(cache.hasChanged('a', 9)).toBe(true);
    expect(cache.anyChanged(10)).toBe(false);
    expect(cache.anyChanged(9)).toBe(true);
    cache.changed('a', 12);
    expect(cache.hasChanged('a', 11)).toBe(true);
    expect(cache.hasChanged('a', 12)).toBe(false);
    expect(cache.hasChanged('b', 10)).toBe(false);
    expect(cache.anyChanged(11)).toBe(true);
    expect(cache.lastChange('a')).toBe(12);
  });

  it('ignores an older change of the same key', () => {
    const cache = cacheAt(0);
    cache.changed('a', 5);
    cache.changed('a', 3);
    expect(cache.hasChanged('a', 4)).toBe(true);
    expect(cache.hasChanged('a', 5)).toBe(false);
  });

  it.each([false, true])('selects the changed ones of many keys (as a set: %s)', (asSet) => {
    const cache = cacheAt(0);
    cache.changed('a', 1);
    cache.changed('b', 2);
    cache.changed('c', 3);
    const all = ['a', 'b', 'c', 'd', 'e'];
    const keys = asSet ? new Set(all) : all;
    expect(cache.changedSince(keys, 1).toSorted()).toEqual(['b', 'c']);
    expect(cache.changedSince(keys, 3)).toEqual([]);
    expect(cache.changedSince(keys, -1).toSorted()).toEqual(all);
  });

  it('leaves a change behind where a reader goes to the next one', () => {
    const cache = cacheAt(0);
    cache.changed('a', 5);
    cache.changed('a', 8);
    cache.changed('b', 6);
    const news = (key: string, since: number, upTo: number): boolean => cache.hasChanged(key, since, upTo);
    expect([news('a', 4, 7), news('a', 4, 8), news('a', 7, 8)]).toEqual([false, true, true]);
    expect([news('b', 4, 7), news('c', 4, 7)]).toEqual([true, false]);
    for (const keys of [['a', 'b', 'c'], new Set(['a', 'b', 'c'])]) {
      expect(cache.changedSince(keys, 4, 7)).toEqual(['b']);
      expect(cache.changedSince(keys, 4, 8).toSorted()).toEqual(['a', 'b']);
      // Of what lies before it knows nothing: but of what has changed since.
      expect(cache.changedSince(keys, -1, 7).toSorted()).toEqual(['b', 'c']);
    }
    expect([news('a', -1, 7), news('b', -1, 7), news('c', -1, 7)]).toEqual([false, true, true]);
  });

  it('forgets the oldest changes and never claims that nothing changed where it forgot', () => {
    const cache = cacheAt(0, 3);
    for (let i = 1; i <= 5; i++) cache.changed(`k${i}`, i);
    expect(cache.size).toBe(3);
    expect(cache.earliestKnown).toBe(2);
    expect(cache.hasChanged('k1', 0)).toBe(true);
    expect(cache.hasChanged('k1', 1)).toBe(true);
    expect(cache.hasChanged('k1', 2)).toBe(false);
    // Out of order: what is evicted decides.
    const late = cacheAt(0, 2);
    late.changed('a', 9);
    late.changed('b', 4);
    late.changed('c', 10);
    expect(late.earliestKnown).toBe(9);
    expect(late.hasChanged('a', 8)).toBe(true);
  });

  it('can be told that everything may have changed', () => {
    const cache = cacheAt(0);
    cache.changed('a', 5);
    cache.changed('b', 9);
    cache.invalidate(7);
    expect(cache.hasChanged('x', 6)).toBe(true);
    expect(cache.hasChanged('a', 7)).toBe(false);
    expect(cache.hasChanged('b', 7)).toBe(true);
  });

  it('never denies a change, whatever the order and the size', () => {
    let state = 1;
    const random = (below: number): number => (state = (state * 48_271) % 2_147_483_647) % below;
    for (let round = 0; round < 50; round++) {
      const cache = cacheAt(0, 1 + random(8));
      const truth = new Map<string, number>();
      for (let i = 1; i <= 60; i++) {
        const key = `k${random(12)}`;
        const position = Math.max(1, i - random(4));
        cache.changed(key, position);
        truth.set(key, Math.max(truth.get(key) ?? 0, position));
        const since = random(60);
        for (const [name, last] of truth) if (last > since) expect(cache.hasChanged(name, since)).toBe(true);
      }
    }
  });

  it('is as large as the settings say, and told of with the other caches', () => {
    const settings = (factor: number): Config =>
      Config.fromObject({
        server_name: 'example.org',
        caches: { per_cache_factors: { things_user_changes: factor } },
      });
    const config = settings(0.2);
    const cache = new StreamChangeCache(0, { name: 'things_user_changes', stream: 'things', maxKeys: 10, config });
    for (let i = 1; i <= 5; i++) cache.changed(`k${i}`, i);
    expect([cache.size, cache.earliestKnown]).toEqual([2, 3]);
    expect([cache.hasChanged('k5', 4), cache.hasChanged('k1', 0)]).toEqual([true, true]);
    expect(cacheReports(config)).toEqual([
      {
        ...{ name: 'things_user_changes', invalidation: 'stream things', entries: 2, size: 2, maxSize: 2 },
        ...{ lookups: 2, hits: 1, evicted: 3 },
      },
    ]);
  });
});
