import { FakeClock } from '@rookery/testing';
import { BackgroundTasks, LogContext, Metrics } from '../index.js';

describe('BackgroundTasks', () => {
  it('runs a task at its interval, never twice at a time, and tells of it', async () => {
    const clock = new FakeClock(1_000);
    const metrics = new Metrics('x');
    const tasks = new BackgroundTasks(clock, undefined, metrics);
    const { promise, resolve } = Promise.withResolvers<void>();
    let begun = 0;
    const task = tasks.add({
      ...{ name: 'tidy_up', role: 'background', everyMs: 100 },
      run: async () => {
        begun++;
        LogContext.cost()!.transactions += 2;
        expect(LogContext.current()?.requestId).toBe('tidy_up-1');
        await promise;
      },
    });
    expect(tasks.list()).toEqual([]);
    task.start();
    task.start();
    expect(tasks.list()).toEqual([
      {
        ...{ name: 'tidy_up', role: 'background', everyMs: 100, isRunning: false, runs: 0, failures: 0 },
        ...{ lastStartedTs: undefined, lastDurationMs: undefined, lastError: undefined },
      },
    ]);
    await clock.advance(350);
    expect(begun).toBe(1);
    expect(tasks.list()).toMatchObject([{ isRunning: true, runs: 1, lastStartedTs: 1_100 }]);
    expect((await metrics.render()).body).toContain(
      'synapse_background_process_in_flight_count{name="tidy_up",server_name="x"} 1',
    );
    const joined = task.run();
    resolve();
    await joined;
    expect(begun).toBe(1);
    expect(tasks.list()).toMatchObject([{ isRunning: false, lastDurationMs: 250, failures: 0 }]);
    const text = (await metrics.render()).body;
    expect(text).toContain('synapse_background_process_start_count_total{name="tidy_up",server_name="x"} 1');
    expect(text).toContain('synapse_background_process_in_flight_count{name="tidy_up",server_name="x"} 0');
    expect(text).toContain('synapse_background_process_db_txn_count_total{name="tidy_up",server_name="x"} 2');
  });

  it('goes on after failures of either kind, and says what the last one was', async () => {
    const clock = new FakeClock();
    const tasks = new BackgroundTasks(clock);
    let fails = true;
    const first = tasks.add({
      ...{ name: 'b', role: 'every_process', everyMs: 10 },
      run: () => {
        if (fails) throw new Error('at once');
      },
    });
    const second = tasks.add({
      ...{ name: 'a', role: 'every_process', everyMs: 10 },
      run: () => (fails ? Promise.reject(new Error('late')) : Promise.resolve()),
    });
    first.start();
    second.start();
    await clock.advance(10);
    expect(tasks.list().map(({ name, failures, lastError }) => [name, failures, lastError])).toEqual([
      ['a', 1, 'Error: late'],
      ['b', 1, 'Error: at once'],
    ]);
    fails = false;
    await clock.advance(10);
    expect(tasks.list()).toMatchObject([
      { runs: 2, failures: 1, lastError: undefined },
      { runs: 2, failures: 1, lastError: undefined },
    ]);
    expect(() => tasks.add({ name: 'a', role: 'every_process', everyMs: 1, run: () => {} })).toThrow(/two/);
  });

  it('stops, telling what is under way, and waits for it', async () => {
    const clock = new FakeClock();
    const tasks = new BackgroundTasks(clock);
    const log: string[] = [];
    const task = tasks.add({
      ...{ name: 'long', role: 'media', everyMs: 10 },
      run: (signal) =>
        new Promise((resolve) => {
          log.push('begins');
          signal.addEventListener('abort', () => {
            log.push('ends');
            resolve();
          });
        }),
    });
    task.start();
    await clock.advance(10);
    await tasks.stop();
    task.start();
    await task.run();
    await clock.advance(100);
    expect(log).toEqual(['begins', 'ends']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('runs where its role is, and has ended where that was', async () => {
    const clock = new FakeClock();
    const tasks = new BackgroundTasks(clock);
    const held = new Set<string>();
    tasks.runOnly((role) => held.has(role));
    const log: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const task = tasks.add({
      ...{ name: 'long', role: 'background', everyMs: 10 },
      run: async (signal) => {
        log.push('begins');
        signal.addEventListener('abort', () => log.push('is to end'));
        await promise;
        log.push('ends');
      },
    });
    const other = tasks.add({ name: 'other', role: 'media', everyMs: 10, run: () => void log.push('of another role') });
    task.start();
    other.start();
    await clock.advance(10);
    expect(log).toEqual([]);
    held.add('background');
    tasks.enter('background');
    await clock.advance(10);
    let isOver = false;
    const leaving = tasks.leave('background').then(() => (isOver = true));
    // It is given up before anybody else can have it.
    await clock.advance(20);
    expect([log, isOver]).toEqual([['begins', 'is to end'], false]);
    resolve();
    await leaving;
    await task.run();
    expect(log).toEqual(['begins', 'is to end', 'ends']);
    tasks.enter('background');
    await clock.advance(10);
    expect(log).toEqual(['begins', 'is to end', 'ends', 'begins', 'ends']);
    await tasks.stop();
  });
});
