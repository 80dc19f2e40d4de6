import {
  batchesBySize,
  eachLimit,
  KeyedCounter,
  KeyedSemaphore,
  QueueFullError,
  Semaphore,
  SingleFlight,
} from '../index.js';

const gate = (): { readonly open: () => void; readonly passed: Promise<void> } => {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { open: resolve, passed: promise };
};

const turns = async (): Promise<void> => {
  for (let i = 0; i < 10; i++) await Promise.resolve();
};

describe('Semaphore', () => {
  it('gives its permits in order and takes them back once', async () => {
    const semaphore = new Semaphore(2);
    const order: number[] = [];
    const releases = new Map<number, () => void>();
    for (const n of [1, 2, 3, 4]) {
      void semaphore.acquire().then((release) => {
        order.push(n);
        releases.set(n, release);
      });
    }
    await turns();
    expect([order, semaphore.waiting, semaphore.load]).toEqual([[1, 2], 2, 4]);
    releases.get(2)!();
    releases.get(2)!();
    await turns();
    expect([order, semaphore.waiting, semaphore.load]).toEqual([[1, 2, 3], 1, 3]);
    for (const n of [1, 3]) releases.get(n)!();
    await turns();
    releases.get(4)!();
    expect([order, semaphore.load]).toEqual([[1, 2, 3, 4], 0]);
  });

  it('refuses those who would wait too long, and gives the permit back after a failure', async () => {
    const semaphore = new Semaphore(1, { maxWaiting: 1 });
    const { open, passed } = gate();
    const first = semaphore.run(() => passed);
    const second = semaphore.run(() => Promise.reject(new Error('no')));
    await expect(semaphore.run(async () => 3)).rejects.toThrow(QueueFullError);
    open();
    await first;
    await expect(second).rejects.toThrow('no');
    expect(await semaphore.run(async () => 4)).toBe(4);
    await expect(new Semaphore(0, { maxWaiting: 0, refuse: () => new RangeError('full') }).acquire()).rejects.toThrow(
      RangeError,
    );
  });

  it('lets nobody hold or wait for more than a share', async () => {
    const semaphore = new Semaphore(1, { maxPerHolder: 2 });
    const { open, passed } = gate();
    const running = semaphore.run(() => passed, { holder: 'a' });
    const waiting = semaphore.run(async () => 'a2', { holder: 'a' });
    await expect(semaphore.run(async () => 'a3', { holder: 'a' })).rejects.toThrow(QueueFullError);
    const other = semaphore.run(async () => 'b', { holder: 'b' });
    open();
    await running;
    expect(await Promise.all([waiting, other])).toEqual(['a2', 'b']);
    expect(await semaphore.run(async () => 'a4', { holder: 'a' })).toBe('a4');
  });

  it('gives at once what is free, and nothing where somebody would have to wait', async () => {
    const semaphore = new Semaphore(2, { maxPerHolder: 1 });
    const first = semaphore.tryAcquire('a');
    expect(first).toBeDefined();
    expect([semaphore.tryAcquire('a'), semaphore.load]).toEqual([undefined, 1]);
    const second = semaphore.tryAcquire();
    expect([semaphore.tryAcquire('b'), semaphore.load]).toEqual([undefined, 2]);
    const waiting = semaphore.acquire({ holder: 'b' });
    second?.();
    second?.();
    (await waiting)();
    first?.();
    expect(semaphore.load).toBe(0);
  });

  it('lets somebody give up the wait', async () => {
    const semaphore = new Semaphore(1);
    const release = await semaphore.acquire();
    const given = new AbortController();
    const waiting = semaphore.acquire({ signal: given.signal });
    given.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await expect(semaphore.acquire({ signal: given.signal })).rejects.toThrow('enough');
    expect(semaphore.load).toBe(1);
    release();
    // A signal that aborts later takes nothing away.
    expect(await semaphore.run(async () => 5, { signal: new AbortController().signal })).toBe(5);
  });
});

describe('KeyedSemaphore', () => {
  it('counts each key by itself and forgets keys without work', async () => {
    const semaphore = new KeyedSemaphore(1, { maxWaiting: 1 });
    const { open, passed } = gate();
    const held = semaphore.run('a', () => passed);
    const waiting = semaphore.run('a', async () => 'second');
    await expect(semaphore.acquire('a')).rejects.toThrow(QueueFullError);
    expect(await semaphore.run('b', async () => 'other')).toBe('other');
    expect([semaphore.load('a'), semaphore.load('b')]).toEqual([2, 0]);
    open();
    await held;
    expect(await waiting).toBe('second');
    expect(semaphore.load('a')).toBe(0);
  });
});

describe('eachLimit', () => {
  it('works on everything, a few at a time', async () => {
    let running = 0;
    let most = 0;
    const items = Array.from({ length: 20 }, (_, i) => i);
    const done: number[] = [];
    await eachLimit(items, 3, async (n) => {
      most = Math.max(most, ++running);
      for (let i = 0; i < n % 4; i++) await Promise.resolve();
      running--;
      done.push(n);
    });
    expect(done.toSorted((a, b) => a - b)).toEqual(items);
    expect(most).toBe(3);
    await eachLimit([], 3, () => Promise.reject(new Error('never')));
  });

  it('begins nothing more after a failure, or when told to stop', async () => {
    const begun: number[] = [];
    const failing = eachLimit([1, 2, 3, 4, 5], 2, async (n) => {
      begun.push(n);
      await turns();
      if (n === 1) throw new Error('one');
      await turns();
    });
    await expect(failing).rejects.toThrow('one');
    await turns();
    expect(begun).toEqual([1, 2]);

    const done: number[] = [];
    await eachLimit([1, 2, 3, 4], 1, async (n) => void done.push(n), { while: () => done.length < 2 });
    expect(done).toEqual([1, 2]);
  });
});

describe('SingleFlight', () => {
  it('shares what is under way, and begins anew afterwards', async () => {
    const flights = new SingleFlight<number>();
    let begun = 0;
    const { open, passed } = gate();
    const work = async (): Promise<number> => {
      begun++;
      await passed;
      return begun;
    };
    const both = [flights.run('a', work), flights.run('a', work)];
    expect([begun, flights.size, flights.get('a') === both[0]]).toEqual([1, 1, true]);
    open();
    expect(await Promise.all(both)).toEqual([1, 1]);
    expect(flights.size).toBe(0);
    expect(await flights.run('a', work)).toBe(2);
    await expect(flights.run('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(flights.size).toBe(0);
  });

  it('says when nothing is under way, whatever became of it', async () => {
    const flights = new SingleFlight<void>();
    const { open, passed } = gate();
    let isSettled = false;
    const [ended, failed] = [
      flights.run('a', () => passed),
      flights.run('b', () => passed.then(() => Promise.reject(new Error('no')))),
    ];
    const settled = flights.settled().then(() => (isSettled = true));
    await turns();
    expect(isSettled).toBe(false);
    open();
    await ended;
    await expect(failed).rejects.toThrow('no');
    await settled;
    expect(flights.size).toBe(0);
  });
});

describe('KeyedCounter', () => {
  it('counts up and down', () => {
    const counter = new KeyedCounter();
    counter.add('a');
    counter.add('a');
    counter.remove('a');
    expect([counter.of('a'), counter.of('b')]).toEqual([1, 0]);
    counter.remove('a');
    expect(counter.of('a')).toBe(0);
  });
});

describe('batchesBySize', () => {
  const batches = (sizes: readonly number[], count?: number): (readonly number[])[] =>
    batchesBySize(sizes, (size) => size, 10, count);

  it('keeps the order, and fills each part as far as it goes', () => {
    expect(batches([4, 6, 1, 9, 1])).toEqual([[4, 6], [1, 9], [1]]);
    expect(batches([])).toEqual([]);
  });

  it('gives what is too large a part of its own, and never an empty one', () => {
    expect(batches([11, 3, 25, 0])).toEqual([[11], [3], [25], [0]]);
  });

  it('counts pieces as well', () => {
    expect(batches([0, 0, 0, 10], 2)).toEqual([
      [0, 0],
      [0, 10],
    ]);
  });
});
