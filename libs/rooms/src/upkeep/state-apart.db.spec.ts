import {
  BackgroundUpdates,
  Database,
  databaseMigrations,
  DataStores,
  type SqlValue,
  type Tx,
  type WriteOptions,
} from '@rookery/database';
import { SilentLogger } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { FakeClock, openTestDatabase, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { JoinService } from '../membership/join.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { joinState, stateProblem } from '../store/state-database.js';
import { selectDeletions } from '../store/state-database.query.js';
import { PurgeService } from './purge.service.js';
import { StateGroupCollector } from './state-group-collector.js';
import { stateGroupEdges } from './state-group-edges.update.js';

/** A process that is killed after a number of writes to any of its databases. */
class Life {
  left = Number.POSITIVE_INFINITY;
  get isOver(): boolean {
    return this.left < 0;
  }
}

class Mortal extends Database {
  readonly dialect;
  constructor(
    private readonly inner: Database,
    private readonly life: Life,
  ) {
    super();
    this.dialect = inner.dialect;
  }
  query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return this.#alive(() => this.inner.query<Row>(sql, params));
  }
  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.#alive(() => this.inner.get<Row>(sql, params));
  }
  write<T>(fn: (tx: Tx) => Promise<T>, options?: WriteOptions): Promise<T> {
    this.life.left -= 1;
    return this.#alive(() => this.inner.write(fn, options));
  }
  async close(): Promise<void> {}
  async #alive<T>(work: () => Promise<T>): Promise<T> {
    if (this.life.isOver) throw new Error('killed');
    return work();
  }
}

describe.each(['sqlite', 'postgres'] as const)('state in a database of its own (%s)', (kind) => {
  const clock = new FakeClock();
  const [alice, bob] = [requesterOf('alice'), requesterOf('bob')];
  let test: TestDatabase;
  beforeAll(async () => {
    test = await openTestDatabase(kind, clock, { stateApart });
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    await joinState(new DataStores(test.database, test.state), 'example.org', 'link');
  });
  afterAll(() => test.close());

  const start = async (): Promise<{ rooms: RoomsFixture; life: Life }> => {
    const life = new Life();
    const [database, state] = [new Mortal(test.database, life), new Mortal(test.state, life)];
    return { life, rooms: await buildRooms({ database, state, clock }) };
  };
  const idsOf = async (database: Database, sql: string): Promise<Set<number>> =>
    new Set((await database.query<{ id: number }>(sql)).map(({ id }) => id));
  /** State groups that events name and that are not there, and those that are there and upon which nothing rests. */
  const loose = async (): Promise<{ missing: number[]; unused: number[]; stray: number[] }> => {
    const named = await idsOf(test.database, 'SELECT DISTINCT state_group AS id FROM event_to_state_groups');
    const there = await idsOf(test.state, 'SELECT id FROM state_groups');
    const below = await idsOf(test.state, 'SELECT DISTINCT prev_state_group AS id FROM state_group_edges');
    const rows = await idsOf(test.state, 'SELECT DISTINCT state_group AS id FROM state_groups_state');
    return {
      missing: [...named, ...below].filter((id) => !there.has(id)),
      unused: [...there].filter((id) => !named.has(id) && !below.has(id)),
      stray: [...rows].filter((id) => !there.has(id)),
    };
  };
  const topic = (rooms: RoomsFixture, roomId: string, text: string) =>
    rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.topic', stateKey: '', content: { topic: text } });

  it('keeps what was answered, and collects what a process left that was killed between the two', async () => {
    let leftovers = 0;
    for (let writes = 0; ; writes++) {
      await clock.advance(1_000);
      const { rooms, life } = await start();
      const { roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' });
      await topic(rooms, roomId, 'before');
      life.left = writes;
      const answered: string[] = [];
      const kept = async (work: Promise<{ readonly eventId: string }>): Promise<void> => {
        await work.then(({ eventId }) => answered.push(eventId)).catch(() => undefined);
      };
      await kept(topic(rooms, roomId, 'one'));
      await rooms
        .get(RoomCreation)
        .create(bob, { preset: 'public_chat', name: `second of ${writes}` })
        .catch(() => undefined);
      await rooms
        .get(JoinService)
        .join(bob, roomId)
        .catch(() => undefined);
      await kept(topic(rooms, roomId, 'two'));
      await rooms.close();

      const { missing, unused } = await loose();
      expect({ writes, missing }).toEqual({ writes, missing: [] });
      leftovers += unused.length;
      const next = (await start()).rooms;
      for (const eventId of answered)
        expect((await next.get(RoomStateReader).idsAfter([eventId])).get(eventId)!.size).toBeGreaterThan(5);
      await topic(next, roomId, 'goes on');
      await next.get(StateGroupCollector).run();
      await next.close();
      expect({ writes, ...(await loose()) }).toEqual({ writes, missing: [], unused: [], stray: [] });
      if (!life.isOver) break;
    }
    expect(leftovers).toBeGreaterThan(2);
  });

  it('does not collect what an event is about to name', async () => {
    await clock.advance(1_000);
    const { rooms } = await start();
    const { roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' });
    await clock.advance(1_000);
    const { database } = test;
    const { write } = database;
    let [goOn, reached] = [(): void => {}, (): void => {}];
    const held = new Promise<void>((resolve) => (goOn = resolve));
    const isHeld = new Promise<void>((resolve) => (reached = resolve));
    database.write = (fn, options) => {
      if (options?.name !== 'persist_events') return write.call(database, fn, options) as never;
      reached();
      return held.then(() => write.call(database, fn, options)) as never;
    };
    const sending = topic(rooms, roomId, 'held');
    const making = rooms.get(RoomCreation).create(bob, { preset: 'public_chat' });
    await isHeld;
    const collecting = rooms.get(StateGroupCollector).run();
    const purging = rooms.get(PurgeService).collectGroups(roomId);
    await new Promise((resolve) => setTimeout(resolve, 50));
    goOn();
    database.write = write;
    const { eventId } = await sending;
    const made = await making;
    await Promise.all([collecting, purging]);
    expect((await loose()).missing).toEqual([]);
    expect((await rooms.get(RoomStateReader).idsAfter([eventId])).get(eventId)!.size).toBeGreaterThan(5);
    await rooms.get(EventCreation).send(bob, { roomId: made.roomId, type: 'm.room.topic', stateKey: '', content: {} });
    await rooms.close();
  });

  it('counts each deletion, and leaves alone what another process wrote since', async () => {
    await clock.advance(1_000);
    const { rooms } = await start();
    const { roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' });
    await clock.advance(1_000);
    const before = await selectDeletions(test.state);
    // With the number of a process that writes after this one.
    await test.state.write((tx) =>
      tx.run('INSERT INTO state_groups (id, room_id, event_id) VALUES (?, ?, ?)', [1_000_000_000, roomId, '$later']),
    );
    await rooms.get(PurgeService).purgeRoom(roomId);
    expect(await selectDeletions(test.state)).toBeGreaterThan(before);
    expect(await test.state.query('SELECT id FROM state_groups WHERE room_id = ?', [roomId])).toEqual([
      { id: 1_000_000_000 },
    ]);
    await test.state.write((tx) => tx.run('DELETE FROM state_groups WHERE id = 1000000000'));
    await rooms.close();
  });

  it('mends doubled edges where they lie', async () => {
    await test.state.write(async (tx) => {
      await tx.run('CREATE TABLE restored (state_group BIGINT NOT NULL, prev_state_group BIGINT NOT NULL)');
      for (let n = 0; n < 2; n++)
        await tx.run('INSERT INTO restored SELECT state_group, prev_state_group FROM state_group_edges');
      await tx.run('DROP TABLE state_group_edges');
      await tx.run('ALTER TABLE restored RENAME TO state_group_edges');
    });
    const edges = async (): Promise<number> => (await test.state.query('SELECT 1 FROM state_group_edges')).length;
    const doubled = await edges();
    expect(await stateGroupEdges.queueRepair(test.state)).toBe(true);
    const updates = new BackgroundUpdates({
      ...{ database: test.database, state: test.state, clock, logger: new SilentLogger() },
      updates: [stateGroupEdges.update],
    });
    expect(await updates.isQueued()).toBe(true);
    updates.start();
    for (let n = 0; n < 200 && (await updates.isQueued()); n++) {
      await clock.advance(1_000);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await updates.stop();
    expect(await edges()).toBe(doubled / 2);
    expect(await stateGroupEdges.lackIndex(test.state)).toBe(false);
  });

  it('knows whose it is, and what it lacks', async () => {
    const own = new DataStores(test.database, test.state);
    expect(await stateProblem(own, 'example.org')).toBeUndefined();
    // Without it in the settings.
    expect(await stateProblem(new DataStores(test.database), 'example.org')).toContain(
      'the state lies in a database of its own',
    );
    // Another server's.
    const other = await openTestDatabase(kind, clock);
    await other.migrate([...databaseMigrations, ...roomsMigrations]);
    expect(await stateProblem(new DataStores(other.database, test.state), 'other.org')).toContain(
      'belongs to another main database, of example.org: two servers',
    );
    // A main one.
    expect(await stateProblem(new DataStores(test.database, other.database), 'example.org')).toContain(
      'is a main database',
    );
    // An empty one, and an older one.
    const empty = await openTestDatabase(kind, clock);
    expect(await stateProblem(new DataStores(test.database, empty.database), 'example.org')).toContain(
      'is empty, and the main one has events with state groups: move the tables state_groups',
    );
    // A main one that was put back to a day on which a room was still there.
    const room = await test.database.get<{ id: number }>(
      `SELECT state_group AS id FROM event_forward_extremities NATURAL JOIN event_to_state_groups
       WHERE state_group < (SELECT MAX(state_group) FROM event_to_state_groups)`,
    );
    const rows = await test.state.query<{ room_id: string; event_id: string }>(
      'SELECT * FROM state_groups WHERE id = ?',
      [room!.id],
    );
    await test.state.write((tx) => tx.run('DELETE FROM state_groups WHERE id = ?', [room!.id]));
    expect(await stateProblem(own, 'example.org')).toContain('lacks state groups which events in the main one name');
    const again = [room!.id, rows[0]!.room_id, rows[0]!.event_id];
    await test.state.write((tx) => tx.run('INSERT INTO state_groups (id, room_id, event_id) VALUES (?, ?, ?)', again));
    expect(await stateProblem(own, 'example.org')).toBeUndefined();
    const named = await test.database.get<{ id: number }>('SELECT MAX(state_group) AS id FROM event_to_state_groups');
    await test.state.write((tx) => tx.run('DELETE FROM state_groups WHERE id >= ?', [named!.id]));
    expect(await stateProblem(own, 'example.org')).toContain('lacks state groups which events in the main one name');
    await other.close();
    await empty.close();
  });
});
