import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { type Database, databaseMigrations, Sequence, StreamIds, type Tx } from '../index.js';

eachDatabase('Stream ids', (open) => {
  let test: TestDatabase;
  let db: Database;
  beforeAll(async () => {
    test = await open();
    db = test.database;
    await test.migrate(databaseMigrations);
    await db.write((tx) => tx.run('CREATE TABLE rows_of_stream (id BIGINT PRIMARY KEY)'));
  });
  const store = async (tx: Tx, ids: readonly number[]): Promise<void> =>
    tx.insertMany(
      'rows_of_stream',
      ['id'],
      ids.map((id) => [id]),
    );

  it('begins at 1 and goes on without repeating after a restart', async () => {
    const first = await StreamIds.load(db, 'restart', { blockSize: 10 });
    expect(first.current()).toBe(0);
    const ids = await db.write((tx) => first.allocateIn(tx, 3));
    expect(ids).toEqual([1, 2, 3]);
    expect(first.current()).toBe(3);
    const again = await StreamIds.load(await test.reopen(), 'restart', { blockSize: 10 });
    expect(again.current()).toBeGreaterThanOrEqual(3);
    const next = await db.write((tx) => again.allocateIn(tx));
    expect(next[0]).toBe(again.current());
    expect(next[0]).toBeGreaterThan(3);
    expect(next[0]).toBeLessThanOrEqual(24);
  });

  it('counts down for events from before', async () => {
    const stream = await StreamIds.load(db, 'backfill', { direction: 'down', blockSize: 10 });
    expect(Object.is(stream.current(), 0)).toBe(true);
    expect(await db.write((tx) => stream.allocateIn(tx, 2))).toEqual([-1, -2]);
    expect(stream.current()).toBe(-2);
    const again = await StreamIds.load(await test.reopen(), 'backfill', { direction: 'down' });
    const allocation = await again.allocate();
    expect(allocation.ids[0]).toBeLessThan(-2);
    allocation.done();
    expect(again.current()).toBe(allocation.ids[0]);
  });

  it('stops readers before the first position that is still being written', async () => {
    const stream = await StreamIds.load(db, 'overlap');
    const heard: number[] = [];
    const stop = stream.onAdvance((position) => heard.push(position));
    stream.onAdvance(() => {
      throw new Error('a bad listener');
    });
    const a = await stream.allocate(2);
    const b = await stream.allocate();
    const c = await stream.allocate();
    b.done();
    expect(stream.current()).toBe(0);
    a.done();
    a.done();
    expect(stream.current()).toBe(3);
    stop();
    c.done();
    expect(stream.current()).toBe(4);
    expect(heard).toEqual([3]);
  });

  it('counts positions as being written from the moment they are taken', async () => {
    const stream = await StreamIds.load(db, 'moment');
    const early = await stream.allocate();
    const pending = stream.allocate(5);
    early.done();
    expect(stream.current()).toBe(1);
    (await pending).done();
    expect(stream.current()).toBe(6);
  });

  it('frees positions of transactions that are rolled back', async () => {
    const stream = await StreamIds.load(db, 'rollback');
    const failed = db.write(async (tx) => {
      await stream.allocateIn(tx, 4);
      throw new Error('no');
    });
    await expect(failed).rejects.toThrow('no');
    expect(stream.current()).toBe(4);
    expect(await db.write((tx) => stream.allocateIn(tx))).toEqual([5]);
  });

  it('never gives a number twice under load, with small blocks, failures and restarts', async () => {
    const seen: number[] = [];
    for (let life = 0; life < 3; life++) {
      const stream = await StreamIds.load(db, 'load', { blockSize: 4 });
      await Promise.allSettled(
        Array.from({ length: 60 }, (_, i) =>
          db.write(async (tx) => {
            const ids = await stream.allocateIn(tx, 1 + (i % 7));
            await store(tx, ids);
            if (i % 5 === 0) throw new Error('no');
            tx.afterCommit(() => seen.push(...ids));
          }),
        ),
      );
      // Everything ended, so readers may read everything that was committed, and no further than what was given out.
      expect(stream.current()).toBeGreaterThanOrEqual(Math.max(...seen));
    }
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen.length).toBeGreaterThan(500);
    const stored = await db.query<{ id: number }>('SELECT id FROM rows_of_stream ORDER BY id');
    expect(stored.map((row) => row.id)).toEqual(seen.toSorted((a, b) => a - b));
  });

  it('does not trust a reservation whose transaction was rolled back', async () => {
    const stream = await StreamIds.load(db, 'trust', { blockSize: 2 });
    const lost = db.write(async (tx) => {
      await stream.allocateIn(tx, 50);
      throw new Error('no');
    });
    const next = db.write(async (tx) => {
      const [id = 0] = await stream.allocateIn(tx);
      const row = await tx.get<{ stream_id: number }>(
        "SELECT stream_id FROM stream_positions WHERE stream_name = 'trust'",
      );
      return [id, row?.stream_id ?? 0] as const;
    });
    await expect(lost).rejects.toThrow('no');
    const [id, reserved] = await next;
    expect(id).toBeGreaterThan(50);
    expect(reserved).toBeGreaterThanOrEqual(id);
  });

  it('waits for a reservation that one call exceeds', async () => {
    const sequence = await Sequence.load(db, 'big_seq', { blockSize: 2 });
    expect(await sequence.take(50)).toEqual(Array.from({ length: 50 }, (_, i) => i + 1));
    expect(await sequence.next()).toBe(51);
    expect(await db.write((tx) => sequence.nextIn(tx))).toBe(52);
    expect(await db.write((tx) => sequence.takeIn(tx, 3))).toEqual([53, 54, 55]);
    await expect(sequence.take(0)).rejects.toThrow(RangeError);
  });

  it('starts behind what was imported', async () => {
    const sequence = await Sequence.load(db, 'imported_seq', { takenUpTo: 5000 });
    expect(await sequence.next()).toBe(5001);
    const again = await Sequence.load(await test.reopen(), 'imported_seq', { takenUpTo: 10 });
    expect(await again.next()).toBeGreaterThan(5001);
  });

  it('needs no statement of its own while the block lasts', async () => {
    const names: string[] = [];
    const observed = await open(undefined, { onTransaction: (report) => names.push(report.name) });
    await observed.migrate(databaseMigrations);
    const stream = await StreamIds.load(observed.database, 'hot', { blockSize: 1000 });
    names.length = 0;
    for (let i = 0; i < 400; i++) await observed.database.write((tx) => stream.allocateIn(tx), { name: 'send' });
    expect(names.filter((name) => name === 'reserve_ids')).toHaveLength(0);
    expect(names).toHaveLength(400);
  });
});
