import { databaseMigrations } from '@rookery/database';
import { parseEventFilter } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { RoomHooks } from '../hooks.js';
import { JoinService } from '../membership/join.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';

eachDatabase(
  'rooms that are written at the same time',
  (open) => {
    const clock = new FakeClock();
    const alice = requesterOf('alice');
    const bob = requesterOf('bob');
    const transactions: string[] = [];
    /** Rooms whose events no hook lets through. */
    const broken = new Set<string>();
    let test: TestDatabase;
    let rooms: RoomsFixture;
    let roomIds: string[];

    const send = (roomId: string, body: string, txnId?: string): Promise<{ eventId: string; streamOrdering: number }> =>
      rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } }, txnId);
    const bodies = async (roomId: string): Promise<unknown[]> => {
      const how = { direction: 'b' as const, limit: 100, filter: parseEventFilter({ types: ['m.room.message'] }) };
      const page = await rooms.get(RoomReadingService).messages(alice, roomId, how);
      return (page['chunk'] as { content: { body?: string } }[]).map((event) => event.content.body).toReversed();
    };

    beforeAll(async () => {
      test = await open(clock, { onTransaction: ({ name, committed }) => committed && transactions.push(name) });
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
      rooms.get(RoomHooks).subscribe({
        inTransaction: async (_, { roomId }) => {
          if (broken.has(roomId)) throw new Error('no event of this room');
        },
      });
      const created = Array.from({ length: 20 }, () =>
        rooms.get(RoomCreation).create(alice, { preset: 'public_chat' }),
      );
      roomIds = (await Promise.all(created)).map(({ roomId }) => roomId);
    });
    afterAll(() => rooms.close());

    it('keeps everything in its order, in fewer transactions than there are rooms', async () => {
      transactions.length = 0;
      const sent = await Promise.all(
        ['one', 'two', 'three'].flatMap((body) =>
          roomIds.map(async (roomId) => ({ roomId, ...(await send(roomId, body)) })),
        ),
      );
      for (const roomId of roomIds) {
        expect(await bodies(roomId)).toEqual(['one', 'two', 'three']);
        const orderings = sent.filter((event) => event.roomId === roomId).map((event) => event.streamOrdering);
        expect(orderings).toEqual(orderings.toSorted((a, b) => a - b));
        const heads = await test.database.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [
          roomId,
        ]);
        expect(heads).toEqual([{ event_id: sent.findLast((event) => event.roomId === roomId)?.eventId }]);
      }
      expect(new Set(sent.map((event) => event.streamOrdering)).size).toBe(60);
      expect(transactions.filter((name) => name === 'persist_events').length).toBeLessThan(roomIds.length);
    });

    it('lets nobody pay for the room of another', async () => {
      const [bad] = roomIds as [string, ...string[]];
      broken.add(bad);
      const outcomes = await Promise.allSettled(roomIds.map((roomId) => send(roomId, 'four', 'txn')));
      expect(outcomes.map(({ status }) => status)).toEqual(['rejected', ...roomIds.slice(1).map(() => 'fulfilled')]);
      broken.clear();
      await send(bad, 'five', 'txn');
      await Promise.all(roomIds.slice(1).map((roomId) => send(roomId, 'four', 'txn')));
      expect(await bodies(bad)).toEqual(['one', 'two', 'three', 'five']);
      for (const roomId of roomIds.slice(1)) expect(await bodies(roomId)).toEqual(['one', 'two', 'three', 'four']);
    });

    it('writes the state of each room', async () => {
      await Promise.all(roomIds.map((roomId) => rooms.get(JoinService).join(bob, roomId)));
      await Promise.all(
        roomIds.map((roomId, n) =>
          rooms
            .get(EventCreation)
            .send(alice, { roomId, type: 'm.room.topic', stateKey: '', content: { topic: `${n}` } }),
        ),
      );
      for (const [n, roomId] of roomIds.entries()) {
        const reader = rooms.get(RoomStateReader);
        expect((await reader.currentEvent(roomId, 'm.room.topic', ''))?.event.content).toEqual({ topic: `${n}` });
        expect((await reader.currentEvent(roomId, 'm.room.member', bob.userId))?.event.content).toMatchObject({
          membership: 'join',
        });
        const figures = await test.database.get(
          `SELECT c.joined_members, c.current_state_events, s.topic FROM room_stats_current c
         JOIN room_stats_state s ON s.room_id = c.room_id WHERE c.room_id = ?`,
          [roomId],
        );
        const state = await test.database.query('SELECT 1 FROM current_state_events WHERE room_id = ?', [roomId]);
        expect(figures).toEqual({ joined_members: 2, current_state_events: state.length, topic: `${n}` });
      }
      const incomplete = await test.database.query('SELECT room_id FROM rooms WHERE has_auth_chain_index = FALSE');
      expect(incomplete).toEqual([]);
      const unplaced = await test.database.query(
        `SELECT s.event_id FROM state_events s LEFT JOIN event_auth_chains c ON c.event_id = s.event_id
       WHERE c.event_id IS NULL`,
      );
      expect(unplaced).toEqual([]);
    });
  },
  stateApart,
);
