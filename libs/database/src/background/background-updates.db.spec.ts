import { eventually, eachDatabase, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import {
  type BackgroundUpdate,
  BackgroundUpdates,
  type Database,
  databaseMigrations,
  defineBackgroundUpdate,
  queueBackgroundUpdate,
} from '../index.js';
import { defaultBackgroundUpdateSettings } from './background-updates.js';

const total = 1000;

eachDatabase('Background updates', (open) => {
  let test: TestDatabase;
  let db: Database;
  let clock: FakeClock;
  let logger: RecordingLogger;
  let sizes: number[];

  beforeEach(async () => {
    clock = new FakeClock();
    logger = new RecordingLogger();
    sizes = [];
    test = await open(clock);
    db = test.database;
    await test.migrate(databaseMigrations);
    await db.write((tx) => tx.run('CREATE TABLE moved (id BIGINT PRIMARY KEY, by_update TEXT NOT NULL)'));
  });
  afterEach(() => test.close());

  /** Moves 1,000 rows; each takes `msPerItem`. */
  const mover = (name: string, msPerItem = 1): BackgroundUpdate =>
    defineBackgroundUpdate({
      name,
      async run({ tx, progress, batchSize }) {
        sizes.push(batchSize);
        const from = Number(progress['next'] ?? 0);
        const to = Math.min(from + batchSize, total);
        await tx.insertMany(
          'moved',
          ['id', 'by_update'],
          Array.from({ length: to - from }, (_, i) => [from + i, name]),
        );
        await clock.advance((to - from) * msPerItem);
        await new Promise((resolve) => setTimeout(resolve, 5));
        return { items: to - from, progress: { next: to }, finished: to === total };
      },
    });
  const runner = (updates: BackgroundUpdate[], settings = {}): BackgroundUpdates =>
    new BackgroundUpdates({
      database: db,
      clock,
      logger,
      updates,
      settings: { ...defaultBackgroundUpdateSettings, sleepEnabled: false, ...settings },
    });
  const finished = async (updates: BackgroundUpdates, stepMs = 0): Promise<void> => {
    for (let i = 0; i < 5_000 && (await updates.isQueued()); i++) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      if (stepMs > 0) await clock.advance(stepMs);
    }
    expect(await updates.isQueued()).toBe(false);
  };

  it('says each minute how far a long one has come', async () => {
    const updates = runner([mover('long', 500)], { defaultBatchSize: 10, durationMs: 5_000 });
    await updates.queue('long');
    await finished(updates);
    const lines = logger.lines.filter((line) => line.message === 'Background update goes on');
    // 1,000 rows of half a second each.
    expect(lines.length).toBeGreaterThan(4);
    expect(lines.length).toBeLessThan(9);
    expect(lines[0]?.fields).toEqual({
      update: 'long',
      items: expect.any(Number) as number,
      itemsPerSecond: 2,
      progress: { next: lines[0]?.fields['items'] },
    });
  });

  it('sizes its batches to the time they should take', async () => {
    const updates = runner([mover('move', 2)], { defaultBatchSize: 10, durationMs: 200 });
    // It may be over before it is queued once more.
    updates.setEnabled(false);
    expect(await updates.queue('move')).toBe(true);
    expect(await updates.queue('move')).toBe(false);
    updates.setEnabled(true);
    await finished(updates);
    expect(await db.get('SELECT count(*) AS n FROM moved')).toEqual({ n: total });
    expect(sizes[0]).toBe(10);
    expect(sizes[1]).toBe(40);
    expect(sizes.slice(2).every((size) => size === 100)).toBe(true);
    await updates.stop();
    expect(updates.current()).toBeUndefined();
  });

  it('goes on after a restart where the last committed batch ended', async () => {
    let batches = 0;
    const inner = mover('move');
    const updates = runner([
      {
        ...inner,
        async run(batch) {
          const result = await inner.run(batch);
          // The third batch does its work, but the server dies before the commit.
          if (++batches === 3) throw new Error('power failure');
          return result;
        },
      },
    ]);
    await updates.queue('move', { progress: { next: 100 } });
    while (batches < 3) await new Promise((resolve) => setTimeout(resolve, 5));
    await updates.stop();
    expect(updates.enabled).toBe(true);
    const row = await db.get<{ progress_json: string }>('SELECT progress_json FROM background_updates');
    const { next } = JSON.parse(row?.progress_json ?? '') as { next: number };
    expect(await db.get('SELECT count(*) AS n, min(id) AS low, max(id) AS high FROM moved')).toEqual({
      n: next - 100,
      low: 100,
      high: next - 1,
    });

    const again = runner([mover('move')]);
    again.start();
    await finished(again);
    expect(await db.get('SELECT count(*) AS n FROM moved')).toEqual({ n: total - 100 });
  });

  it('keeps dependencies and order, and is not stopped by an update it does not know', async () => {
    const order: string[] = [];
    const once = (name: string): BackgroundUpdate => ({
      name,
      oneShot: true,
      run: async () => (order.push(name), { items: 1, progress: {}, finished: true }),
    });
    await db.write(async (tx) => {
      await queueBackgroundUpdate(tx, 'a_last', { dependsOn: 'b_then' });
      await queueBackgroundUpdate(tx, 'b_then', { ordering: 5 });
      await queueBackgroundUpdate(tx, 'c_first', { ordering: 1 });
      await queueBackgroundUpdate(tx, 'unknown');
    });
    const updates = runner([once('a_last'), once('b_then'), once('c_first')]);
    updates.start();
    await eventually(() => order.length === 3);
    await updates.stop();
    expect(order).toEqual(['c_first', 'b_then', 'a_last']);
    expect(logger.messages('warn')).toEqual(['A background update is queued that this version does not know']);
  });

  it('does what was queued while it looked whether there is anything', async () => {
    const updates = runner([mover('first'), mover('second')]);
    const { query } = db;
    const heard = Promise.withResolvers<void>();
    let looks = 0;
    // The answer, that there is nothing, is old by the time it is heard.
    db.query = async (sql, params) => {
      const answer = await query.call(db, sql, params);
      if (sql.includes('FROM background_updates AS waiting') && ++looks === 1) await heard.promise;
      return answer as never;
    };
    updates.start();
    await eventually(() => looks === 1);
    await updates.queue('first');
    heard.resolve();
    await finished(updates);
    db.query = query;
    expect(await updates.isQueued()).toBe(false);
    await updates.stop();
  });

  it('tries a failing update again later, and does others meanwhile', async () => {
    let attempts = 0;
    const bad: BackgroundUpdate = {
      name: 'bad',
      run: async () => {
        if (++attempts < 3) throw new Error('not yet');
        return { items: 1, progress: {}, finished: true };
      },
    };
    const updates = runner([bad, mover('good')], { defaultBatchSize: total });
    await db.write(async (tx) => {
      await queueBackgroundUpdate(tx, 'bad');
      await queueBackgroundUpdate(tx, 'good', { ordering: 9 });
    });
    updates.start();
    await eventually(async () => !(await updates.isQueued('good')));
    await finished(updates, 1000);
    expect(attempts).toBe(3);
    expect(logger.messages('error')).toHaveLength(2);
  });

  it('pauses between batches, reports its state and can be paused', async () => {
    const updates = runner([mover('move')], { sleepEnabled: true, sleepMs: 60_000 });
    await updates.queue('move');
    const pausesAfter = (batches: number): Promise<unknown> =>
      // A transaction has a timer, too: only what was counted is over.
      eventually(
        () => sizes.length === batches && updates.current()?.totalItems === batches * 100 && clock.pendingTimers > 0,
      );
    await pausesAfter(1);
    expect(updates.current()).toEqual({ name: 'move', totalItems: 100, totalDurationMs: 100, itemsPerMs: 1 });
    await clock.advance(60_000);
    await pausesAfter(2);
    updates.setEnabled(false);
    await clock.advance(120_000);
    expect(sizes).toHaveLength(2);
    updates.setEnabled(true);
    await pausesAfter(3);
    await updates.stop();
  });

  it('lets a controller time the batches', async () => {
    const seen: string[] = [];
    const updates = runner([mover('move')]);
    updates.setController({
      async aroundBatch({ name, oneShot }, run) {
        seen.push(`${name} ${oneShot}`);
        await run(250);
      },
      defaultBatchSize: async () => 200,
      minBatchSize: async () => 150,
    });
    expect(() => updates.setController({ aroundBatch: async () => {} })).toThrow();
    await updates.queue('move');
    await finished(updates);
    expect(seen[0]).toBe('move false');
    expect(sizes).toEqual([200, 250, 250, 250, 250]);
  });

  it.each([false, true])('tells a controller which database an update is in (state apart: %s)', async (isApart) => {
    const apart = isApart ? await open(clock) : undefined;
    await apart?.migrate(databaseMigrations);
    const run = (): Promise<{ items: number; progress: object; finished: boolean }> =>
      Promise.resolve({ items: 1, progress: {}, finished: true });
    const update = { name: 'edges', store: 'state', run } as unknown as BackgroundUpdate;
    const updates = new BackgroundUpdates({
      ...{ database: db, clock, logger, updates: [update], settings: defaultBackgroundUpdateSettings },
      state: apart?.database,
    });
    const seen: boolean[] = [];
    updates.setController({
      async aroundBatch({ isInStateDatabase }, begin) {
        seen.push(isInStateDatabase);
        await begin(250);
      },
    });
    await updates.queue('edges');
    await finished(updates);
    expect(seen).toEqual([isApart]);
    await apart?.close();
  });
});
