import { databaseMigrations } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { UserRedactions } from './user-redactions.service.js';

eachDatabase('redactions of what a user said', (open) => {
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  let test: TestDatabase;
  let rooms: RoomsFixture;
  /** What a database says that is away. */
  let away: Error;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const other = await test.reopen();
    await other.close();
    away = await other.write(() => Promise.resolve(new Error('open'))).catch((error: unknown) => error as Error);
    rooms = await buildRooms({ database: test.database, clock });
  });
  afterAll(() => rooms.close());

  const say = async (roomId: string, body: string): Promise<string> => {
    const content = { msgtype: 'm.text', body };
    return (await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content })).eventId;
  };

  it('are no more than were asked for, and tell all that failed, also where the database is away again and again', async () => {
    const roomIds: string[] = [];
    const said = new Map<string, string[]>();
    for (let n = 0; n < 3; n++) {
      await clock.advance(1_000);
      const { roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' });
      roomIds.push(roomId);
      said.set(roomId, []);
      for (let m = 0; m < 8; m++) said.get(roomId)!.push(await say(roomId, `${m}`));
    }
    const closed = roomIds.toSorted()[1]!;
    const persister = rooms.get(EventPersister);
    const send = persister.send.bind(persister);
    jest.spyOn(persister, 'send').mockImplementation(async (draft) => {
      if (draft.type !== 'm.room.redaction') return send(draft);
      if (draft.roomId === closed) throw MatrixError.forbidden('Not here');
      await send(draft);
      // What was done is durable, but its answer was lost; and people go on talking.
      await say(draft.roomId, 'more');
      throw away;
    });
    const redactions = rooms.get(UserRedactions);
    const id = await redactions.start({
      userId: alice.userId,
      roomIds: [...roomIds, ...roomIds],
      sender: alice.userId,
      limit: 3,
    });
    const task = await eventually(async () => {
      await clock.advance(60_000);
      const found = await redactions.find(id);
      return found?.status !== 'active' && found?.status !== 'scheduled' && found;
    });
    expect(task.status).toBe('complete');
    const failed = said.get(closed)!.slice(-3);
    expect(task.result).toEqual({
      failed_redactions: Object.fromEntries(failed.map((eventId) => [eventId, 'Not here'])),
    });
    const redacted = await test.database.query<{ redacts: string }>('SELECT redacts FROM redactions');
    const wanted = roomIds.filter((roomId) => roomId !== closed).flatMap((roomId) => said.get(roomId)!.slice(-3));
    expect(redacted.map(({ redacts }) => redacts).sort()).toEqual(wanted.sort());
  });
});
