import { existsSync, readFileSync, statSync } from 'node:fs';
import Sqlite from 'better-sqlite3';
import { eventually, openTestDatabase, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { SystemClock } from '@rookery/platform';
import {
  type Database,
  isTransient,
  type SqliteOptions,
  type SqlValue,
  type TransactionReport,
  type Tx,
} from '../index.js';
import { SqliteConnection } from './sqlite-connection.js';
import { SqliteDatabase } from './sqlite-database.js';

describe('SqliteDatabase', () => {
  let test: TestDatabase;
  let db: Database;
  let logger: RecordingLogger;
  let reports: TransactionReport[];
  beforeEach(async () => {
    logger = new RecordingLogger();
    reports = [];
    test = await openTestDatabase('sqlite', new SystemClock(), {
      logger,
      onTransaction: (report) => reports.push(report),
    });
    db = test.database;
    await db.write((tx) => tx.run('CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT)'));
  });
  afterEach(() => test.close());
  const insert = (id: number, name = 'x'): Promise<number> =>
    db.write((tx) => tx.run('INSERT INTO things VALUES (?, ?)', [id, name]));
  const ids = async (): Promise<number[]> =>
    (await db.query<{ id: number }>('SELECT id FROM things ORDER BY id')).map((row) => row.id);

  it('flushes every commit to disk before it acknowledges', async () => {
    const settings = await db.write(async (tx) => [
      await tx.get('PRAGMA synchronous'),
      await tx.get('PRAGMA journal_mode'),
      await tx.get('PRAGMA foreign_keys'),
    ]);
    expect(settings).toEqual([{ synchronous: 2 }, { journal_mode: 'wal' }, { foreign_keys: 1 }]);
  });

  it('reads what is committed, while a write is open as well, and lets no reader write', async () => {
    await insert(1);
    await db.write(async (tx) => {
      await tx.run('INSERT INTO things VALUES (2, NULL)');
      expect(await ids()).toEqual([1]);
      await expect(db.query('DELETE FROM things')).rejects.toThrow(/readonly/);
    });
    expect(await ids()).toEqual([1, 2]);
    await expect(db.query('DELETE FROM things')).rejects.toThrow(/readonly/);
    await expect(db.get('INSERT INTO things VALUES (3, NULL) RETURNING id')).rejects.toThrow(/readonly/);
    expect(await ids()).toEqual([1, 2]);
  });

  it('inserts into a table in more ways than it remembers', async () => {
    await db.write(async (tx) => {
      for (let i = 0; i < 60; i++) {
        await tx.insertMany('things', ['id', 'name'], [[i, 'first']], `ON CONFLICT (id) DO UPDATE SET name = '${i}'`);
        await tx.insertMany('things', ['name', 'id'], [['again', i]], `ON CONFLICT (id) DO UPDATE SET name = '${i}'`);
      }
    });
    const rows = await db.query<{ id: number; name: string }>('SELECT id, name FROM things ORDER BY id');
    expect(rows).toEqual(Array.from({ length: 60 }, (_, id) => ({ id, name: String(id) })));
  });

  it('lets others run while many rows are inserted, all of which come or none', async () => {
    const rows = Array.from({ length: 5_000 }, (_, id) => [id, 'one of many']);
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    const insertAll = (last: readonly SqlValue[]): Promise<void> =>
      db.write(async (tx) => {
        turns = 0;
        count();
        await tx.insertMany('things', ['id', 'name'], [...rows, last]);
        expect(turns).toBeGreaterThan(3);
        expect(await ids()).toEqual([]);
      });
    try {
      // One id twice, after others have had their turns.
      await expect(insertAll([4_999, 'twice'])).rejects.toThrow(/UNIQUE/);
      expect(await ids()).toEqual([]);
      await insertAll([5_000, 'last']);
    } finally {
      isOver = true;
    }
    expect(await ids()).toHaveLength(5_001);
  });

  it('gives space back to the file system, in steps', async () => {
    const { path } = test.options as SqliteOptions;
    const text = 'x'.repeat(10_000);
    for (let i = 0; i < 60; i++) {
      await db.write((tx) =>
        tx.insertMany(
          'things',
          ['id', 'name'],
          Array.from({ length: 50 }, (_, k) => [i * 50 + k, text]),
        ),
      );
    }
    expect(await db.reclaim()).toBe(0);
    await db.write((tx) => tx.run('DELETE FROM things WHERE id >= 10'));
    const full = statSync(path).size;
    const steps: number[] = [];
    for (let step = await db.reclaim(); step > 0; step = await db.reclaim()) steps.push(step);
    expect(steps.length).toBeGreaterThan(3);
    expect(statSync(path).size).toBeLessThan(full / 4);
    expect(await ids()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(await db.get('PRAGMA integrity_check')).toEqual({ integrity_check: 'ok' });
  });

  it('leaves nothing in the file of what was erased', async () => {
    const { path } = test.options as SqliteOptions;
    const holds = (): boolean =>
      [path, `${path}-wal`].some((file) => existsSync(file) && readFileSync(file).includes('gone-for-good'));
    const fill = (from: number): Promise<void> =>
      db.write((tx) =>
        tx.insertMany(
          'things',
          ['id', 'name'],
          Array.from({ length: 300 }, (_, n) => [from + n, `gone-for-good ${n} `.repeat(n % 40 === 0 ? 300 : 3)]),
        ),
      );
    await fill(0);
    expect(holds()).toBe(true);
    // All that a step may keep free is filled and emptied without being given back.
    for (const condition of ['id % 2 = 0', 'id % 3 = 0', 'TRUE'])
      await db.write((tx) => tx.run(`DELETE FROM things WHERE ${condition}`), { erase: true });
    while ((await db.reclaim()) > 0);
    expect(holds()).toBe(false);
    // Pages that become free are overwritten only where that was asked for.
    await fill(0);
    await db.write((tx) => tx.run('DELETE FROM things'));
    while ((await db.reclaim()) > 0);
    expect(holds()).toBe(true);
    // Whoever erases does not know of the copies in unused pages: they go as well.
    await db.write((tx) => tx.run('DELETE FROM things'), { erase: true });
    while ((await db.reclaim()) > 0);
    expect(holds()).toBe(false);
  });

  it('lets waiting writes share one commit, and acknowledges none before it', async () => {
    // A reader sees a commit as a whole, so the number of distinct counts it sees tells how many commits there were.
    const order: string[] = [];
    const counts = new Set<number>();
    await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        insert(i).then(async () => {
          order.push(`done ${i}`);
          counts.add((await ids()).length);
        }),
      ),
    );
    expect(order).toEqual(Array.from({ length: 50 }, (_, i) => `done ${i}`));
    expect([...counts]).toEqual([50]);
  });

  it('runs transactions strictly one after the other', async () => {
    let running = 0;
    await Promise.all(
      Array.from({ length: 20 }, () =>
        db.write(async (tx) => {
          expect(++running).toBe(1);
          await tx.query('SELECT 1');
          await new Promise((resolve) => setTimeout(resolve, 1));
          running--;
        }),
      ),
    );
  });

  it('does not let a shared commit that fails cost others their writes', async () => {
    await db.write((tx) =>
      tx.run('CREATE TABLE child (id INTEGER REFERENCES things (id) DEFERRABLE INITIALLY DEFERRED)'),
    );
    const rolledBack: number[] = [];
    const results = await Promise.allSettled([
      insert(1),
      // Accepted by its statement and refused only by the commit.
      db.write((tx) => tx.run('INSERT INTO child VALUES (999)')),
      db.write(async (tx: Tx) => {
        tx.afterRollback(() => rolledBack.push(2));
        await tx.run('INSERT INTO things VALUES (2, NULL)');
      }),
    ]);
    expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(await ids()).toEqual([1, 2]);
    expect(rolledBack).toEqual([2]);
    expect(await db.query('SELECT * FROM child')).toEqual([]);
  });

  it('survives a full disk, where SQLite takes back the whole commit by itself', async () => {
    await insert(1);
    await db.write(async (tx) => {
      const { page_count: pages } = (await tx.get<{ page_count: number }>('PRAGMA page_count')) ?? { page_count: 0 };
      await tx.query(`PRAGMA max_page_count = ${pages + 2}`);
    });
    const results = await Promise.allSettled([insert(2), insert(3, 'y'.repeat(100_000)), insert(4)]);
    expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(String((results[1] as PromiseRejectedResult).reason)).toMatch(/full/);
    expect(await ids()).toEqual([1, 2, 4]);
  });

  it('waits for another program that holds the file, and serves reads and timers meanwhile', async () => {
    const other = new Sqlite((test.options as SqliteOptions).path);
    other.exec("BEGIN IMMEDIATE; INSERT INTO things VALUES (100, 'theirs')");
    const own = [insert(1), insert(2)];
    let beats = 0;
    const beat = setInterval(() => beats++, 10);
    const heldMs = performance.now();
    await eventually(() => beats > 5 && performance.now() - heldMs >= 300);
    expect(await ids()).toEqual([]);
    other.exec('COMMIT');
    other.close();
    await Promise.all(own);
    clearInterval(beat);
    expect(await ids()).toEqual([1, 2, 100]);
    expect(logger.messages('warn')).toEqual(['Another program holds the database; writes wait for it']);
  });

  it('refuses all that wait when another program does not give the file back', async () => {
    const other = new Sqlite((test.options as SqliteOptions).path);
    other.exec('BEGIN IMMEDIATE');
    const refused = await Promise.allSettled([insert(1), insert(2), insert(3)]);
    for (const outcome of refused) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'SQLITE_BUSY' } });
      expect(isTransient((outcome as PromiseRejectedResult).reason)).toBe(true);
    }
    other.close();
    await insert(4);
    expect(await ids()).toEqual([4]);
  });

  it('goes on after SQLite could not even take a transaction back', async () => {
    class Stubborn extends SqliteConnection {
      refusals = 1;
      override run(sql: string, params: readonly SqlValue[] = []): number {
        if (sql === 'ROLLBACK' && this.refusals-- > 0)
          throw Object.assign(new Error('disk I/O error'), { code: 'SQLITE_IOERR' });
        return super.run(sql, params);
      }
    }
    const { path } = test.options as SqliteOptions;
    const handle = new Sqlite(path);
    const [writer, reader] = [new Stubborn(handle), new SqliteConnection(handle)];
    const disconnect = async (): Promise<void> => void handle.close();
    const own = new SqliteDatabase({
      ...{ writer, reader, clock: new SystemClock(), logger, disconnect },
      checkpoints: { committed: () => {} },
    });
    const fill = (id: number): Promise<number> =>
      own.write((tx) => tx.run('INSERT INTO things VALUES (?, NULL)', [id]));
    const failed = own.write(async (tx) => {
      await tx.run('INSERT INTO things VALUES (1, NULL)');
      throw new Error('no');
    });
    const outcomes = await Promise.allSettled([failed, fill(2), fill(3)]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled']);
    expect(outcomes[0]).toMatchObject({ reason: { code: 'SQLITE_IOERR' } });
    expect(logger.messages('error')).toEqual(['SQLite could not end a transaction']);
    await own.close();
    expect(await ids()).toEqual([2, 3]);
  });

  it('tells how long transactions waited and took', async () => {
    reports.length = 0;
    const slow = db.write(() => new Promise((resolve) => setTimeout(resolve, 30)), { name: 'slow' });
    await Promise.all([
      slow,
      insert(1),
      db.write(async () => Promise.reject(new Error('no')), { name: 'bad' }).catch(() => undefined),
    ]);
    expect(reports.map((report) => [report.name, report.committed])).toEqual([
      ['slow', true],
      ['unnamed', true],
      ['bad', false],
    ]);
    expect(reports[0]?.durationMs).toBeGreaterThan(25);
    expect(reports[1]?.waitMs).toBeGreaterThan(25);
  });
});
