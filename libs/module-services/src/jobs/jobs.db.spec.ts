import { Metrics } from '@rookery/platform';
import { InProcessRpc } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, RecordingLogger, SeededIds, type TestDatabase } from '@rookery/testing';
import type { Database } from '@rookery/database';
import { JobRunner } from './jobs.js';
import { moduleApiMigrations } from '../storage/module-api.migration.js';

eachDatabase('jobs of modules', (open) => {
  let place: TestDatabase;
  let clock: FakeClock;
  let logger: RecordingLogger;
  const runners: JobRunner[] = [];
  let seed = 0;

  beforeEach(async () => {
    clock = new FakeClock();
    logger = new RecordingLogger();
    place = await open(clock);
    await place.migrate(moduleApiMigrations);
  });
  afterEach(async () => {
    await stop(...runners.splice(0));
    await place.close();
  });

  const runner = (database: Database = place.database): JobRunner => {
    const ids = new SeededIds(++seed);
    const made = new JobRunner(database, clock, ids, logger, new InProcessRpc(), new Metrics('example.org'));
    runners.push(made);
    return made;
  };
  /** A job that hangs on purpose is not waited for: that wait is two seconds of a clock that only moves here. */
  const stop = async (...stopping: JobRunner[]): Promise<void> => {
    let stopped = false;
    const all = Promise.all(stopping.map((runner) => runner.stop())).finally(() => (stopped = true));
    await eventually(async () => stopped || (await clock.advance(100), false));
    await all;
  };
  const kept = (): Promise<{ due_ms: number; lease: string | null }[]> =>
    place.database.query('SELECT due_ms, lease FROM module_jobs');
  /** Waits until a repeated job has its row. */
  const stored = (): Promise<boolean> => eventually(async () => (await kept()).length > 0);
  /** Lets what is under way in the real database come to its end. */
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  const pass = async (ms: number): Promise<void> => {
    await clock.advance(ms);
    await settle();
  };
  /** Waits in real time for the database, and moves the clock along a little. */
  const until = async (check: () => boolean): Promise<void> => {
    for (let i = 0; !check(); i++) {
      if (i === 3_000) throw new Error('It did not happen');
      await new Promise((resolve) => setTimeout(resolve, 10));
      await clock.advance(10);
    }
    await settle();
  };

  it('repeats a job, the first time after one period, and goes on where a restart interrupted', async () => {
    const one = runner();
    let runs = 0;
    one.every('m', 'tick', 60_000, async () => void runs++);
    await one.start();
    await stored();
    await settle();
    await pass(59_000);
    expect(runs).toBe(0);
    await clock.advance(1_000);
    await until(() => runs === 1);
    await clock.advance(60_000);
    await until(() => runs === 2);
    await one.stop();
    await pass(40_000);
    const two = runner();
    let again = 0;
    two.every('m', 'tick', 60_000, async () => void again++);
    await two.start();
    await settle();
    expect(again).toBe(0);
    await clock.advance(20_000);
    await until(() => again === 1);
    // Missed while nobody was there: once, not many times.
    await two.stop();
    await pass(600_000);
    const three = runner();
    let late = 0;
    three.every('m', 'tick', 60_000, async () => void late++);
    await three.start();
    await until(() => late === 1);
    await clock.advance(60_000);
    await until(() => late === 2);
  });

  it('a job never overlaps itself, neither here nor in another process', async () => {
    const other = await place.reopen(clock);
    let running = 0;
    let most = 0;
    let release = (): void => {};
    const job = async (): Promise<void> => {
      running++;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => (release = resolve));
      running--;
    };
    for (const each of [runner(), runner(other)]) {
      each.every('m', 'slow', 10_000, job);
      await each.start();
    }
    await stored();
    await settle();
    await clock.advance(10_000);
    await until(() => running === 1);
    // Long beyond its period and its first lease.
    for (let i = 0; i < 10; i++) {
      await clock.advance(20_000);
      // The lease is renewed in the real database, while the clock stands still.
      await eventually(async () => (await kept())[0]!.due_ms > clock.nowMs() + 40_000);
      await settle();
    }
    expect(most).toBe(1);
    release();
    await until(() => running === 0);
    await clock.advance(40_000);
    await until(() => running === 1);
    expect(most).toBe(1);
    release();
    await settle();
  });

  it('a stored call runs in one process only', async () => {
    const other = await place.reopen(clock);
    const calls: string[] = [];
    const both = [runner(), runner(other)];
    for (const each of both) {
      each.handle('m', 'note', async (payload) => void calls.push(payload));
      await each.start();
    }
    await settle();
    for (let i = 0; i < 30; i++) await both[0]!.runAt('m', 'note', clock.nowMs() + 1_000, String(i), undefined);
    await settle();
    await clock.advance(31_000);
    await until(() => calls.length >= 30);
    await pass(61_000);
    expect(calls.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 30 }, (_, i) => i));
  });

  it('a process that died has its job taken over when the lease ends', async () => {
    const dead = runner();
    let taken = false;
    dead.handle('m', 'note', () => ((taken = true), new Promise<void>(() => {})));
    await dead.start();
    await dead.runAt('m', 'note', clock.nowMs(), '1', undefined);
    const takenMs = clock.nowMs();
    await eventually(() => taken);
    // It renews no more.
    await stop(dead);
    const calls: string[] = [];
    const heir = runner();
    heir.handle('m', 'note', async (payload) => void calls.push(payload));
    await heir.start();
    await settle();
    await pass(takenMs + 55_000 - clock.nowMs());
    expect(calls).toEqual([]);
    await clock.advance(31_000);
    await until(() => calls.length > 0);
    expect(calls).toEqual(['1']);
  });

  it('a call that fails is tried again, ever later, up to ten times', async () => {
    const one = runner();
    const atMs: number[] = [];
    one.handle('m', 'note', async () => {
      atMs.push(clock.nowMs());
      throw new Error('not today');
    });
    await one.start();
    await one.runAt('m', 'note', clock.nowMs(), 'null', undefined);
    await settle();
    for (let i = 1; i < 10; i++) {
      await until(() => atMs.length === i);
      await clock.advance(10_000 * 2 ** (i - 1));
    }
    await until(() => atMs.length === 10 && logger.messages('error').length > 0);
    const pauses = atMs.slice(1).map((at, i) => at - (atMs[i] ?? 0));
    expect(pauses[0]).toBeGreaterThanOrEqual(10_000);
    for (const [i, pause] of pauses.slice(1).entries()) expect(pause).toBeGreaterThanOrEqual(pauses[i] ?? 0);
    await pass(7_200_000);
    expect(atMs.length).toBe(10);
    expect(logger.messages('error')).toEqual(['A job of a module failed for good']);
    expect(await place.database.query('SELECT job_id FROM module_jobs')).toEqual([]);
  });

  it('a module that hangs does not keep others from working', async () => {
    const one = runner();
    let hanging = 0;
    one.handle('hangs', 'x', () => {
      hanging++;
      return new Promise<void>(() => {});
    });
    const calls: string[] = [];
    one.handle('works', 'x', async (payload) => void calls.push(payload));
    await one.start();
    for (let i = 0; i < 80; i++) await one.runAt('hangs', 'x', clock.nowMs(), String(i), undefined);
    await one.runAt('works', 'x', clock.nowMs(), '"here"', undefined);
    await clock.advance(31_000);
    await until(() => calls.length > 0);
    expect(calls).toEqual(['"here"']);
    expect(hanging).toBe(4);
  });

  it('a later registration takes the place of an earlier one', async () => {
    const one = runner();
    const calls: string[] = [];
    const before = one.handle('m', 'note', async () => void calls.push('before'));
    one.handle('m', 'note', async () => void calls.push('after'));
    before.cancel();
    await one.start();
    await one.runAt('m', 'note', clock.nowMs(), 'null', undefined);
    await until(() => calls.length > 0);
    expect(calls).toEqual(['after']);
  });

  it('a job whose period changes while it runs does not overlap itself, and keeps the new period from its end on', async () => {
    const one = runner();
    let running = 0;
    let most = 0;
    let runs = 0;
    let release = (): void => {};
    const job = async (): Promise<void> => {
      most = Math.max(most, ++running);
      runs++;
      await new Promise<void>((resolve) => (release = resolve));
      running--;
    };
    const before = one.every('m', 'tick', 86_400_000, job);
    await one.start();
    await stored();
    await settle();
    await clock.advance(86_400_000);
    await until(() => runs === 1);
    one.every('m', 'tick', 5_000, job);
    before.cancel();
    const periods = (): Promise<unknown[]> =>
      place.database.query('SELECT period_ms FROM module_jobs WHERE period_ms = 5000');
    await eventually(async () => (await periods()).length === 1);
    await pass(30_000);
    expect([runs, most]).toEqual([1, 1]);
    release();
    await until(() => running === 0);
    await clock.advance(5_000);
    await until(() => runs === 2);
    expect(most).toBe(1);
    release();
    await settle();
  });

  it('what a module that is gone began and never ends does not keep the job from its successor', async () => {
    const one = runner();
    let hanging = 0;
    const before = one.every('m', 'tick', 60_000, () => (hanging++, new Promise<void>(() => {})));
    await one.start();
    await stored();
    await settle();
    await clock.advance(60_000);
    await until(() => hanging === 1);
    let runs = 0;
    one.every('m', 'tick', 60_000, async () => void runs++);
    before.cancel();
    for (let i = 0; i < 10; i++) {
      await clock.advance(20_000);
      await eventually(async () => (await kept())[0]!.due_ms > clock.nowMs() + 40_000);
      await settle();
    }
    expect(runs).toBe(0);
    for (let i = 0; i < 30; i++) await pass(20_000);
    await until(() => runs > 0);
    expect(hanging).toBe(1);
  });

  it('a call that is stored anew while it runs runs again with what is new', async () => {
    const one = runner();
    const calls: string[] = [];
    one.handle('m', 'note', async (payload) => {
      calls.push(payload);
      if (payload === '1') await one.runAt('m', 'note', clock.nowMs() + 5_000, '2', 'key');
    });
    await one.start();
    await one.runAt('m', 'note', clock.nowMs(), '1', 'key');
    await until(() => calls.length === 1);
    await clock.advance(5_000);
    await until(() => calls.length === 2);
    expect(calls).toEqual(['1', '2']);
    await eventually(async () => (await kept()).length === 0);
    expect(await one.cancel('m', 'note', 'key')).toBe(false);
  });

  it('nothing runs any more when the stop comes before the start is done', async () => {
    const one = runner();
    const calls: string[] = [];
    one.handle('m', 'note', async () => void calls.push('note'));
    const begun = one.start();
    await one.stop();
    await begun;
    await one.runAt('m', 'note', clock.nowMs(), 'null', undefined);
    await pass(60_000);
    expect(calls).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('what waits for a module that is not there stays, until it is very old', async () => {
    const one = runner();
    await one.start();
    await one.runAt('gone', 'x', clock.nowMs(), 'null', undefined);
    await pass(60_000);
    expect(await place.database.query('SELECT attempts FROM module_jobs')).toEqual([{ attempts: 0 }]);
    await one.stop();
    await pass(91 * 86_400_000);
    await runner().start();
    await settle();
    expect(await place.database.query('SELECT attempts FROM module_jobs')).toEqual([]);
  });

  it('what was to run as soon as possible, or long ago, runs after a restart', async () => {
    const before = runner();
    await before.runAt('m', 'note', 0, '"at once"', undefined);
    await before.runAt('later', 'x', 0, 'null', undefined);
    // As it was stored by who took such a moment as it is, or by a server that was off for long.
    await before.runAt('m', 'note', 0, '"long ago"', 'key');
    await place.database.write((tx) => tx.run("UPDATE module_jobs SET due_ms = 0 WHERE payload LIKE '%ago%'"));
    const one = runner();
    const calls: string[] = [];
    one.handle('m', 'note', async (payload) => void calls.push(payload));
    await one.start();
    await until(() => calls.length === 2);
    expect(calls.sort()).toEqual(['"at once"', '"long ago"']);
    // Its module is not there yet, and may come.
    await eventually(async () => (await kept()).length === 1);
  });

  it('a job that brings the process down each time is given up; a repeated one waits for its next time', async () => {
    const calls: string[] = [];
    const one = runner();
    one.handle('m', 'deadly', async () => void calls.push('deadly'));
    one.every('m', 'tick', 60_000, async () => void calls.push('tick'));
    await one.start();
    await stored();
    await one.runAt('m', 'deadly', clock.nowMs() + 30_000, 'null', undefined);
    await place.database.write((tx) => tx.run('UPDATE module_jobs SET attempts = 10'));
    await clock.advance(30_000);
    await until(() => logger.messages('error').length === 1);
    await clock.advance(30_000);
    await until(() => logger.messages('error').length === 2);
    expect(calls).toEqual([]);
    await clock.advance(60_000);
    await until(() => calls.length === 1);
    expect(calls).toEqual(['tick']);
    expect(await place.database.query('SELECT payload FROM module_jobs')).toHaveLength(1);
  });
});
