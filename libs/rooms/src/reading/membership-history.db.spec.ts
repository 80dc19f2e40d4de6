import { databaseMigrations } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { JoinService } from '../membership/join.service.js';
import { LeaveService } from '../membership/leave.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { MembershipHistory } from './membership-history.js';
import { MembershipReader } from './membership-reader.js';

eachDatabase('what a user’s memberships were', (open) => {
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  const bob = requesterOf('bob');
  let test: TestDatabase;
  let rooms: RoomsFixture;
  let history: MembershipHistory;
  let roomId: string;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    rooms = await buildRooms({ database: test.database, clock });
    history = rooms.get(MembershipHistory);
    ({ roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' }));
  });
  afterAll(() => rooms.close());

  const ownEvent = async (): Promise<{ eventId: string; streamOrdering: number }> => {
    const { eventId, streamOrdering } = (await rooms.get(MembershipReader).inRoom(bob.userId, roomId))!;
    return { eventId, streamOrdering };
  };
  const lastStay = async (): Promise<number | undefined> => (await history.lastStays(bob.userId, [roomId])).get(roomId);
  const end = async (upTo?: number): Promise<unknown> =>
    (await history.endsOfStays(bob.userId, [roomId], upTo)).get(roomId);

  it('a stay ends where its member leaves, and the next one has no end', async () => {
    expect([await lastStay(), await end()]).toEqual([undefined, undefined]);
    await rooms.get(JoinService).join(bob, roomId);
    expect([await lastStay(), await end()]).toEqual([Infinity, undefined]);
    await rooms.get(LeaveService).leave(bob, roomId);
    const leave = await ownEvent();
    expect([await lastStay(), await end()]).toEqual([leave.streamOrdering, leave]);
    await rooms.get(JoinService).join(bob, roomId);
    expect([await lastStay(), await end(), await end(leave.streamOrdering)]).toEqual([Infinity, undefined, leave]);
  });

  it('a stay ends where state resolution goes back to an older leave', async () => {
    const join = await ownEvent();
    const leave = (await history.at(bob.userId, [roomId], join.streamOrdering - 1)).get(roomId)!;
    expect(leave.membership).toBe('leave');
    const resolvedAt = join.streamOrdering + 1;
    await test.database.write(async (tx) => {
      await tx.run(
        `INSERT INTO current_state_delta_stream (stream_id, room_id, type, state_key, event_id, prev_event_id)
         VALUES (?, ?, 'm.room.member', ?, ?, ?)`,
        [resolvedAt, roomId, bob.userId, leave.eventId, join.eventId],
      );
      await tx.run(
        `UPDATE local_current_membership SET event_id = ?, membership = 'leave', event_stream_ordering = ?
         WHERE user_id = ? AND room_id = ?`,
        [leave.eventId, resolvedAt, bob.userId, roomId],
      );
    });
    const resolved = { eventId: leave.eventId, streamOrdering: resolvedAt };
    expect([await lastStay(), await end()]).toEqual([resolvedAt, resolved]);
    expect(await end(join.streamOrdering)).toBeUndefined();
  });
});
