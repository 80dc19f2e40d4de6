import { databaseMigrations } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Config, SystemIds } from '@rookery/platform';
import { eachDatabase, eventually, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { roomsMigrations } from '../migrations/index.js';
import { RoomTasks } from './room-tasks.js';

eachDatabase('tasks on rooms', (open) => {
  let test: TestDatabase;
  let clock: FakeClock;
  let tasks: RoomTasks;
  /** What a database says that is away. */
  let away: Error;

  beforeAll(async () => {
    test = await open(new FakeClock());
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
    const other = await test.reopen();
    await other.close();
    away = await other.write(() => Promise.resolve(new Error('open'))).catch((error: unknown) => error as Error);
  });
  beforeEach(() => {
    clock = new FakeClock();
    tasks = new RoomTasks(test.database, clock, new SystemIds(), new RecordingLogger(), Config.fromObject());
  });
  afterEach(() => tasks.stop());

  it('wait for a database that is away, and go on where they were', async () => {
    const seen: unknown[] = [];
    tasks.define('count', async (task, report) => {
      seen.push(task.result);
      await report({ n: seen.length });
      if (seen.length < 4) throw away;
      return { done: seen.length };
    });
    const id = await tasks.schedule('count', '!a:x', {});
    const task = await eventually(async () => {
      await clock.advance(10_000);
      const found = await tasks.find(id);
      return found?.status !== 'active' && found?.status !== 'scheduled' && found;
    });
    expect(task).toMatchObject({ status: 'complete', result: { done: 4 } });
    expect(seen).toEqual([undefined, { n: 1 }, { n: 2 }, { n: 3 }]);
    await expect(tasks.scheduleOnce('count', '!a:x', {})).resolves.toBeDefined();
    await tasks.settled();
  });

  it('are left for the next start by a server that stops while the database is away', async () => {
    tasks.define('away', () => Promise.reject(away));
    const id = await tasks.schedule('away', '!a:x', {});
    await eventually(async () => (await tasks.find(id))?.status === 'active');
    await tasks.stop();
    expect(await tasks.find(id)).toMatchObject({ status: 'active' });
    await test.database.write((tx) => tx.run('DELETE FROM scheduled_tasks'));
  });

  it('do not wait for others where somebody waits for them', async () => {
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => (goOn = resolve));
    const begun: string[] = [];
    tasks.define('long', async ({ roomId }) => {
      begun.push(roomId);
      await held;
      return {};
    });
    tasks.define('awaited', async ({ roomId }) => {
      begun.push(roomId);
      return {};
    });
    for (let n = 0; n < 7; n++) await tasks.schedule('long', `!${n}:x`, {});
    await eventually(() => begun.length === 5);
    const id = await tasks.schedule('awaited', '!now:x', {}, true);
    expect(await tasks.outcome(id)).toMatchObject({ status: 'complete' });
    expect(begun.slice(5)).toEqual(['!now:x']);
    goOn();
    await tasks.settled();
    expect(begun).toHaveLength(8);
  });

  it('go on when the one who waited for them goes away', async () => {
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => (goOn = resolve));
    tasks.define('long', async () => {
      await held;
      return { end: true };
    });
    const id = await tasks.schedule('long', '!a:x', {}, true);
    const client = new AbortController();
    const [patient, impatient] = [tasks.outcome(id), tasks.outcome(id, client.signal)];
    await eventually(async () => (await tasks.find(id))?.status === 'active');
    client.abort();
    expect(await impatient).toMatchObject({ status: 'active' });
    goOn();
    expect(await patient).toMatchObject({ status: 'complete', result: { end: true } });
    expect(await tasks.outcome(id, client.signal)).toMatchObject({ status: 'complete' });
  });

  it('run as many at a time as the settings say', async () => {
    const config = Config.fromObject({ task_scheduler: { max_concurrent_tasks: 2 } });
    await tasks.stop();
    tasks = new RoomTasks(test.database, clock, new SystemIds(), new RecordingLogger(), config);
    let running = 0;
    const most: number[] = [];
    const go = Promise.withResolvers<JsonObject>();
    tasks.define('wait', () => {
      most.push((running += 1));
      return go.promise.finally(() => (running -= 1));
    });
    const ids = await Promise.all(['!a:x', '!b:x', '!c:x'].map((roomId) => tasks.schedule('wait', roomId, {})));
    await eventually(() => most.length === 2);
    go.resolve({});
    await eventually(async () => {
      const found = await Promise.all(ids.map((id) => tasks.find(id)));
      return found.every((task) => task?.status === 'complete');
    });
    expect(Math.max(...most)).toBe(2);
    expect(most).toHaveLength(3);
  });
});
