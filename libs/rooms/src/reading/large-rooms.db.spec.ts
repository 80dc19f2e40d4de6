import { databaseMigrations, type SqlValue } from '@rookery/database';
import { WrittenList } from '@rookery/http';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventStore } from '../store/event-store.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { EventSerializer } from './event-serializer.js';

const pieces = 900;

eachDatabase('a room with much state', (open) => {
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  let test: TestDatabase;
  let rooms: RoomsFixture;
  let roomId: string;
  /** Events that were read from the database, by the turn of the event loop. */
  const readInTurn = new Map<number, number>();
  let turn = 0;
  let timer: NodeJS.Immediate;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const making = await buildRooms({ database: test.database, clock });
    const state = Array.from({ length: pieces }, (_, n) => ({ type: 'org.piece', state_key: `${n}`, content: { n } }));
    ({ roomId } = await making.get(RoomCreation).create(alice, { preset: 'public_chat', initial_state: state }));
    const { database } = test;
    const query = database.query.bind(database);
    database.query = async <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> => {
      const rows = await query<Row>(sql, params);
      if (sql.includes('event_json')) readInTurn.set(turn, (readInTurn.get(turn) ?? 0) + rows.length);
      return rows;
    };
    const count = (): void => {
      turn++;
      timer = setImmediate(count);
    };
    count();
  });
  afterAll(async () => {
    clearImmediate(timer);
    await rooms.close();
  });
  beforeEach(async () => {
    // With nothing in memory.
    rooms = await buildRooms({ database: test.database, clock });
    readInTurn.clear();
  });

  const all = (written: unknown): readonly { type: string; content: { n?: number } }[] =>
    JSON.parse(JSON.stringify(written)) as { type: string; content: { n?: number } }[];

  it.each(['one', 'several'])('is read and written in parts, by %s at a time', async (who) => {
    const reading = rooms.get(RoomReadingService);
    const asked = Array.from({ length: who === 'one' ? 1 : 3 }, () => reading.allState(alice, roomId));
    for (const written of await Promise.all(asked)) {
      expect(written).toBeInstanceOf(WrittenList);
      const events = all(written);
      expect(written).toHaveLength(events.length);
      expect(events.flatMap(({ content: { n } }) => n ?? []).toSorted((a, b) => a - b)).toEqual([
        ...Array.from({ length: pieces }).keys(),
      ]);
    }
    // What PostgreSQL answers to several may arrive together.
    const atOnce = test.database.dialect.name === 'sqlite' ? 1 : asked.length;
    expect(Math.max(...readInTurn.values())).toBeLessThanOrEqual(500 * atOnce);
  });

  it('is loaded and written as objects in parts as well', async () => {
    const state = await rooms.get(RoomStateReader).current(roomId);
    expect(state.length).toBeGreaterThan(pieces);
    expect(new Set(state.map(({ event }) => event.eventId)).size).toBe(state.length);
    expect(Math.max(...readInTurn.values())).toBeLessThanOrEqual(500);
    const began = turn;
    const written = await rooms.get(EventSerializer).serializeState(alice, state);
    expect(written.map((event) => event.event_id)).toEqual(state.map(({ event }) => event.eventId));
    expect(turn).toBeGreaterThan(began);
  });

  it('is read within a transaction without waiting for anything else', async () => {
    const ids = [...(await rooms.get(RoomStateReader).currentIds(roomId)).values()];
    await test.database.write(async (tx) => {
      const began = turn;
      expect((await rooms.get(EventStore).many(ids, tx)).size).toBe(ids.length);
      if (test.database.dialect.name === 'sqlite') expect(turn).toBe(began);
    });
  });
});
