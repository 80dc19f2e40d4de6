import { setTimeout as pause } from 'node:timers/promises';
import { FakeClock } from '@rookery/testing';
import { Cache, cacheBytes, cacheReports, CacheTuner, Config, SilentLogger } from '../index.js';

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
    expect(cacheReports(settings)).toEqual([
      { name: 'events', invalidation: 'never', size: 3, maxSize: 4, lookups: 4, hits: 2, evicted: 1 },
    ]);
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

  it('forgets what nobody asks for, unless told otherwise', async () => {
    const forgetful = new Cache<string, string>(config({ cache_entry_ttl: 20 }), 'events', {
      invalidation: 'never',
      max: 100,
    });
    const keeping = new Cache<string, string>(config({ cache_entry_ttl: 20, expire_caches: false }), 'events', {
      invalidation: 'never',
      max: 100,
    });
    forgetful.set('a', 'b');
    keeping.set('a', 'b');
    await pause(1_300);
    expect(forgetful.get('a')).toBeUndefined();
    expect(keeping.get('a')).toBe('b');
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
    performance.now = () => (ms += 0.001);
    const clock = new FakeClock();
    const settings = config({ global_factor: 1, expire_caches: false, cache_autotuning: tuned });
    const cache = new Cache<number, string>(settings, 'texts', { invalidation: 'never', max: 1_000 });
    for (let n = 0; n < 20; n++) cache.set(n, 'x'.repeat(10_000));
    ms += 120_000;
    for (let n = 0; n < 5; n++) cache.get(n);
    let live: number | undefined = 990_000;
    const measure = () => ({ take: () => live, stop: () => {} });
    const tuner = new CacheTuner(settings, clock, new SilentLogger(), measure);
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
    tuner.stop();
    expect(clock.pendingTimers).toBe(0);
    performance.now = now;
  });
});
