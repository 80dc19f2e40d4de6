import { Database, databaseMigrations, type SqlValue, type Tx, type WriteOptions } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { PurgeService } from '../upkeep/purge.service.js';
import { EventStore } from '../store/event-store.js';
import { RoomSnapshots } from './room-snapshots.js';

/** A database of which one answer can be held back. */
class Slow extends Database {
  readonly dialect;
  #held: { readonly text: string; readonly until: Promise<void>; readonly reached: () => void } | undefined;

  constructor(private readonly inner: Database) {
    super();
    this.dialect = inner.dialect;
  }

  /** Holds back the answer to the next query with a text. Resolves once it is there. */
  hold(text: string, until: Promise<void>): Promise<void> {
    return new Promise((reached) => (this.#held = { text, until, reached }));
  }

  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    const held = this.#held && sql.includes(this.#held.text) ? this.#held : undefined;
    if (held) this.#held = undefined;
    const rows = await this.inner.query<Row>(sql, params);
    held?.reached();
    await held?.until;
    return rows;
  }

  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.inner.get<Row>(sql, params);
  }

  write<T>(fn: (tx: Tx) => Promise<T>, options?: WriteOptions): Promise<T> {
    return this.inner.write(fn, options);
  }

  close(): Promise<void> {
    return this.inner.close();
  }
}

eachDatabase('what the writer of a room keeps of it', (open) => {
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  let test: TestDatabase;
  let database: Slow;
  let rooms: RoomsFixture;
  let snapshots: RoomSnapshots;
  let roomId: string;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    database = new Slow(test.database);
    rooms = await buildRooms({ database, clock });
    snapshots = rooms.get(RoomSnapshots);
  });
  afterAll(() => rooms.close());
  beforeEach(async () => {
    ({ roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' }));
  });

  const send = async (body: string): Promise<string> =>
    (
      await rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } })
    ).eventId;

  it('is not what somebody read while it was written', async () => {
    const before = await send('zero');
    snapshots.drop(roomId);
    let goOn = (): void => {};
    const isRead = database.hold('event_forward_extremities', new Promise((resolve) => (goOn = resolve)));
    const reading = snapshots.get(roomId);
    await isRead;
    const first = await send('one');
    goOn();
    expect([...((await reading)?.extremities.keys() ?? [])]).toEqual([before]);
    const second = await send('two');
    const events = await rooms.get(EventStore).many([first, second]);
    expect(events.get(second)?.event.prevEventIds).toEqual([first]);
    const heads = await test.database.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [
      roomId,
    ]);
    expect(heads).toEqual([{ event_id: second }]);
  });

  it('is nothing once the room is gone, whoever looked at it meanwhile', async () => {
    let goOn = (): void => {};
    const isRead = database.hold('current_state_events', new Promise((resolve) => (goOn = resolve)));
    let late: Promise<unknown> | undefined;
    await rooms.get(PurgeService).purgeRoom(roomId, async () => {
      late = snapshots.get(roomId);
      await isRead;
      expect(await snapshots.get(roomId)).toBeDefined();
      return true;
    });
    goOn();
    await late;
    expect(await snapshots.get(roomId)).toBeUndefined();
    await expect(send('into the void')).rejects.toMatchObject({ status: 403 });
    expect(await test.database.query('SELECT event_id FROM events WHERE room_id = ?', [roomId])).toEqual([]);
  });
});
