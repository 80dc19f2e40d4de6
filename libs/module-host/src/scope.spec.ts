import { FakeClock, RecordingLogger } from '@rookery/testing';
import { ModuleCaches } from './caches.js';
import { ModuleScope } from './scope.js';

it('a module whose endings hang does not hold up a reload for each of them', async () => {
  const clock = new FakeClock();
  const logger = new RecordingLogger();
  const scope = new ModuleScope({ name: 'm' }, clock, logger);
  const ended: number[] = [];
  for (let i = 0; i < 20; i++) {
    scope.add(() => {
      ended.push(i);
      return new Promise<void>(() => {});
    });
  }
  let stopped = false;
  const stopping = scope.stop().then(() => (stopped = true));
  await clock.advance(4_999);
  expect([ended, stopped]).toEqual([[19], false]);
  await clock.advance(5_002);
  await stopping;
  expect(ended).toEqual(Array.from({ length: 20 }, (_, i) => 19 - i));
  expect(logger.messages('warn')).toEqual(Array<string>(2).fill('A module takes too long to stop'));
});

it('a cached function may answer, or fail, at once', async () => {
  const caches = new ModuleCaches(new FakeClock());
  let loads = 0;
  const cached = caches.register<number>('lengths', ((key: string) => {
    loads++;
    if (key === 'bad') throw new Error('no');
    return key.length;
  }) as never);
  expect([await cached('abc'), await cached('abc'), loads]).toEqual([3, 3, 1]);
  await expect(cached('bad')).rejects.toThrow('no');
  await expect(cached('bad')).rejects.toThrow('no');
  expect(loads).toBe(3);
});
