import { databaseMigrations } from '@rookery/database';
import { type JsonObject, parseEventFilter } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountDataService, usersMigrations } from '@rookery/users';
import type { CreateRoomRequest } from '../creation/create-room.schema.js';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { RoomHooks } from '../hooks.js';
import { JoinService } from '../membership/join.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { LeaveService } from '../membership/leave.service.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { EventStore } from '../store/event-store.js';
import { PurgeService } from './purge.service.js';
import { RedactionCensor } from './redaction-censor.js';
import { Retention } from './retention.service.js';
import { RoomBlocking } from './room-blocking.service.js';
import { RoomRepair } from './room-repair.service.js';
import { RoomShutdown } from './room-shutdown.service.js';
import { RoomTasks } from './room-tasks.js';

eachDatabase('upkeep of rooms', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let rooms: RoomsFixture;
  const alice = requesterOf('alice');
  const bob = requesterOf('bob');

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    rooms = await buildRooms({ database: test.database, clock });
  });
  afterAll(() => rooms.close());

  const create = async (body: CreateRoomRequest = { preset: 'public_chat' }): Promise<string> =>
    (await rooms.get(RoomCreation).create(alice, body)).roomId;
  const say = (requester: typeof alice, roomId: string, body: string) =>
    rooms.get(EventCreation).send(requester, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } });
  const bodies = async (roomId: string): Promise<unknown[]> => {
    const filter = parseEventFilter({ types: ['m.room.message'] });
    const page = await rooms.get(RoomReadingService).messages(alice, roomId, { direction: 'f', limit: 500, filter });
    return (page['chunk'] as { content: { body: string } }[]).map((event) => event.content.body);
  };
  const kickedBy = async (taskId: string): Promise<string[]> =>
    ((await rooms.get(RoomTasks).find(taskId))?.result?.['kicked_users'] ?? []) as string[];
  const rowsOf = async (roomId: string): Promise<Record<string, number>> => {
    const counts: Record<string, number> = {};
    for (const table of [
      'events',
      'event_json',
      'event_edges',
      'state_groups',
      'state_groups_state',
      'current_state_events',
      'event_forward_extremities',
      'room_memberships',
      'rooms',
      'local_current_membership',
      'state_events',
      'event_auth',
    ]) {
      const row = await test.database.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table} WHERE room_id = ?`, [
        roomId,
      ]);
      counts[table] = row!.n;
    }
    return counts;
  };

  it('purges history up to an event, and the room goes on', async () => {
    const roomId = await create();
    const sent = [];
    for (let i = 0; i < 10; i++) sent.push(await say(alice, roomId, `message number ${i}`));
    const bytes = async (): Promise<number> =>
      (await test.database.get<{ n: number }>('SELECT SUM(LENGTH(json)) AS n FROM event_json WHERE room_id = ?', [
        roomId,
      ]))!.n;
    const before = await bytes();
    const id = await rooms.get(PurgeService).purgeHistory(roomId, { eventId: sent[7]!.eventId }, true);
    await rooms.get(RoomTasks).settled();
    expect(await rooms.get(RoomTasks).find(id)).toMatchObject({ status: 'complete', result: { deleted: 7 } });
    expect(await bodies(roomId)).toEqual(['message number 7', 'message number 8', 'message number 9']);
    expect(await bytes()).toBeLessThan(before);
    expect(await test.database.query("SELECT event_id FROM event_json WHERE json LIKE '%message number 3%'")).toEqual(
      [],
    );
    await say(alice, roomId, 'after');
    await rooms.get(JoinService).join(bob, roomId);
    expect((await rooms.get(RoomStateReader).currentIds(roomId)).size).toBeGreaterThan(5);
    const kept = await rooms.get(PurgeService).purgeHistory(roomId, { eventId: sent[9]!.eventId }, false);
    await rooms.get(RoomTasks).settled();
    expect(await rooms.get(RoomTasks).find(kept)).toMatchObject({ status: 'complete', result: { deleted: 2 } });
    expect(await bodies(roomId)).toEqual(['message number 9', 'after']);
    const here = await test.database.query("SELECT event_id FROM event_json WHERE json LIKE '%message number 7%'");
    expect(here).toEqual([{ event_id: sent[7]!.eventId }]);
    const elsewhere = await create();
    await expect(
      rooms.get(PurgeService).purgeHistory(elsewhere, { eventId: sent[9]!.eventId }, true),
    ).rejects.toMatchObject({ status: 400 });
    await expect(rooms.get(PurgeService).purgeHistory(roomId, {}, true)).rejects.toMatchObject({
      errcode: 'M_BAD_JSON',
    });
  });

  it('takes a room off the server: everybody out, nobody back, nothing left', async () => {
    const roomId = await create({ preset: 'public_chat', room_alias_name: 'doomed' });
    await rooms.get(JoinService).join(bob, roomId);
    await say(bob, roomId, 'last words');
    const accountData = rooms.get(AccountDataService);
    await accountData.setTag(bob.userId, roomId, 'u.doomed', {}, { requester: bob });
    const forgotten: string[] = [];
    rooms.get(RoomHooks).subscribe({ onForgotten: (userId, of) => void (of === roomId && forgotten.push(userId)) });
    const id = await rooms.get(RoomShutdown).start(roomId, {
      requesterId: '@admin:example.org',
      newRoomUserId: '@admin:example.org',
      block: true,
      purge: true,
      forcePurge: false,
    });
    await rooms.get(RoomTasks).settled();
    const task = await rooms.get(RoomTasks).find(id);
    expect(task).toMatchObject({
      status: 'complete',
      result: { failed_to_kick_users: [], local_aliases: ['#doomed:example.org'] },
    });
    expect([...(task!.result!['kicked_users'] as string[])].sort()).toEqual([alice.userId, bob.userId]);
    expect(forgotten.sort()).toEqual([alice.userId, bob.userId]);
    expect(await accountData.forRooms(bob.userId, [roomId])).toEqual([]);
    expect(Object.values(await rowsOf(roomId)).every((count) => count === 0)).toBe(true);
    const newRoomId = task!.result!['new_room_id'] as string;
    expect(await rooms.get(MembershipReader).currentOf(newRoomId, bob.userId)).toBe('join');
    await expect(say(bob, newRoomId, 'why?')).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await expect(rooms.get(JoinService).join(bob, roomId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await rooms.get(RoomBlocking).unblock(roomId);
    expect(await rooms.get(RoomBlocking).blockedBy(roomId)).toBeUndefined();
  });

  it.each(['is stopped', 'is killed'] as const)('knows whom it has moved when it %s in the middle', async (end) => {
    // Equal rooms of the same moment would be one.
    await clock.advance(1_000);
    const roomId = await create();
    const users = Array.from({ length: 30 }, (_, n) => requesterOf(`mover${n}`));
    for (const user of users) await rooms.get(JoinService).join(user, roomId);
    const dying = await buildRooms({ database: test.database, clock });
    const service = dying.get(LeaveService);
    const leave = service.leave.bind(service);
    let left = 0;
    let hanging = 0;
    let stopping: Promise<void> | undefined;
    service.leave = async (...request) => {
      // From then on nothing more is done by this process.
      if (end === 'is killed' && left >= 15) {
        hanging++;
        return new Promise(() => {});
      }
      const done = await leave(...request);
      if (++left >= 15 && end === 'is stopped') stopping ??= dying.get(RoomTasks).stop();
      return done;
    };
    const request = { requesterId: '@admin:example.org', newRoomUserId: '@admin:example.org' };
    const flags = { block: false, purge: false, forcePurge: false };
    const id = await dying.get(RoomShutdown).start(roomId, { ...request, ...flags });
    await eventually(() => left >= 15);
    if (end === 'is stopped') await stopping;
    else await eventually(async () => hanging === 8 && (await kickedBy(id)).length === left);
    expect((await kickedBy(id)).length).toBeLessThan(users.length);
    await rooms.get(RoomTasks).resume();
    await rooms.get(RoomTasks).settled();
    const task = await rooms.get(RoomTasks).find(id);
    expect(task).toMatchObject({ status: 'complete', result: { failed_to_kick_users: [] } });
    const everybody = [alice, ...users].map(({ userId }) => userId).sort();
    const joined = await rooms.get(MembershipReader).joinedUserIds([task!.result!['new_room_id'] as string]);
    expect([...joined.values()].flatMap((members) => [...members]).sort()).toEqual([
      '@admin:example.org',
      ...everybody,
    ]);
    expect((await kickedBy(id)).sort()).toEqual(everybody);
  });

  it('makes one room in place of another, and explains it once, however often it has to begin again', async () => {
    const other = await test.reopen();
    await other.close();
    const away = await other.write(() => Promise.resolve(new Error('open'))).catch((error: unknown) => error as Error);
    const persister = rooms.get(EventPersister);
    const { createRoom, send } = persister;
    let sends = 0;
    persister.send = async (draft) => {
      if (draft.type !== 'm.room.message' || ++sends > 2) return send.call(persister, draft);
      if (sends === 2) await send.call(persister, draft);
      throw away;
    };
    const roomId = await create();
    // The room is there, and whoever made it never gets to know.
    persister.createRoom = async (room) => {
      persister.createRoom = createRoom;
      await createRoom.call(persister, room);
      throw away;
    };
    const request = { requesterId: alice.userId, newRoomUserId: '@admin:example.org', newRoomName: 'Instead' };
    const options = { block: false, purge: false, forcePurge: false };
    const id = await rooms.get(RoomShutdown).start(roomId, { ...request, ...options });
    await eventually(async () => {
      await clock.advance(10_000);
      return (await rooms.get(RoomTasks).find(id))?.status === 'complete';
    });
    persister.send = send;
    const made = await test.database.query<{ room_id: string }>(
      "SELECT DISTINCT room_id FROM event_json WHERE json LIKE '%Instead%'",
    );
    const task = await rooms.get(RoomTasks).find(id);
    expect(made).toEqual([{ room_id: task?.result?.['new_room_id'] }]);
    const said = "SELECT 1 AS x FROM events WHERE room_id = ? AND type = 'm.room.message'";
    expect(await test.database.query(said, [made[0]?.room_id ?? ''])).toHaveLength(1);
  });

  it('goes on with unfinished work after a restart', async () => {
    const roomId = await create();
    await say(alice, roomId, 'x');
    await test.database.write((tx) =>
      tx.run(
        "INSERT INTO scheduled_tasks (id, action, status, timestamp, resource_id, params) VALUES ('left', 'purge_room', 'active', 0, ?, '{}')",
        [roomId],
      ),
    );
    const again = await buildRooms({ database: await test.reopen(clock), clock });
    await again.get(RoomTasks).settled();
    expect((await rowsOf(roomId))['events']).toBe(0);
    await again.close();
  });

  it('makes redactions final after their time', async () => {
    const roomId = await create();
    const sent = await say(alice, roomId, 'a secret');
    await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.redaction', content: {}, redacts: sent.eventId });
    const stored = async (): Promise<boolean> =>
      (await test.database.query("SELECT 1 AS x FROM event_json WHERE json LIKE '%a secret%'")).length > 0;
    await rooms.get(RedactionCensor).run();
    expect(await stored()).toBe(true);
    await clock.jump(8 * 24 * 3_600_000);
    await rooms.get(RedactionCensor).run();
    expect(await stored()).toBe(false);
    expect((await rooms.get(RoomReadingService).event(alice, roomId, sent.eventId)).unsigned).toHaveProperty(
      'redacted_because',
    );
  });

  it('remembers nothing of what it may have deleted, whatever is said of the commit', async () => {
    const database = await test.reopen(clock);
    const settings = { enable_ephemeral_messages: true, redaction_retention_period: '0s' };
    const again = await buildRooms({ database, clock, settings });
    const { write } = database;
    const events = again.get(EventStore);
    const send = async (roomId: string, content: JsonObject): Promise<string> =>
      (await again.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content })).eventId;
    /** As when the connection breaks behind the commit. */
    const unanswered = async (name: string, work: () => Promise<unknown>): Promise<void> => {
      database.write = async (fn, options) => {
        const result = await write.call(database, fn, options);
        if (options?.name === name) throw new Error('Connection terminated unexpectedly');
        return result as Awaited<ReturnType<typeof fn>>;
      };
      await work().catch(() => undefined);
      database.write = write;
    };
    const roomId = await create();
    const old = await send(roomId, { body: 'old' });
    await clock.advance(10);
    const due = await send(roomId, { body: 'due', 'org.matrix.self_destruct_after': clock.nowMs() + 10 });
    const secret = await send(roomId, { body: 'secret' });
    await again.get(EventCreation).send(alice, { roomId, type: 'm.room.redaction', content: {}, redacts: secret });
    await events.many([old, due, secret]);
    expect([old, due, secret].map((id) => events.peek(id) !== undefined)).toEqual([true, true, true]);
    await unanswered('censor_redactions', () => again.get(RedactionCensor).run());
    expect(events.peek(secret)).toBeUndefined();
    await unanswered('purge_events', () => again.get(PurgeService).purgeOlder(roomId, clock.nowMs() - 5));
    expect(await events.one(old)).toBeUndefined();
    await unanswered('expire_messages', async () => {
      await clock.advance(60_000);
      await eventually(async () => {
        const row = await test.database.get<{ json: string }>('SELECT json FROM event_json WHERE event_id = ?', [due]);
        return !row?.json.includes('due');
      });
    });
    await eventually(async () => events.peek(due) === undefined);
    expect(events.peek(due)).toBeUndefined();
    await again.close();
  });

  it('puts somebody in charge, in old and new room versions', async () => {
    for (const version of ['11', '12']) {
      const roomId = await create({ room_version: version });
      await rooms.get(RoomRepair).makeAdmin(roomId, bob.userId);
      expect(await rooms.get(MembershipReader).currentOf(roomId, bob.userId)).toBe('invite');
      await rooms.get(JoinService).join(bob, roomId);
      await rooms
        .get(EventCreation)
        .send(bob, { roomId, type: 'm.room.name', stateKey: '', content: { name: 'Mine' } });
      expect(await rooms.get(RoomRepair).dropExtremities(roomId)).toBe(0);
    }
  });

  it('purges what has outlived the policy of its room, within the bounds of the server', async () => {
    const again = await buildRooms({
      database: await test.reopen(clock),
      clock,
      settings: { retention: { enabled: true, allowed_lifetime_min: '1d' } },
    });
    const roomId = await create();
    const content = { max_lifetime: 1000 };
    await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.retention', stateKey: '', content });
    const unlimited = await create();
    await say(alice, roomId, 'old');
    await say(alice, unlimited, 'old');
    await clock.jump(23 * 3_600_000);
    await say(alice, roomId, 'young');
    await say(alice, roomId, 'youngest');
    await again.get(Retention).run();
    expect(await bodies(roomId)).toEqual(['old', 'young', 'youngest']);
    await clock.jump(2 * 3_600_000);
    await again.get(Retention).run();
    expect(await bodies(roomId)).toEqual(['young', 'youngest']);
    expect(await bodies(unlimited)).toEqual(['old']);
    await again.close();
  });

  it('purges within an hour of a start, however often it is started', async () => {
    const roomId = await create();
    const content = { max_lifetime: 1000 };
    await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.retention', stateKey: '', content });
    await say(alice, roomId, 'old');
    await clock.jump(25 * 3_600_000);
    await say(alice, roomId, 'young');
    await say(alice, roomId, 'youngest');
    const settings = { retention: { enabled: true, allowed_lifetime_min: '1d' } };
    const again = await buildRooms({ database: await test.reopen(clock), clock, settings });
    await clock.advance(3_600_000);
    await eventually(async () => !(await bodies(roomId)).includes('old'));
    expect(await bodies(roomId)).toEqual(['young', 'youngest']);
    await again.close();
  });

  it('refuses to delete a room twice at a time, and to let anybody in meanwhile', async () => {
    const roomId = await create();
    await test.database.write((tx) =>
      tx.run(
        "INSERT INTO scheduled_tasks (id, action, status, timestamp, resource_id) VALUES ('one', 'shutdown_and_purge_room', 'active', 0, ?)",
        [roomId],
      ),
    );
    const request = { requesterId: '@admin:example.org', block: false, purge: true, forcePurge: false };
    await expect(rooms.get(RoomShutdown).start(roomId, request)).rejects.toMatchObject({ status: 400 });
    const refused = { status: 403, errcode: 'M_FORBIDDEN' };
    await expect(rooms.get(JoinService).join(bob, roomId)).rejects.toMatchObject(refused);
    await expect(rooms.get(JoinService).knock(bob, roomId)).rejects.toMatchObject(refused);
    await test.database.write((tx) => tx.run("UPDATE scheduled_tasks SET status = 'failed' WHERE id = 'one'"));
    await rooms.get(JoinService).join(bob, roomId);
  });

  it('deletes a room once when it is asked twice at the same moment', async () => {
    const roomId = await create();
    const request = { requesterId: '@admin:example.org', block: false, purge: true, forcePurge: false };
    const started = await Promise.allSettled([1, 2].map(() => rooms.get(RoomShutdown).start(roomId, request)));
    expect(started.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    await rooms.get(RoomTasks).settled();
    expect(await rooms.get(RoomTasks).ofRoom(roomId)).toMatchObject([{ status: 'complete' }]);
  });

  it.each([
    [1, 'complete'],
    [Infinity, 'failed'],
  ])('does not purge a room under somebody who returns %d times: %s', async (times, expected) => {
    const roomId = await create();
    await rooms.get(JoinService).join(bob, roomId);
    const service = rooms.get(LeaveService);
    const leave = service.leave.bind(service);
    let returned = 0;
    service.leave = async (...request) => {
      if (request[0].userId !== bob.userId || request[1] !== roomId) return leave(...request);
      if (returned === 0) await leave(...request);
      const membership = returned++ < times ? 'join' : 'leave';
      await test.database.write((tx) =>
        tx.run('UPDATE local_current_membership SET membership = ? WHERE room_id = ? AND user_id = ?', [
          ...[membership, roomId, bob.userId],
        ]),
      );
    };
    const request = { requesterId: '@admin:example.org', block: false, purge: true, forcePurge: false };
    const id = await rooms.get(RoomShutdown).start(roomId, request);
    await rooms.get(RoomTasks).settled();
    service.leave = leave;
    const task = await rooms.get(RoomTasks).find(id);
    expect(task?.status).toBe(expected);
    expect((await rowsOf(roomId))['rooms']).toBe(expected === 'complete' ? 0 : 1);
    if (expected === 'failed') expect(task?.result).toMatchObject({ failed_to_kick_users: [bob.userId] });
  });
});
