import { statSync } from 'node:fs';
import Sqlite from 'better-sqlite3';
import { databaseMigrations, type SqliteOptions } from '@rookery/database';
import { parseEventFilter } from '@rookery/matrix-types';
import { replicationMigrations, Roles } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, SeededIds, type TestDatabase } from '@rookery/testing';
import { AccountDataService, usersMigrations } from '@rookery/users';
import type { CreateRoomRequest } from '../creation/create-room.schema.js';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { AutoAcceptInvites } from '../accounts/auto-accept.service.js';
import { JoinService } from '../membership/join.service.js';
import { LeaveService } from '../membership/leave.service.js';
import { RoomForgetting } from '../membership/room-forgetting.js';
import { roomsMigrations } from '../migrations/index.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { DummyEvents } from './dummy-events.service.js';
import { ForgottenRooms } from './forgotten-rooms.service.js';
import { PurgeService } from './purge.service.js';
import { Retention } from './retention.service.js';
import { RoomTasks, TaskInterrupted } from './room-tasks.js';
import { SpaceReclaimer } from './space-reclaimer.js';

const hourMs = 3_600_000;

eachDatabase('housekeeping', (open) => {
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  const bob = requesterOf('bob');
  let test: TestDatabase;
  let rooms: RoomsFixture;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    for (const name of [alice.userId, bob.userId, '@gone:example.org']) {
      await test.database.write((tx) =>
        tx.run('INSERT INTO users (name, creation_ts, deactivated) VALUES (?, 0, ?)', [
          name,
          +name.startsWith('@gone'),
        ]),
      );
    }
    rooms = await build();
  });
  afterAll(() => rooms.close());

  const build = (): Promise<RoomsFixture> =>
    buildRooms({
      database: test.database,
      clock,
      settings: {
        forgotten_room_retention_period: '7h',
        dummy_events_threshold: 3,
        retention: { enabled: true, default_policy: { max_lifetime: '30h' }, allowed_lifetime_max: '20h' },
        auto_accept_invites: { enabled: true, only_for_direct_messages: true, only_from_local_users: true },
      },
    });

  const create = async (body: CreateRoomRequest = { preset: 'public_chat' }): Promise<string> => {
    await clock.advance(1000);
    return (await rooms.get(RoomCreation).create(alice, body)).roomId;
  };
  const say = (roomId: string, body: string, requester = alice) =>
    rooms.get(EventCreation).send(requester, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } });
  const exists = async (roomId: string): Promise<boolean> =>
    (await test.database.get('SELECT 1 AS x FROM rooms WHERE room_id = ?', [roomId])) !== undefined;
  const types = async (roomId: string): Promise<string[]> => {
    const filter = parseEventFilter({});
    const page = await rooms.get(RoomReadingService).messages(alice, roomId, { direction: 'f', limit: 500, filter });
    return (page['chunk'] as { type: string }[]).map((event) => event.type);
  };

  /** Who is in a room, asked for by the place of its last event. */
  const membersNow = async (roomId: string, filter = parseEventFilter({})): Promise<unknown> => {
    const reading = rooms.get(RoomReadingService);
    const { start } = await reading.messages(alice, roomId, { direction: 'b', limit: 1, filter });
    return (await reading.members(alice, roomId, { at: start as string })).length;
  };

  it('forgets tasks that were finished a week ago', async () => {
    const tasks = rooms.get(RoomTasks);
    tasks.define('nothing', () => Promise.resolve({}));
    const [old, recent] = [await tasks.schedule('nothing', '!a:x', {}), await tasks.schedule('nothing', '!b:x', {})];
    await tasks.settled();
    const weekMs = 7 * 24 * hourMs;
    await test.database.write((tx) =>
      tx.run('UPDATE scheduled_tasks SET timestamp = timestamp - ? WHERE id = ?', [weekMs, old]),
    );
    await eventually(async () => {
      // The hour begins when what was done at the start is done.
      await clock.advance(0.1 * hourMs);
      return (await tasks.find(old)) === undefined;
    });
    expect(await tasks.find(recent)).toMatchObject({ status: 'complete' });
  });

  it('deletes a room a while after the last of its users has forgotten it', async () => {
    const { get } = rooms;
    const forgotten = await create();
    const kept = await create();
    const returned = await create();
    for (const roomId of [forgotten, kept, returned]) await get(JoinService).join(bob, roomId);
    for (const roomId of [forgotten, kept, returned]) {
      await get(LeaveService).leave(alice, roomId);
      await get(RoomForgetting).forget(alice, roomId);
    }
    for (const roomId of [forgotten, returned]) {
      await get(LeaveService).leave(bob, roomId);
      await get(RoomForgetting).forget(bob, roomId);
    }
    await clock.advance(6 * hourMs);
    await get(JoinService)
      .join(bob, returned)
      .catch(() => undefined);
    await test.database.write((tx) =>
      tx.run('UPDATE local_current_membership SET forgotten = 0 WHERE room_id = ?', [returned]),
    );
    await get(ForgottenRooms).run();
    expect(await exists(forgotten)).toBe(true);
    await clock.advance(1.1 * hourMs);
    // The first may be one that the clock has begun before.
    await get(ForgottenRooms).run();
    await get(ForgottenRooms).run();
    expect([await exists(forgotten), await exists(kept), await exists(returned)]).toEqual([false, true, true]);
    expect(await test.database.query('SELECT room_id FROM forgotten_rooms')).toEqual([]);
  });

  it('ends between two steps of deleting a room when the server stops', async () => {
    const roomId = await create();
    const ending = new AbortController();
    const purging = rooms.get(PurgeService).purgeRoom(
      roomId,
      async () => {
        ending.abort();
        return true;
      },
      ending.signal,
    );
    await expect(purging).rejects.toThrow(TaskInterrupted);
    expect(await exists(roomId)).toBe(true);
    expect(await rooms.get(PurgeService).purgeRoom(roomId)).toBe(true);
    expect(await exists(roomId)).toBe(false);
  });

  it('joins heads that have piled up, by events that clients do not see', async () => {
    const roomId = await create();
    const heads = async (): Promise<number> =>
      (await test.database.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [roomId])).length;
    const sent: string[] = [];
    for (let i = 0; i < 25; i++) sent.push((await say(roomId, `branch ${i}`)).eventId);
    const pileUp = (count: number): Promise<void> =>
      test.database.write(async (tx) => {
        await tx.run('DELETE FROM event_forward_extremities WHERE room_id = ?', [roomId]);
        await tx.insertMany(
          'event_forward_extremities',
          ['event_id', 'room_id'],
          sent.slice(0, count).map((id) => [id, roomId]),
        );
      });
    await pileUp(3);
    await rooms.close();
    rooms = await build();
    await rooms.get(DummyEvents).run();
    expect(await heads()).toBe(3);
    await rooms.close();
    await pileUp(25);
    rooms = await build();
    await rooms.get(DummyEvents).run();
    expect(await heads()).toBe(1);
    const stored = await test.database.query(
      "SELECT event_id FROM events WHERE room_id = ? AND type = 'org.matrix.dummy_event'",
      [roomId],
    );
    expect(stored.length).toBeGreaterThanOrEqual(2);
    expect(await types(roomId)).not.toContain('org.matrix.dummy_event');
    const [dummy] = stored as { event_id: string }[];
    await expect(rooms.get(RoomReadingService).event(alice, roomId, dummy!.event_id)).rejects.toMatchObject({
      status: 404,
    });
    expect(await membersNow(roomId)).toBe(1);
    await say(roomId, 'goes on');
  });

  it('hides what has outlived its policy before it is purged; state stays', async () => {
    const roomId = await create();
    const usual = await create();
    const setPolicy = (maxLifetime: number) =>
      rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.retention', stateKey: '', content: { max_lifetime: maxLifetime } });
    const messages = async (id: string): Promise<number> =>
      (await types(id)).filter((type) => type === 'm.room.message').length;
    const old = await say(roomId, 'old');
    await say(usual, 'old');
    await clock.advance(2 * hourMs);
    await say(roomId, 'young');
    expect(await messages(roomId)).toBe(2);
    await setPolicy(hourMs);
    expect(await messages(roomId)).toBe(1);
    expect(await types(roomId)).toContain('m.room.create');
    await expect(rooms.get(RoomReadingService).event(alice, roomId, old.eventId)).rejects.toMatchObject({
      status: 404,
    });
    await setPolicy(100 * hourMs);
    expect(await messages(roomId)).toBe(2);
    await clock.advance(19 * hourMs);
    // 20 hours at most for a policy of a room, 30 hours where there is none.
    expect([await messages(roomId), await messages(usual)]).toEqual([1, 1]);
    await clock.advance(10 * hourMs);
    expect([await messages(roomId), await messages(usual)]).toEqual([0, 0]);
    expect(await membersNow(usual)).toBe(1);
    const stored = async (): Promise<number> =>
      (await test.database.query("SELECT event_id FROM events WHERE room_id = ? AND type = 'm.room.message'", [usual]))
        .length;
    await rooms.get(Retention).run(0, 20 * hourMs);
    expect(await stored()).toBe(1);
    await say(usual, 'a head is never purged');
    await rooms.get(Retention).run(20 * hourMs);
    expect(await stored()).toBe(1);
  });

  it('accepts direct invites of local users for whom they are meant', async () => {
    await rooms.get(Roles).start();
    const accept = rooms.get(AutoAcceptInvites);
    const membershipOf = async (userId: string, roomId: string): Promise<string | undefined> =>
      (await rooms.get(MembershipReader).inRoom(userId, roomId))?.membership;
    const direct = await create({ preset: 'private_chat', is_direct: true, invite: [bob.userId, '@gone:example.org'] });
    const group = await create({ preset: 'private_chat', invite: [bob.userId] });
    await accept.settled();
    expect(await membershipOf(bob.userId, direct)).toBe('join');
    expect(await membershipOf('@gone:example.org', direct)).toBe('invite');
    expect(await membershipOf(bob.userId, group)).toBe('invite');
    const directRooms = async (): Promise<unknown> =>
      (await rooms.get(AccountDataService).find(bob.userId, undefined, 'm.direct'))?.[alice.userId];
    expect(await directRooms()).toEqual([direct]);
    const body: CreateRoomRequest = { preset: 'private_chat', is_direct: true, invite: [bob.userId] };
    const more = await Promise.all(Array.from({ length: 8 }, () => rooms.get(RoomCreation).create(alice, body)));
    await accept.settled();
    // All at once, and none is lost.
    expect(new Set((await directRooms()) as string[])).toEqual(new Set([direct, ...more.map(({ roomId }) => roomId)]));

    // It goes, and comes back when others have been invited: those who have waited for long are left to themselves.
    await rooms.get(Roles).stop();
    const old = await create({ preset: 'private_chat', is_direct: true, invite: [bob.userId] });
    await clock.advance(2 * hourMs);
    const missed = await create({ preset: 'private_chat', is_direct: true, invite: [bob.userId] });
    await rooms.close();
    rooms = await build();
    await rooms.get(Roles).start();
    await rooms.get(AutoAcceptInvites).settled();
    expect([await membershipOf(bob.userId, old), await membershipOf(bob.userId, missed)]).toEqual(['invite', 'join']);
    await rooms.get(Roles).stop();
  });

  it('accepts an invite after the next start where a stop came in between', async () => {
    await rooms.close();
    rooms = await build();
    await rooms.get(Roles).start();
    const cut = Promise.withResolvers<never>();
    let isUnderWay = false;
    rooms.get(JoinService).join = () => {
      isUnderWay = true;
      return cut.promise;
    };
    const roomId = await create({ preset: 'private_chat', is_direct: true, invite: [bob.userId] });
    void rooms.get(AutoAcceptInvites).settled();
    await eventually(() => isUnderWay, 20_000);
    await rooms.get(Roles).stop();
    cut.reject(new Error('The server stops'));
    await rooms.close();
    rooms = await build();
    await rooms.get(Roles).start();
    await rooms.get(AutoAcceptInvites).settled();
    expect((await rooms.get(MembershipReader).inRoom(bob.userId, roomId))?.membership).toBe('join');
    await rooms.get(Roles).stop();
  });

  it('makes the database smaller on disk when a room is purged', async () => {
    const bytes = async (): Promise<number> => {
      if (test.database.dialect.name === 'sqlite') {
        const { path } = test.options as SqliteOptions;
        // What a full write-ahead log brings about by itself, later.
        const file = new Sqlite(path);
        file.pragma('wal_checkpoint(PASSIVE)');
        file.close();
        return statSync(path).size;
      }
      // What autovacuum does by itself, later.
      await test.database.query('VACUUM event_json');
      const row = await test.database.get<{ size: number }>("SELECT pg_total_relation_size('event_json') AS size");
      return row!.size;
    };
    const random = new SeededIds(1);
    const roomId = await create();
    await bytes();
    for (let i = 0; i < 20; i++) {
      await Promise.all(Array.from({ length: 10 }, () => say(roomId, random.bytes(20_000).toString('base64'))));
    }
    const reclaimer = rooms.get(SpaceReclaimer);
    const reclaim = async (): Promise<void> => {
      let done = false;
      const running = reclaimer.run().finally(() => (done = true));
      while (!done) await clock.advance(20);
      await running;
    };
    await reclaim();
    const before = await bytes();
    await rooms.get(PurgeService).purgeRoom(roomId);
    await reclaim();
    // Whoever reads or analyzes at the moment keeps what is gone from being cut off.
    const after = await eventually(async () => {
      const now = await bytes();
      return now < before / 2 && now;
    });
    expect(before - after).toBeGreaterThan(3_000_000);
  });
});
