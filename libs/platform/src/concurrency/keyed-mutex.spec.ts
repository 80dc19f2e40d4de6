import { KeyedMutex, QueueFullError } from '../index.js';

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe('KeyedMutex', () => {
  it('keeps the order within a key and runs keys side by side', async () => {
    const queue = new KeyedMutex();
    const log: string[] = [];
    const task = (key: string, n: number, ms: number): Promise<number> =>
      queue.run(key, async () => {
        log.push(`${key}${n} begins`);
        await pause(ms);
        log.push(`${key}${n} ends`);
        return n;
      });
    expect(await Promise.all([task('a', 1, 30), task('a', 2, 1), task('b', 1, 5), task('a', 3, 1)])).toEqual([
      1, 2, 1, 3,
    ]);
    expect(log.filter((line) => line.startsWith('a'))).toEqual([
      'a1 begins',
      'a1 ends',
      'a2 begins',
      'a2 ends',
      'a3 begins',
      'a3 ends',
    ]);
    expect(log.indexOf('b1 ends')).toBeLessThan(log.indexOf('a1 ends'));
    await pause(1);
    expect(queue.busyKeys).toBe(0);
    const done = queue.run('a', () => pause(1));
    expect([queue.isBusy('a'), queue.isBusy('b')]).toEqual([true, false]);
    await done;
  });

  it('says when nothing is left to do', async () => {
    const queue = new KeyedMutex();
    const done: string[] = [];
    const work = (name: string, key: string): Promise<unknown> =>
      queue.run(key, async () => {
        await pause(1);
        done.push(name);
      });
    const all = [work('first', 'a'), work('second', 'a').then(() => work('third', 'a')), work('other', 'b')];
    await queue.settled();
    await Promise.all(all);
    expect([done.slice().sort(), queue.busyKeys]).toEqual([['first', 'other', 'second', 'third'], 0]);
    await queue.settled();
  });

  it('goes on after failures of either kind', async () => {
    const queue = new KeyedMutex();
    const first = queue.run('a', async () => {
      await pause(5);
      throw new Error('late');
    });
    const second = queue.run('a', (): Promise<void> => {
      throw new Error('at once');
    });
    const third = queue.run('a', async () => 3);
    await expect(first).rejects.toThrow('late');
    await expect(second).rejects.toThrow('at once');
    expect(await third).toBe(3);
    await expect(
      queue.run('b', (): Promise<void> => {
        throw new Error('at once');
      }),
    ).rejects.toThrow('at once');
    await pause(1);
    expect(queue.busyKeys).toBe(0);
  });

  it('refuses what a key can not hold, and takes more later', async () => {
    const queue = new KeyedMutex({ maxWaiting: 2 });
    const running = queue.run('a', () => pause(10));
    const waiting = [queue.run('a', () => pause(0)), queue.run('a', () => pause(0))];
    expect(queue.waiting('a')).toBe(2);
    const refused = await queue.run('a', () => pause(0)).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(QueueFullError);
    await queue.run('other', () => pause(0));
    await Promise.all([running, ...waiting]);
    expect(await queue.run('a', async () => 'again')).toBe('again');
  });

  it('keeps the order when a task arrives in the very moment another ends', async () => {
    const queue = new KeyedMutex();
    const done: number[] = [];
    let running = 0;
    const task = async (n: number): Promise<void> => {
      expect(++running).toBe(1);
      await Promise.resolve();
      done.push(n);
      running--;
    };
    await Promise.all(
      Array.from({ length: 50 }, async (_, n) => {
        for (let i = 0; i < n % 5; i++) await Promise.resolve();
        await queue.run('a', () => task(n));
        await queue.run('a', () => task(n + 100));
      }),
    );
    expect(done).toHaveLength(100);
  });
});
