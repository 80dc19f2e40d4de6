import { createHash } from 'node:crypto';
import { asPostgresAdmin, eventually, openTestDatabase, RecordingLogger, type TestDatabase } from '@rookery/testing';
import type { Database, Tx } from '../index.js';

describe('PostgresDatabase', () => {
  let test: TestDatabase;
  let db: Database;
  let logger: RecordingLogger;
  beforeEach(async () => {
    logger = new RecordingLogger();
    test = await openTestDatabase('postgres', undefined, { logger });
    db = test.database;
    await db.write((tx) =>
      tx.run('CREATE TABLE things (id BIGINT PRIMARY KEY, n INTEGER NOT NULL, doc JSONB, tags TEXT[])'),
    );
    await db.write((tx) =>
      tx.insertMany(
        'things',
        ['id', 'n'],
        [
          [1, 0],
          [2, 0],
        ],
      ),
    );
  });
  afterEach(() => test.close());
  const values = async (): Promise<number[]> =>
    (await db.query<{ n: number }>('SELECT n FROM things ORDER BY id')).map((row) => row.n);
  const add = (tx: Tx, id: number): Promise<number> => tx.run('UPDATE things SET n = n + 1 WHERE id = ?', [id]);

  it('tries again when two transactions lock each other out, and frees what the lost attempt held', async () => {
    const meeting: (() => void)[] = [];
    const met = new Promise<void>((resolve) => meeting.push(resolve));
    let arrived = 0;
    let runs = 0;
    let rollbacks = 0;
    const crossing = (first: number, second: number): Promise<string> =>
      db.write(async (tx) => {
        runs++;
        tx.afterRollback(() => rollbacks++);
        await add(tx, first);
        if (++arrived === 2) meeting[0]?.();
        await met;
        await add(tx, second);
        return 'done';
      });
    expect(await Promise.all([crossing(1, 2), crossing(2, 1)])).toEqual(['done', 'done']);
    expect(await values()).toEqual([2, 2]);
    expect(runs).toBeGreaterThan(2);
    expect(rollbacks).toBe(runs - 2);
    expect(logger.messages('warn')).toHaveLength(runs - 2);
  });

  it('tries again when what nobody waited for was locked out, and tells of a limit that it met', async () => {
    const meeting: (() => void)[] = [];
    const met = new Promise<void>((resolve) => meeting.push(resolve));
    let runs = 0;
    const crossing = (first: number, second: number): Promise<void> =>
      db.write(async (tx) => {
        await add(tx, first);
        if (++runs === 2) meeting[0]?.();
        await met;
        await tx.exec('UPDATE things SET n = n + 1 WHERE id = ?', [second]);
      });
    await Promise.all([crossing(1, 2), crossing(2, 1)]);
    expect(await values()).toEqual([2, 2]);
    expect(runs).toBeGreaterThan(2);

    let release = (): void => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    let has = (): void => {};
    const locked = new Promise<void>((resolve) => (has = resolve));
    const holding = db.write(async (tx) => {
      await add(tx, 1);
      has();
      await held;
    });
    // Only then is the other one the later of the two.
    await Promise.race([locked, holding]);
    try {
      const waiting = db.write((tx) => tx.exec('UPDATE things SET n = 9 WHERE id = 1'), { limitMs: 200 });
      // The server's clock and ours run side by side: either may be first.
      await expect(waiting).rejects.toThrow(/given up|statement timeout/);
    } finally {
      release();
    }
    await holding;
    expect(await values()).toEqual([3, 2]);
  });

  it('tries again although the function hides the cause, and gives up in the end', async () => {
    let runs = 0;
    const conflict = "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$";
    const done = db.write(async (tx) => {
      await add(tx, 1);
      if (++runs < 3) {
        try {
          await tx.run(conflict);
        } catch {
          throw new Error('something else');
        }
      }
      return runs;
    });
    expect(await done).toBe(3);
    expect(await values()).toEqual([1, 0]);
    runs = 0;
    await expect(db.write(async (tx) => (runs++, tx.run(conflict)))).rejects.toThrow('lost');
    expect(runs).toBe(5);
  });

  it('goes on when the server ends its connections', async () => {
    const pid = (await db.get<{ pid: number }>('SELECT pg_backend_pid() AS pid'))?.pid;
    await asPostgresAdmin(`SELECT pg_terminate_backend(${pid})`);
    expect(await values()).toEqual([0, 0]);
    let runs = 0;
    await db.write(async (tx) => {
      const own = (await tx.get<{ pid: number }>('SELECT pg_backend_pid() AS pid'))?.pid;
      if (++runs === 1) await asPostgresAdmin(`SELECT pg_terminate_backend(${own})`);
      await add(tx, 1);
    });
    expect(runs).toBe(2);
    expect(await values()).toEqual([1, 0]);
  });

  it('survives the end of a connection between two statements', async () => {
    let runs = 0;
    await db.write(async (tx) => {
      const own = (await tx.get<{ pid: number }>('SELECT pg_backend_pid() AS pid'))?.pid;
      if (++runs === 1) {
        await asPostgresAdmin(`SELECT pg_terminate_backend(${own})`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      await add(tx, 1);
    });
    expect(runs).toBe(2);
    expect(await values()).toEqual([1, 0]);
  });

  it('sends statements that are issued together, together, and keeps their order', async () => {
    await db.write(async (tx) => {
      const results = await Promise.all([
        tx.run('UPDATE things SET n = 5 WHERE id = 1'),
        tx.get('SELECT n FROM things WHERE id = ?', [1]),
        tx.run('UPDATE things SET n = 6 WHERE id = 1'),
        tx.get('SELECT n FROM things WHERE id = ?', [1]),
      ]);
      expect(results).toEqual([1, { n: 5 }, 1, { n: 6 }]);
    });
    const failed = db.write((tx) => Promise.all([add(tx, 1), tx.run('SELECT nonsense'), add(tx, 1)]));
    await expect(failed).rejects.toThrow(/nonsense/);
    expect(await values()).toEqual([6, 0]);
  });

  it('goes on when the schema changes under its plans', async () => {
    const read = (): Promise<unknown> => db.get('SELECT * FROM things WHERE id = ?', [1]);
    const all = (): Promise<unknown[]> => Promise.all(Array.from({ length: 8 }, read));
    for (let i = 0; i < 6; i++) await all();
    await db.write((tx) => tx.run('ALTER TABLE things ADD COLUMN extra TEXT'));
    for (const row of await all()) expect(row).toHaveProperty('extra', null);
    for (let i = 0; i < 6; i++) await db.write((tx) => tx.get('SELECT * FROM things WHERE id = ?', [2]));
    await db.write((tx) => tx.run('ALTER TABLE things DROP COLUMN extra'));
    expect(await db.write((tx) => tx.get('SELECT * FROM things WHERE id = ?', [2]))).toEqual({
      id: 2,
      n: 0,
      doc: null,
      tags: null,
    });
  });

  it('prepares what comes often on the server, and one-off statements not', async () => {
    const prepared = await db.write(async (tx) => {
      for (let i = 0; i < 10; i++) await tx.query('SELECT n FROM things WHERE id = ?', [i]);
      await tx.query('SELECT n + 1 FROM things WHERE id = ?', [1]);
      return tx.query<{ statement: string }>(
        "SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%FROM things%'",
      );
    });
    expect(prepared).toEqual([{ statement: 'SELECT n FROM things WHERE id = $1' }]);
  });

  it('keeps JSON as text and fills columns that are lists themselves', async () => {
    await db.write((tx) =>
      tx.insertMany(
        'things',
        ['id', 'n', 'doc', 'tags'],
        [
          [3, 1, '{"a": 1}', ['x', 'y,"z']],
          [4, 1, null, null],
        ],
      ),
    );
    expect(await db.query('SELECT doc, tags FROM things WHERE id > 2 ORDER BY id')).toEqual([
      { doc: '{"a": 1}', tags: ['x', 'y,"z'] },
      { doc: null, tags: null },
    ]);
  });

  it('sends every kind of value as it is, alone and in lists, whatever its size', async () => {
    await db.write((tx) =>
      tx.run('CREATE TABLE kinds (id BIGINT PRIMARY KEY, b BOOLEAN, f DOUBLE PRECISION, t TEXT, y BYTEA, l TEXT[])'),
    );
    const long = 'ä"\\€😀'.repeat(100_000);
    const bytes = Uint8Array.from([0, 1, 92, 34, 255]);
    const rows = [
      [1n, true, 0.5, '', bytes, ['a,"b"', '\\', '']],
      [2, false, -1e300, 'NULL', new Uint8Array(0), []],
      [3, null, null, long, null, null],
      [4, true, 3, '{"a": "\\u0041"}', Uint8Array.from({ length: 70_000 }, (_, i) => i), ['{}', 'NULL']],
    ] as const;
    const columns = ['id', 'b', 'f', 't', 'y', 'l'];
    // The long text is compared by its length and its hash, for nobody wants to read it in a report.
    const read = (from: number): Promise<object[]> =>
      db.query(
        `SELECT b, f, length(t) AS size, md5(t) AS hash, encode(y, 'hex') AS y, l FROM kinds WHERE id >= ? ORDER BY id`,
        [from],
      );
    const expected = rows.map(([, b, f, t, y, l]) => ({
      ...{ b, f, l },
      size: t === null ? null : [...t].length,
      hash: t === null ? null : createHash('md5').update(t).digest('hex'),
      y: y && Buffer.from(y).toString('hex'),
    }));
    await db.write(async (tx) => {
      for (const row of rows) await tx.insertMany('kinds', columns, [row]);
    });
    expect(await read(0)).toEqual(expected);
    await db.write(async (tx) => {
      await tx.exec('DELETE FROM kinds');
      await tx.insertMany('kinds', columns, rows);
      const withoutLists = rows.map((row, i) => [i + 100, ...row.slice(1, 5)]);
      await tx.insertMany('kinds', columns.slice(0, 5), withoutLists);
    });
    const withoutLists = expected.map((row) => ({ ...row, l: null }));
    expect(await read(0)).toEqual([...expected, ...withoutLists]);
  });

  it('holds statements back no longer than it takes to ask for something, and no more than a few', async () => {
    await db.write(async (tx) => {
      for (let id = 10; id < 500; id++) await tx.exec('INSERT INTO things (id, n) VALUES (?, 7)', [id]);
      expect(await tx.get('SELECT count(*) AS n FROM things WHERE n = 7')).toEqual({ n: 490 });
      for (let id = 500; id < 600; id++) await tx.exec('INSERT INTO things (id, n) VALUES (?, 8)', [id]);
    });
    expect(await db.get('SELECT count(*) AS n FROM things WHERE n = 8')).toEqual({ n: 100 });
    const inTheMiddle = db.write(async (tx) => {
      for (let id = 1000; id < 1400; id++) {
        await tx.exec(`INSERT INTO things (id, n) VALUES (?, ${id === 1200 ? 'nonsense' : 9})`, [id]);
      }
    });
    await expect(inTheMiddle).rejects.toThrow(/nonsense/);
    expect(await db.get('SELECT count(*) AS n FROM things WHERE id >= 1000')).toEqual({ n: 0 });
  });

  it('uses the statements that the server keeps again after one of them has failed', async () => {
    const insert = async (tx: Tx, id: number): Promise<void> => {
      await tx.exec('UPDATE things SET n = n WHERE id = ?', [id]);
      await tx.exec('INSERT INTO things (id, n) VALUES (?, 3)', [id]);
      await tx.exec('UPDATE things SET n = n + 1 WHERE id = ?', [id]);
    };
    // Fails each time in which the server is asked to keep something new, and each time in which it is not.
    for (let i = 0; i < 30; i++) {
      await expect(db.write((tx) => insert(tx, 1))).rejects.toThrow(/duplicate key/);
      await db.write((tx) => insert(tx, 100 + i));
    }
    expect(await db.get('SELECT count(*) AS n FROM things WHERE n = 4')).toEqual({ n: 30 });
    expect(await db.write(() => Promise.resolve('nothing'))).toBe('nothing');
  });

  it('inserts many JSON documents as they are', async () => {
    const docs = ['{"a": "x\\"y, {z}"}', '[]', null, '"\\\\"'];
    await db.write((tx) =>
      tx.insertMany(
        'things',
        ['id', 'n', 'doc'],
        docs.map((doc, i) => [10 + i, 0, doc]),
      ),
    );
    const stored = await db.query<{ doc: string | null }>('SELECT doc FROM things WHERE id >= 10 ORDER BY id');
    expect(stored.map((row) => row.doc)).toEqual(docs);
  });

  it('stops a statement at the transaction’s limit, on the server as well', async () => {
    const slow = db.write((tx) => tx.query('SELECT pg_sleep(600)'), { name: 'slow', limitMs: 100 });
    await expect(slow).rejects.toThrow(/given up|statement timeout/);
    // Other tests put connections to sleep as well, in databases of their own. It would sleep for longer than this waits.
    const sleeping = `SELECT count(*) AS n FROM pg_stat_activity
      WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active' AND datname = current_database()`;
    await eventually(async () => (await db.get<{ n: number }>(sleeping))?.n === 0);
  });

  it('does not wait for ever when every transaction wants a read of its own', async () => {
    const beganMs = performance.now();
    const seen = await Promise.all(
      Array.from({ length: 40 }, () =>
        db.write(async (tx) => {
          await add(tx, 1);
          return (
            await Promise.all([db.get<{ n: number }>('SELECT n FROM things WHERE id = 2'), db.query('SELECT 1')])
          )[0]?.n;
        }),
      ),
    );
    expect(seen).toEqual(Array.from({ length: 40 }, () => 0));
    expect(performance.now() - beganMs).toBeLessThan(10_000);
  });

  it('runs more transactions than it has connections', async () => {
    await Promise.all(Array.from({ length: 60 }, () => db.write((tx) => add(tx, 1))));
    expect(await values()).toEqual([60, 0]);
  });
});
