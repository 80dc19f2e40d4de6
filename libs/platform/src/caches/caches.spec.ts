import { FakeClock } from '@rookery/testing';
import {
  BackgroundTasks,
  beginCaches,
  Cache,
  cacheBytes,
  cacheReports,
  CacheTuner,
  Config,
  SilentLogger,
} from '../index.js';
import { tickCaches } from './caches.js';

const config = (caches: object): Config => Config.fromObject({ server_name: 'a.test', caches });

describe('Cache', () => {
  const filled = (settings: object, name: string): number => {
    const cache = new Cache<number, string>(config(settings), name, { invalidation: 'never', max: 100 });
    for (let n = 0; n < 1_000; n++) cache.set(n, 'value');
    return cache.size;
  };

  it('is scaled by the factor of all caches, or by its own', () => {
    expect(filled({}, 'events')).toBe(50);
    expect(filled({ global_factor: 2 }, 'events')).toBe(200);
    const own = { global_factor: 2, per_cache_factors: { '*events*': 0.1 } };
    expect(filled(own, 'events')).toBe(10);
    expect(filled(own, 'others')).toBe(200);
  });

  it('is bounded by sizes where they are measured', () => {
    const cache = new Cache<number, string>(config({ global_factor: 1 }), 'texts', {
      invalidation: 'never',
      max: 100,
      sizeOf: (text) => text.length,
    });
    for (let n = 0; n < 50; n++) cache.set(n, 'x'.repeat(30));
    expect(cache.size).toBe(3);
  });

  it('tells what it has done, together with others of its name', () => {
    const settings = config({ global_factor: 1 });
    const [one, other] = [0, 1].map(
      () => new Cache<number, string>(settings, 'events', { invalidation: 'never', max: 2 }),
    );
    for (const n of [1, 2, 3]) one!.set(n, 'value');
    other!.set(1, 'value');
    expect([one!.get(1), one!.get(3), other!.get(1), other!.get(2)]).toEqual([undefined, 'value', 'value', undefined]);
    one!.delete(1);
    one!.delete(3);
    expect(cacheReports(settings)).toEqual([
      {
        ...{ name: 'events', invalidation: 'never', entries: 2, size: 2, maxSize: 4 },
        ...{ lookups: 4, hits: 2, evicted: 1, expired: 0, invalidated: 1 },
      },
    ]);
    other!.clear();
    one!.deleteIf(() => true);
    expect(cacheReports(settings)).toMatchObject([{ entries: 0, evicted: 1, invalidated: 3 }]);
    expect(cacheReports(config({}))).toEqual([]);
  });

  it('keeps something even with a factor of nothing', () => {
    expect(filled({ global_factor: 0 }, 'events')).toBe(1);
  });

  it('grows and shrinks when the settings are read again', () => {
    const settings = config({ global_factor: 1 });
    const cache = new Cache<number, string>(settings, 'events', {
      invalidation: 'never',
      max: () => settings.get('event_cache_size'),
    });
    for (let n = 0; n < 10 * 1024; n++) cache.set(n, 'value');
    expect(cache.size).toBe(10 * 1024);
    settings.reload(config({ global_factor: 0.5 }));
    expect(cache.size).toBe(5 * 1024);
    expect([cache.get(0), cache.get(10 * 1024 - 1)]).toEqual([undefined, 'value']);
    settings.reload(Config.fromObject({ server_name: 'a.test', event_cache_size: 10, caches: { global_factor: 0.5 } }));
    expect(cache.size).toBe(5);
  });

  it('forgets what nobody asks for, unless told otherwise', () => {
    const { now } = performance;
    try {
      let ms = 10_000_000;
      performance.now = () => ms;
      tickCaches();
      const make = (caches: object) =>
        new Cache<string, string>(config(caches), 'events', { invalidation: 'never', max: 100 });
      const forgetful = make({ cache_entry_ttl: 60_000 });
      const keeping = make({ cache_entry_ttl: 60_000, expire_caches: false });
      for (const cache of [forgetful, keeping]) cache.set('a', 'b').set('used', 'b');
      ms += 59_000;
      tickCaches();
      expect([forgetful.size, forgetful.get('used')]).toEqual([2, 'b']);
      ms += 1_000;
      tickCaches();
      expect([forgetful.has('a'), forgetful.get('used')]).toEqual([false, 'b']);
      expect(forgetful.report()).toMatchObject({ evicted: 0, expired: 1, invalidated: 0 });
      expect(keeping.get('a')).toBe('b');
    } finally {
      performance.now = now;
      tickCaches();
    }
  });

  it('keeps nothing beside the process that writes where nobody would tell it of changes', () => {
    const settings = config({});
    const kept = (): boolean[] =>
      (['told', 'checked', 'not kept'] as const).map((elsewhere) => {
        const cache = new Cache<string, string>(settings, elsewhere, { invalidation: 'on write', elsewhere, max: 10 });
        return cache.set('a', 'b').has('a');
      });
    expect(kept()).toEqual([true, true, true]);
    beginCaches(settings, true);
    expect(cacheReports(settings)).toEqual([]);
    expect(kept()).toEqual([true, true, false]);
    expect(cacheReports(settings)).toHaveLength(3);
  });
});

describe('reading through a cache', () => {
  const empty = (): Cache<string, string> =>
    new Cache<string, string>(config({}), 'texts', { invalidation: 'on write', elsewhere: 'told', max: 100 });

  it('reads what is missing once', async () => {
    const cache = empty();
    const asked: string[][] = [];
    const read = (keys: string[]): Promise<Map<string, string>> =>
      cache.fetchMany(keys, (missing) => {
        asked.push(missing);
        return Promise.resolve(new Map(missing.filter((key) => key !== 'none').map((key) => [key, `${key}!`])));
      });
    expect(await read(['a', 'none'])).toEqual(new Map([['a', 'a!']]));
    expect(await read(['b', 'a'])).toEqual(new Map([['a', 'a!']]).set('b', 'b!'));
    await read(['a', 'b']);
    expect(asked).toEqual([['a', 'none'], ['b']]);
    expect(await cache.fetch('a', () => Promise.reject(new Error('asked')))).toBe('a!');
    expect(await cache.fetch('c', () => Promise.resolve(undefined))).toBeUndefined();
    expect(cache.has('c')).toBe(false);
  });

  it('does not keep what changed while it was read', async () => {
    const changes: [string, (cache: Cache<string, string>) => void][] = [
      ['dropped', (cache) => cache.delete('a')],
      ['cleared', (cache) => cache.forgetAll()],
      ['dropped by a test', (cache) => cache.deleteIf(() => false)],
    ];
    for (const [how, change] of changes) {
      const cache = empty();
      const { promise, resolve } = Promise.withResolvers<string>();
      const reading = cache.fetch('a', () => promise);
      change(cache);
      resolve('old');
      expect(await reading).toBe('old');
      expect([how, cache.has('a')]).toEqual([how, false]);
    }
  });

  it('keeps what was set meanwhile, and what others changed', async () => {
    const cache = empty();
    const { promise, resolve } = Promise.withResolvers<Map<string, string>>();
    const reading = cache.fetchMany(['a', 'b'], () => promise);
    cache.set('a', 'new').delete('c');
    resolve(new Map([['a', 'old']]).set('b', 'read'));
    await reading;
    expect([cache.get('a'), cache.get('b')]).toEqual(['new', 'read']);
    expect(await cache.fetch('c', () => Promise.resolve('kept'))).toBe('kept');
    expect(cache.get('c')).toBe('kept');
  });

  it('is no worse when reading fails', async () => {
    const cache = empty();
    await expect(cache.fetch('a', () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    expect(await cache.fetch('a', () => Promise.resolve('b'))).toBe('b');
    expect(cache.get('a')).toBe('b');
  });
});

describe('the memory of caches', () => {
  const tuned = { max_cache_memory_usage: 1_000_000, target_cache_memory_usage: 900_000, min_cache_ttl: '1m' };

  it('is told about, by what an entry is made of', () => {
    const settings = config({ global_factor: 1 });
    const texts = new Cache<number, string>(settings, 'texts', { invalidation: 'never', max: 100 });
    for (let n = 0; n < 10; n++) texts.set(n, 'x'.repeat(10_000));
    const buffers = new Cache<number, object>(settings, 'objects', { invalidation: 'never', max: 100 });
    for (let n = 0; n < 10; n++) buffers.set(n, { list: [new Uint8Array(5_000), new Map([['a', 'b'.repeat(5_000)]])] });
    const bytes = cacheBytes(settings);
    for (const name of ['texts', 'objects']) {
      expect(bytes.get(name)).toBeGreaterThan(100_000);
      expect(bytes.get(name)).toBeLessThan(110_000);
    }
  });

  it('goes down when there is too much, by what nobody has used for long', async () => {
    const { now } = performance;
    let ms = 10_000_000;
    performance.now = () => ms;
    tickCaches();
    const clock = new FakeClock();
    const settings = config({ global_factor: 1, expire_caches: false, cache_autotuning: tuned });
    const cache = new Cache<number, string>(settings, 'texts', { invalidation: 'never', max: 1_000 });
    for (let n = 0; n < 20; n++) cache.set(n, 'x'.repeat(10_000));
    ms += 120_000;
    tickCaches();
    for (let n = 0; n < 5; n++) cache.get(n);
    let live: number | undefined = 990_000;
    const measure = () => ({ take: () => live, stop: () => {} });
    const tuner = new CacheTuner(settings, new BackgroundTasks(clock), new SilentLogger(), measure);
    tuner.start();
    await clock.advance(15_000);
    expect(cache.size).toBe(20);
    // Half of what the caches hold.
    live = 1_000_001;
    await clock.advance(15_000);
    expect(cache.size).toBe(10);
    live = 50_000_000;
    await clock.advance(15_000);
    // What was used a moment ago stays.
    expect([...Array(20).keys()].filter((n) => cache.peek(n) !== undefined)).toEqual([0, 1, 2, 3, 4]);
    live = undefined;
    await clock.advance(15_000);
    await tuner.stop();
    expect(clock.pendingTimers).toBe(0);
    performance.now = now;
    tickCaches();
  });
});
