import {
  eventually,
  type LineFault,
  openTestDatabase,
  PostgresLine,
  RecordingLogger,
  type TestDatabase,
} from '@rookery/testing';
import { SystemClock } from '@rookery/platform';
import { type Database, isTransient, openDatabase, type Tx } from '../index.js';

describe('a line to PostgreSQL that breaks', () => {
  let test: TestDatabase;
  let line: PostgresLine;
  let db: Database;
  let logger: RecordingLogger;
  const rejections: unknown[] = [];
  const onRejection = (reason: unknown): void => void rejections.push(reason);

  beforeAll(async () => {
    process.on('unhandledRejection', onRejection);
    test = await openTestDatabase('postgres');
    await test.database.write((tx) => tx.run('CREATE TABLE things (id BIGINT PRIMARY KEY, n INTEGER NOT NULL)'));
  });
  afterAll(async () => {
    await test.close();
    process.off('unhandledRejection', onRejection);
    expect(rejections).toEqual([]);
  });
  beforeEach(async () => {
    logger = new RecordingLogger();
    line = await PostgresLine.open();
    await test.database.write((tx) => tx.run('TRUNCATE things'));
    const { options } = test;
    if (options.name === 'sqlite3') throw new Error('not PostgreSQL');
    const args = { ...options.args, host: '127.0.0.1', port: line.port, cp_min: 0, cp_max: 2 };
    db = await openDatabase({ ...options, args }, new SystemClock(), logger);
  });
  afterEach(async () => {
    // Every connection that went back to the pool works and is in no transaction of somebody else.
    for (let n = 0; n < 4; n++) {
      const row = await db.get<{ mode: string }>("SELECT current_setting('transaction_read_only') AS mode");
      expect(row).toEqual({ mode: 'on' });
    }
    await db.close();
    line.close();
  });

  const ids = async (): Promise<number[]> =>
    (await test.database.query<{ id: number }>('SELECT id FROM things ORDER BY id')).map((row) => row.id);
  const insert = (tx: Tx, id: number): Promise<void> => tx.exec('INSERT INTO things (id, n) VALUES (?, 0)', [id]);
  const isThere = (id: number) => async (reader: { get: Database['get'] }) =>
    (await reader.get('SELECT id FROM things WHERE id = ?', [id])) !== undefined;
  const faults: readonly LineFault[] = ['cut before', 'cut behind', 'cut after the answer'];
  /** Statements, some awaited, some not, and where the line may break among them. */
  const works: readonly (readonly [name: string, work: (tx: Tx) => Promise<unknown>, places: readonly string[]])[] = [
    [
      'sends without waiting',
      async (tx) => {
        await insert(tx, 1);
        await tx.exec('INSERT INTO things (id, n) SELECT 2, 0');
      },
      ['BEGIN', 'VALUES', 'SELECT 2', 'COMMIT'],
    ],
    [
      'waits in between',
      async (tx) => {
        await insert(tx, 1);
        await tx.get('SELECT n FROM things WHERE id = 1');
        await tx.exec('INSERT INTO things (id, n) SELECT 2, 0');
        await tx.run('UPDATE things SET n = 5');
      },
      ['BEGIN', 'VALUES', 'SELECT n', 'SELECT 2', 'UPDATE', 'COMMIT'],
    ],
  ];

  for (const [name, work, places] of works) {
    for (const place of places) {
      it.each(faults)(`does a transaction once that ${name}, ${place}: %s`, async (fault) => {
        await db.query('SELECT 1');
        line.breakAt(place, fault);
        let committed = 0;
        await db.write(
          async (tx) => {
            tx.afterCommit(() => committed++);
            await work(tx);
          },
          { happened: isThere(1) },
        );
        expect(await ids()).toEqual([1, 2]);
        expect(committed).toBe(1);
      });
    }
  }

  it('tells the caller of a commit about which nobody can be asked', async () => {
    let committed = 0;
    let rolledBack = 0;
    let perhaps = 0;
    line.breakAt('COMMIT', 'cut behind');
    const work = async (tx: Tx): Promise<void> => {
      tx.afterCommit(() => committed++);
      tx.afterRollback(() => rolledBack++);
      tx.unlessRolledBack(() => perhaps++);
      await insert(tx, 1);
    };
    await expect(db.write(work)).rejects.toThrow(/Connection terminated|ECONNRESET/);
    expect([committed, rolledBack, perhaps]).toEqual([0, 1, 1]);
    // The next one, on another connection, might be faster.
    await eventually(async () => (await ids()).length === 1);
    // What certainly came to nothing, and what certainly did not.
    await expect(db.write(work)).rejects.toMatchObject({ code: '23505' });
    expect([committed, rolledBack, perhaps]).toEqual([0, 2, 1]);
    await db.write((tx) => tx.run('DELETE FROM things'));
    await db.write(work);
    expect([committed, rolledBack, perhaps]).toEqual([1, 2, 2]);
  });

  it.each(['refusing', 'silent'] as const)('asks about a commit until the server is back that was %s', async (how) => {
    const outcomes: string[] = [];
    let runs = 0;
    line.breakAt('COMMIT', 'cut behind', () => line.goDown(how));
    const work = db.write(
      async (tx) => {
        runs += 1;
        tx.afterCommit(() => outcomes.push('committed'));
        tx.afterRollback(() => outcomes.push('rolled back'));
        await insert(tx, 1);
      },
      { happened: isThere(1) },
    );
    work.catch(() => outcomes.push('rejected'));
    await eventually(async () => (await ids()).length === 1);
    // Long enough for questions that are not answered.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(outcomes).toEqual([]);
    line.comeBack();
    await work;
    expect(outcomes).toEqual(['committed']);
    expect(runs).toBe(1);
    expect(await ids()).toEqual([1]);
  });

  it('tells what a server that is away could not do from what cannot be done', async () => {
    line.goDown('refusing');
    const errorOf = (work: Promise<unknown>): Promise<unknown> =>
      work.then(
        () => undefined,
        (error: unknown) => error,
      );
    expect(isTransient(await errorOf(db.query('SELECT 1')))).toBe(true);
    expect(isTransient(await errorOf(db.write((tx) => insert(tx, 1))))).toBe(true);
    line.goDown('silent');
    expect(isTransient(await errorOf(db.get('SELECT 1')))).toBe(true);
    line.comeBack();
    const [twice, thrown] = await Promise.all([
      errorOf(db.write((tx) => Promise.all([insert(tx, 1), insert(tx, 1)]))),
      errorOf(db.write(() => Promise.reject(new Error('mine')))),
    ]);
    expect(twice).toMatchObject({ code: '23505' });
    expect([isTransient(twice), isTransient(thrown)]).toEqual([false, false]);
    const slow = db.write(async (tx) => {
      await tx.run('SET LOCAL statement_timeout = 20');
      await tx.run('SELECT pg_sleep(20)');
    });
    expect(isTransient(await errorOf(slow))).toBe(false);
    // Somebody else's refused connection is none of the database's.
    expect(isTransient(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }))).toBe(false);
  });

  describe('whose far end is slow to commit', () => {
    const stillCommitting = (): Promise<unknown[]> =>
      test.database.query(
        "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND state = 'active' AND datname = current_database()",
      );
    beforeAll(() =>
      // The commit hangs at a trigger until after the line is cut.
      test.database.write(async (tx) => {
        await tx.run(`CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN PERFORM pg_sleep(CASE NEW.n WHEN 7 THEN 30 WHEN 8 THEN 1.5 ELSE 0 END); RETURN NULL; END $$`);
        await tx.run(`CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON things DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION hang()`);
      }),
    );
    afterAll(() => test.database.write((tx) => tx.run('DROP FUNCTION hang CASCADE')));

    it('is asked only once it has stopped', async () => {
      line.breakAt('COMMIT', 'cut behind');
      let runs = 0;
      await db.write((tx) => tx.exec('INSERT INTO things (id, n) VALUES (1, ?)', [runs++ === 0 ? 7 : 0]), {
        happened: isThere(1),
      });
      expect(runs).toBe(2);
      expect(await ids()).toEqual([1]);
      expect(await stillCommitting()).toEqual([]);
    });

    it('has stopped before positions are let go of which nobody can be asked', async () => {
      line.breakAt('COMMIT', 'cut behind');
      const seen: Promise<number[]>[] = [];
      const work = db.write(async (tx) => {
        tx.afterRollback(() => seen.push(ids()));
        await tx.exec('INSERT INTO things (id, n) VALUES (1, 8)');
      });
      await expect(work).rejects.toThrow(/Connection terminated|ECONNRESET/);
      // By now it would have committed.
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      expect(await Promise.all(seen)).toEqual([await ids()]);
    });
  });

  it('keeps nothing when the function throws behind what it did not wait for', async () => {
    const thrown = new Error('mine');
    await expect(
      db.write(async (tx) => {
        await insert(tx, 1);
        await insert(tx, 1);
        throw thrown;
      }),
    ).rejects.toBe(thrown);
    line.breakAt('VALUES', 'cut behind');
    await expect(
      db.write(async (tx) => {
        await insert(tx, 1);
        throw thrown;
      }),
    ).rejects.toBe(thrown);
    expect(await ids()).toEqual([]);
  });

  it('closes the connection of a transaction that took too long, whatever it has on its way', async () => {
    const beganMs = performance.now();
    await expect(
      db.write(
        async (tx) => {
          await insert(tx, 1);
          await tx.exec('SELECT pg_sleep(20)');
          await tx.get('SELECT 1');
        },
        { limitMs: 200 },
      ),
    ).rejects.toThrow(/given up|statement timeout/);
    expect(performance.now() - beganMs).toBeLessThan(15_000);
    expect(await ids()).toEqual([]);
  });
});
