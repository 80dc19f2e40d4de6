import { databaseMigrations } from '@rookery/database';
import { roomVersions } from '@rookery/events';
import { type JsonObject, MatrixError, parseEventFilter } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import type { CreateRoomRequest } from './creation/create-room.schema.js';
import { RoomCreation } from './creation/room-creation.service.js';
import { RoomDirectory } from './directory/directory.service.js';
import { RoomReadingService } from './history/room-reading.service.js';
import { JoinService } from './membership/join.service.js';
import { LeaveService } from './membership/leave.service.js';
import { MembershipService } from './membership/membership.service.js';
import { RoomForgetting } from './membership/room-forgetting.js';
import { roomsMigrations } from './migrations/index.js';
import { MembershipReader } from './reading/membership-reader.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from './rooms.fixture.js';
import { EventCreation } from './sending/event-creation.service.js';
import { RoomStateReader } from './state/room-state-reader.js';

/** Status and error code of a refusal, or 200. */
async function outcome(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return '200';
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return `${error.status} ${error.errcode}`;
  }
}

const everything = parseEventFilter({});
const backwards = { direction: 'b' as const, limit: 100, filter: everything };

eachDatabase(
  'rooms',
  (open) => {
    const clock = new FakeClock();
    let test: TestDatabase;
    let rooms: RoomsFixture;
    const alice = requesterOf('alice');
    const bob = requesterOf('bob');
    const carol = requesterOf('carol');

    const create = async (body: CreateRoomRequest = {}, requester = alice): Promise<string> =>
      (await rooms.get(RoomCreation).create(requester, body)).roomId;
    const say = (requester: typeof alice, roomId: string, body: string, txnId?: string) =>
      rooms
        .get(EventCreation)
        .send(requester, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } }, txnId);
    const stateOf = async (roomId: string, type: string, stateKey = ''): Promise<Record<string, unknown> | undefined> =>
      (await rooms.get(RoomStateReader).currentEvent(roomId, type, stateKey))?.event.content;
    const bodies = async (requester: typeof alice, roomId: string): Promise<unknown[]> => {
      const page = await rooms.get(RoomReadingService).messages(requester, roomId, backwards);
      const chunk = page['chunk'] as { type: string; content: { body?: string } }[];
      return chunk.filter((event) => event.type === 'm.room.message').map((event) => event.content.body);
    };

    beforeAll(async () => {
      test = await open(clock);
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
    });
    afterAll(() => rooms.close());

    it.each([...roomVersions])('makes a room of version %s in which two people talk', async (version) => {
      const roomId = await create({ room_version: version, preset: 'public_chat', name: 'Version test' });
      expect(roomId).toMatch(version === '12' ? /^![\w-]{43}$/ : /^!\w{18}:example\.org$/);
      await rooms.get(JoinService).join(bob, roomId);
      await say(alice, roomId, 'hello');
      await say(bob, roomId, 'hello yourself');
      expect(await bodies(bob, roomId)).toEqual(['hello yourself', 'hello']);
      expect(await stateOf(roomId, 'm.room.create')).toMatchObject({ room_version: version });
    });

    it('a new room has the state of its preset', async () => {
      const priv = await create();
      expect(await stateOf(priv, 'm.room.join_rules')).toEqual({ join_rule: 'invite' });
      expect(await stateOf(priv, 'm.room.guest_access')).toEqual({ guest_access: 'can_join' });
      expect(await outcome(rooms.get(JoinService).join(bob, priv))).toBe('403 M_FORBIDDEN');
      const trusted = await create({ preset: 'trusted_private_chat', invite: [bob.userId] });
      expect(await stateOf(trusted, 'm.room.create')).toMatchObject({ additional_creators: [bob.userId] });
      expect(await stateOf(trusted, 'm.room.power_levels')).toMatchObject({ users: {} });
      const old = await create({ preset: 'trusted_private_chat', invite: [bob.userId], room_version: '10' });
      expect(await stateOf(old, 'm.room.power_levels')).toMatchObject({
        users: { [alice.userId]: 100, [bob.userId]: 100 },
      });
      expect(await stateOf(old, 'm.room.create')).toMatchObject({ creator: alice.userId });
    });

    it('honors initial state, overrides, name and topic, and refuses what cannot be', async () => {
      const roomId = await create({
        name: 'A name',
        topic: 'A topic',
        power_level_content_override: { events_default: 10 },
        initial_state: [
          { type: 'm.room.history_visibility', content: { history_visibility: 'joined' } },
          { type: 'org.example.thing', state_key: 'key', content: { x: 1 } },
        ],
        creation_content: { 'm.federate': false, type: 'm.space' },
      });
      expect(await stateOf(roomId, 'm.room.name')).toEqual({ name: 'A name' });
      expect(await stateOf(roomId, 'm.room.topic')).toMatchObject({ topic: 'A topic' });
      expect(await stateOf(roomId, 'm.room.power_levels')).toMatchObject({ events_default: 10, ban: 50 });
      expect(await stateOf(roomId, 'm.room.history_visibility')).toEqual({ history_visibility: 'joined' });
      expect(await stateOf(roomId, 'org.example.thing', 'key')).toEqual({ x: 1 });
      expect(await stateOf(roomId, 'm.room.create')).toEqual({
        'm.federate': false,
        type: 'm.space',
        room_version: '12',
      });
      expect(await outcome(create({ power_level_content_override: { users: { [alice.userId]: 100 } } }))).toBe(
        '400 M_INVALID_ROOM_STATE',
      );
      expect(await outcome(create({ room_version: '99' }))).toBe('400 M_UNSUPPORTED_ROOM_VERSION');
      expect(await outcome(create({ invite: ['nobody'] }))).toBe('400 M_INVALID_PARAM');
      const unlisted = await create({ visibility: 'public' });
      expect(await stateOf(unlisted, 'm.room.join_rules')).toEqual({ join_rule: 'public' });
      expect(await rooms.get(RoomDirectory).isPublished(unlisted)).toBe(false);
    });

    it('gives an alias to one room only', async () => {
      await create({ room_alias_name: 'once' });
      expect(await outcome(create({ room_alias_name: 'once' }))).toBe('400 M_ROOM_IN_USE');
      expect(await outcome(create({ room_alias_name: 'a b' }))).toBe('400 M_INVALID_PARAM');
    });

    it('invites, joins, kicks, bans, unbans, leaves and forgets', async () => {
      const memberships = rooms.get(MembershipService);
      const roomId = await create();
      const current = () => rooms.get(MembershipReader).currentOf(roomId, bob.userId);
      expect(await outcome(memberships.kick(alice, roomId, bob.userId))).toBe('403 M_FORBIDDEN');
      await memberships.invite(alice, roomId, bob.userId);
      expect(await current()).toBe('invite');
      expect(await outcome(memberships.invite(carol, roomId, carol.userId))).toBe('403 M_FORBIDDEN');
      await rooms.get(JoinService).join(bob, roomId);
      expect(await current()).toBe('join');
      await rooms.get(JoinService).join(bob, roomId);
      expect(await outcome(rooms.get(RoomForgetting).forget(bob, roomId))).toBe('400 M_UNKNOWN');
      await memberships.kick(alice, roomId, bob.userId, { reason: 'test' });
      expect(await stateOf(roomId, 'm.room.member', bob.userId)).toEqual({ membership: 'leave', reason: 'test' });
      expect(await outcome(say(bob, roomId, 'still here?'))).toBe('403 M_FORBIDDEN');
      await memberships.ban(alice, roomId, bob.userId);
      expect(await outcome(rooms.get(JoinService).join(bob, roomId))).toBe('403 M_FORBIDDEN');
      await memberships.unban(alice, roomId, bob.userId);
      expect(await outcome(memberships.unban(alice, roomId, bob.userId))).toBe('403 M_FORBIDDEN');
      await rooms.get(LeaveService).leave(bob, roomId);
      await rooms.get(RoomForgetting).forget(bob, roomId);
      expect((await rooms.get(MembershipReader).inRoom(bob.userId, roomId))?.forgotten).toBe(true);
      expect(await outcome(rooms.get(RoomForgetting).forget(bob, '!nowhere:example.org'))).toBe('404 M_NOT_FOUND');
      expect(await outcome(rooms.get(LeaveService).leave(carol, roomId))).toBe('403 M_FORBIDDEN');
    });

    it('makes one event per transaction, within a process and over a restart', async () => {
      const roomId = await create();
      const [first, second] = await Promise.all([
        say(alice, roomId, 'once', 'txn1'),
        say(alice, roomId, 'once', 'txn1'),
      ]);
      expect(second.eventId).toBe(first.eventId);
      const again = await buildRooms({
        database: await test.reopen(clock),
        state: test.stateOptions && test.state,
        clock,
      });
      const request = { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'once' } };
      expect((await again.get(EventCreation).send(alice, request, 'txn1')).eventId).toBe(first.eventId);
      const other = await again.get(EventCreation).send({ ...alice, deviceId: 'OTHER' }, request, 'txn1');
      expect(other.eventId).not.toBe(first.eventId);
      await again.close();
    });

    it('keeps the order of many parallel senders in one chain', async () => {
      const roomId = await create({ preset: 'public_chat' });
      await rooms.get(JoinService).join(bob, roomId);
      const sent = await Promise.all(
        Array.from({ length: 60 }, (_, index) => say(index % 2 ? alice : bob, roomId, `${index}`)),
      );
      const orderings = sent.map((event) => event.streamOrdering);
      expect(orderings).toEqual([...orderings].sort((a, b) => a - b));
      expect((await bodies(alice, roomId)).reverse()).toEqual(Array.from({ length: 60 }, (_, index) => `${index}`));
      const heads = await test.database.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [
        roomId,
      ]);
      expect(heads).toEqual([{ event_id: sent.at(-1)!.eventId }]);
    });

    it('writes no state rows for messages', async () => {
      const roomId = await create();
      const count = () =>
        test.state.get<{ n: number }>('SELECT COUNT(*) AS n FROM state_groups_state WHERE room_id = ?', [roomId]);
      const before = await count();
      for (let i = 0; i < 5; i++) await say(alice, roomId, `${i}`);
      expect(await count()).toEqual(before);
    });

    it('reads nothing for a send in a warm room, and writes once for many', async () => {
      const roomId = await create();
      await say(alice, roomId, 'warm', 'w');
      const { database } = test;
      const counts = { reads: 0, writes: 0 };
      const { query, get, write } = database;
      database.query = (...args) => (counts.reads++, query.apply(database, args) as never);
      database.get = (...args) => (counts.reads++, get.apply(database, args) as never);
      database.write = (...args) => (counts.writes++, write.apply(database, args) as never);
      try {
        await say(alice, roomId, 'one', 'w1');
        expect(counts).toEqual({ reads: 0, writes: 1 });
        await Promise.all(Array.from({ length: 20 }, (_, index) => say(alice, roomId, `${index}`, `many${index}`)));
        expect(counts).toEqual({ reads: 0, writes: 2 });
      } finally {
        Object.assign(database, { query, get, write });
      }
    });

    it('a redaction empties the event that its sender may redact', async () => {
      const roomId = await create({ preset: 'public_chat' });
      await rooms.get(JoinService).join(bob, roomId);
      const sent = await say(alice, roomId, 'regret');
      const redact = (requester: typeof alice, redacts: string) =>
        rooms.get(EventCreation).send(requester, { roomId, type: 'm.room.redaction', content: {}, redacts });
      expect(await outcome(redact(bob, sent.eventId))).toBe('403 M_FORBIDDEN');
      const redaction = await redact(alice, sent.eventId);
      const event = await rooms.get(RoomReadingService).event(bob, roomId, sent.eventId);
      expect(event.content).toEqual({});
      expect(event.unsigned?.redacted_because?.event_id).toBe(redaction.eventId);
      const again = await buildRooms({
        database: await test.reopen(clock),
        state: test.stateOptions && test.state,
        clock,
      });
      expect((await again.get(RoomReadingService).event(bob, roomId, sent.eventId)).content).toEqual({});
      await again.close();
    });

    it('shows the transaction id to the sending device only', async () => {
      const roomId = await create();
      const sent = await say(alice, roomId, 'hello', 'mine');
      const read = (requester: typeof alice) => rooms.get(RoomReadingService).event(requester, roomId, sent.eventId);
      expect((await read(alice)).unsigned?.transaction_id).toBe('mine');
      expect((await read({ ...alice, deviceId: 'OTHER' })).unsigned).not.toHaveProperty('transaction_id');
    });

    it('pages through history in both directions without gaps', async () => {
      const roomId = await create();
      for (let i = 0; i < 25; i++) await say(alice, roomId, `${i}`);
      const walk = async (direction: 'f' | 'b'): Promise<string[]> => {
        const seen: string[] = [];
        let from: string | undefined;
        for (let page = 0; page < 20; page++) {
          const answer = await rooms.get(RoomReadingService).messages(alice, roomId, {
            direction,
            limit: 7,
            filter: parseEventFilter({ types: ['m.room.message'] }),
            from,
          });
          seen.push(...(answer['chunk'] as { content: { body: string } }[]).map((event) => event.content.body));
          from = answer['end'] as string | undefined;
          if (from === undefined) break;
        }
        return seen;
      };
      const expected = Array.from({ length: 25 }, (_, index) => `${index}`);
      expect(await walk('f')).toEqual(expected);
      expect(await walk('b')).toEqual(expected.reverse());
    });

    it('gives an event with its context', async () => {
      const roomId = await create();
      const sent = [];
      for (let i = 0; i < 7; i++) sent.push(await say(alice, roomId, `${i}`));
      const context = await rooms.get(RoomReadingService).context(alice, roomId, sent[3]!.eventId, 4, everything);
      const read = (key: string) =>
        (context[key] as { content: { body: string } }[]).map((event) => event.content.body);
      expect(read('events_before')).toEqual(['2', '1']);
      expect(read('events_after')).toEqual(['4', '5']);
      expect((context['state'] as unknown[]).length).toBeGreaterThan(5);
    });

    it('does not make state anew that is there already', async () => {
      const roomId = await create();
      const set = () =>
        rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.name', stateKey: '', content: { name: 'same' } });
      const first = await set();
      expect((await set()).eventId).toBe(first.eventId);
      // What cannot be compared is refused like any other content that cannot be an event.
      const content = JSON.parse('{"name":1e400}') as JsonObject;
      const refused = rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.name', stateKey: '', content });
      await expect(refused).rejects.toMatchObject({ status: 400, errcode: 'M_BAD_JSON' });
    });

    it('goes on after a restart with the same heads and state', async () => {
      const roomId = await create({ preset: 'public_chat' });
      await say(alice, roomId, 'before');
      const again = await buildRooms({
        database: await test.reopen(clock),
        state: test.stateOptions && test.state,
        clock,
      });
      await again.get(JoinService).join(bob, roomId);
      const request = { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'after' } };
      await again.get(EventCreation).send(bob, request);
      const page = await again.get(RoomReadingService).messages(bob, roomId, backwards);
      expect((page['chunk'] as { content: { body?: string } }[])[0]!.content.body).toBe('after');
      await again.close();
    });
  },
  stateApart,
);
