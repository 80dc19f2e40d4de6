import { BackgroundUpdates, type Database, databaseMigrations } from '@rookery/database';
import { SilentLogger, SystemClock } from '@rookery/platform';
import { eachDatabase, eventually, type TestDatabase } from '@rookery/testing';
import { roomsMigrations } from '../migrations/index.js';
import { selectChain } from '../state/state-groups.query.js';
import { stateGroupEdges } from './state-group-edges.update.js';

const groups = 40;

eachDatabase('doubled edges of state groups', (open, kind) => {
  let test: TestDatabase;
  let db: Database;
  beforeEach(async () => {
    test = await open();
    db = test.database;
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
    await db.write(async (tx) => {
      await tx.insertMany(
        'state_groups',
        ['id', 'room_id', 'event_id', 'chain_position'],
        Array.from({ length: groups }, (_, i) => [i + 1, '!r:a', '$e', i]),
      );
      await tx.insertMany(
        'state_group_edges',
        ['state_group', 'prev_state_group'],
        Array.from({ length: groups - 1 }, (_, i) => [i + 2, i + 1]),
      );
    });
  });
  afterEach(() => test.close());

  /** As restored from a dump whose indexes did not come along, twice. */
  async function double(): Promise<void> {
    await db.write(async (tx) => {
      await tx.run('CREATE TABLE restored (state_group BIGINT NOT NULL, prev_state_group BIGINT NOT NULL)');
      for (let time = 0; time < 2; time++)
        await tx.run('INSERT INTO restored SELECT state_group, prev_state_group FROM state_group_edges');
      await tx.run('DROP TABLE state_group_edges');
      await tx.run('ALTER TABLE restored RENAME TO state_group_edges');
    });
  }
  const updates = (): BackgroundUpdates =>
    new BackgroundUpdates({
      ...{ database: db, clock: new SystemClock(), logger: new SilentLogger(), updates: [stateGroupEdges.update] },
      settings: { durationMs: 5, sleepEnabled: false, sleepMs: 0, minBatchSize: 1, defaultBatchSize: 7 },
    });

  it('are nowhere in a database of our own', async () => {
    expect(await stateGroupEdges.lackIndex(db)).toBe(false);
    expect(await stateGroupEdges.queueRepair(db)).toBe(false);
  });

  it('are found, read as one, and removed', async () => {
    await double();
    // Each hop would double the rows: 2 to the power of 39.
    expect(await selectChain(db, groups)).toHaveLength(groups);
    expect(await stateGroupEdges.lackIndex(db)).toBe(true);
    expect(await stateGroupEdges.queueRepair(db)).toBe(true);
    const running = updates();
    running.start();
    await eventually(async () => !(await running.isQueued()));
    await running.stop();
    expect(await db.query('SELECT state_group, prev_state_group FROM state_group_edges ORDER BY state_group')).toEqual(
      Array.from({ length: groups - 1 }, (_, i) => ({ state_group: i + 2, prev_state_group: i + 1 })),
    );
    expect(await stateGroupEdges.lackIndex(db)).toBe(false);
    await expect(db.write((tx) => tx.run('INSERT INTO state_group_edges VALUES (2, 1)'))).rejects.toThrow(/unique/i);
    const left = await db.query(
      kind === 'sqlite'
        ? "SELECT name FROM sqlite_master WHERE name LIKE '%mending%'"
        : "SELECT indexname FROM pg_indexes WHERE indexname LIKE '%mending%'",
    );
    expect(left).toEqual([]);
    expect(await stateGroupEdges.queueRepair(db)).toBe(false);
  });
});
