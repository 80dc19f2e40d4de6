import { databaseMigrations, type Tx } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { stateKeyOf } from '@rookery/state-res';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { EventStore } from '../store/event-store.js';
import { applied, RemoteServer, zoe } from '../pipeline/remote-server.fixture.js';
import type { SentEvent } from '../model/stored-event.js';
import { ReaderStates } from '../reading/reader-states.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { deleteEvents } from './purge.query.js';
import { PurgeService } from './purge.service.js';
import { RedactionCensor } from './redaction-censor.js';
import { RoomTasks } from './room-tasks.js';
import { RoomRepair } from './room-repair.service.js';

const dayMs = 86_400_000;

eachDatabase(
  'upkeep of rooms that other servers are in',
  (open) => {
    const clock = new FakeClock();
    let test: TestDatabase;
    let rooms: RoomsFixture;
    const alice = requesterOf('alice');

    beforeAll(async () => {
      test = await open(clock);
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
    });
    afterAll(() => rooms.close());

    const receive = async (...events: RoomEvent[]): Promise<string[]> => {
      const given = events.map((event) => ({ event }));
      return (await rooms.get(EventPersister).receive(events[0]!.roomId, given)).map((verdict) => verdict.kind);
    };
    /** A room of alice's that zoe has joined, and who may do something there. */
    const shared = async () => {
      const { roomId } = await rooms.get(RoomCreation).create(alice, {
        room_version: '11',
        preset: 'public_chat',
        power_level_content_override: { users: { [alice.userId]: 100, [zoe]: 60 } },
      });
      const server = new RemoteServer('11', roomId);
      const current = await rooms.get(RoomStateReader).current(roomId);
      const before = new Map(current.map(({ event }) => [stateKeyOf(event.type, event.stateKey!), event]));
      const join = server.make(
        { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join' } },
        await headsOf(roomId),
        before,
      );
      expect(await receive(join)).toEqual(['accepted']);
      return { roomId, server, state: applied(before, join), head: join };
    };
    const headsOf = async (roomId: string): Promise<RoomEvent[]> => {
      const rows = await test.database.query<{ event_id: string }>(
        'SELECT event_id FROM event_forward_extremities WHERE room_id = ?',
        [roomId],
      );
      return (await rooms.get(EventStore).inOrder(rows.map((row) => row.event_id))).map(({ event }) => event);
    };

    it('purges nothing that is younger because somebody claims a great depth', async () => {
      const { roomId, server, state, head } = await shared();
      const say = (body: string, prev: RoomEvent, depth?: number): RoomEvent =>
        server.make({ type: 'm.room.message', sender: zoe, content: { body }, ...(depth && { depth }) }, [prev], state);
      const old = say('old', head);
      const deep = say('deep', old, Number.MAX_SAFE_INTEGER);
      expect(await receive(old, deep)).toEqual(['accepted', 'accepted']);
      const ts = clock.nowMs();
      await clock.jump(dayMs);
      const young = say('young', old);
      const youngest = say('youngest', young);
      expect(await receive(young, youngest)).toEqual(['accepted', 'accepted']);
      expect(await rooms.get(PurgeService).purgeOlder(roomId, ts)).toBe(1);
      const left = await test.database.query<{ event_id: string }>(
        "SELECT event_id FROM events WHERE room_id = ? AND type = 'm.room.message' ORDER BY stream_ordering",
        [roomId],
      );
      expect(left.map((row) => row.event_id)).toEqual([deep, young, youngest].map((event) => event.eventId));
    });

    it('ends threads with the newest reply that is left', async () => {
      const { roomId, server, state, head } = await shared();
      const message = { roomId, type: 'm.room.message' };
      const own = (content: JsonObject): Promise<SentEvent> =>
        rooms.get(EventCreation).send(alice, { ...message, content });
      const [root, other] = [await own({ body: 'root' }), await own({ body: 'another root' })];
      const inThread = ({ eventId }: SentEvent, body: string): JsonObject => ({
        ...{ body, 'm.relates_to': { rel_type: 'm.thread', event_id: eventId } },
      });
      let prev = head;
      for (const { eventId } of [root, other]) {
        const content = inThread({ eventId } as SentEvent, 'foreign');
        prev = server.make({ type: 'm.room.message', sender: zoe, content }, [prev], state);
        expect(await receive(prev)).toEqual(['accepted']);
      }
      const last = await own({ body: 'last' });
      const kept = await own(inThread(other, 'own'));
      const id = await rooms.get(PurgeService).purgeHistory(roomId, { eventId: last.eventId }, false);
      await rooms.get(RoomTasks).settled();
      expect(await rooms.get(RoomTasks).find(id)).toMatchObject({ status: 'complete', result: { deleted: 4 } });
      const threads = 'SELECT thread_id, latest_event_id FROM threads WHERE room_id = ?';
      expect(await test.database.query(threads, [roomId])).toEqual([
        { thread_id: other.eventId, latest_event_id: kept.eventId },
      ]);
      const repliers = 'SELECT user_id, replies, latest_event_id FROM thread_repliers WHERE room_id = ?';
      expect(await test.database.query(repliers, [roomId])).toEqual([
        { user_id: alice.userId, replies: 1, latest_event_id: kept.eventId },
      ]);
    });

    it('takes in again what it had set aside, and counts it once', async () => {
      const { roomId, server, state, head } = await shared();
      const own = async (type: string, content: JsonObject, stateKey?: string): Promise<RoomEvent> => {
        const { eventId } = await rooms.get(EventCreation).send(alice, { roomId, type, content, stateKey });
        return (await rooms.get(EventStore).one(eventId))!.event;
      };
      const message = 'm.room.message';
      const topic = await own('m.room.topic', { topic: 'redacted' }, '');
      const root = await own(message, { body: 'root' });
      const reply = await own(message, { body: 'a', 'm.relates_to': { rel_type: 'm.thread', event_id: root.eventId } });
      const redaction = await own('m.room.redaction', { redacts: topic.eventId });
      const unknown = server.make({ type: message, sender: zoe }, [head], state);
      // It came by way of another server already.
      const stray = server.make({ type: message, sender: alice.userId }, [unknown], state);
      const past = rooms.get(EventPersister);
      await past.backfill(roomId, [stray], { after: head.eventId });
      const last = await own(message, { body: 'last' });
      const shown = async (): Promise<string[]> => [
        ...(await rooms.get(ReaderStates).at(alice.userId, [root.eventId, stray.eventId])).keys(),
      ];
      expect(await shown()).toEqual([root.eventId, stray.eventId]);
      const purge = async (): Promise<void> => {
        const id = await rooms.get(PurgeService).purgeHistory(roomId, { eventId: last.eventId }, false);
        await rooms.get(RoomTasks).settled();
        expect(await rooms.get(RoomTasks).find(id)).toMatchObject({ status: 'complete', result: { deleted: 4 } });
      };
      const redactedBy = async (): Promise<string | undefined> => {
        rooms.get(EventStore).forget([topic.eventId]);
        return (await rooms.get(EventStore).one(topic.eventId))?.redactedBy;
      };
      const back = [root, reply, redaction];
      const assertBack = async (): Promise<void> => {
        const stored = await rooms.get(EventStore).inOrder([...back, stray].map(({ eventId }) => eventId));
        expect(stored.map(({ outlier }) => outlier)).toEqual([false, false, false, false]);
        const places = await test.database.query(
          `SELECT r.event_id, r.stream_ordering FROM event_relations r JOIN events e ON e.stream_ordering = r.stream_ordering
           WHERE e.room_id = ?`,
          [roomId],
        );
        expect(places).toEqual([{ event_id: reply.eventId, stream_ordering: stored[1]?.streamOrdering }]);
        const repliers = 'SELECT user_id, replies, stream_ordering FROM thread_repliers WHERE room_id = ?';
        expect(await test.database.query(repliers, [roomId])).toEqual([
          { user_id: alice.userId, replies: 1, stream_ordering: stored[1]?.streamOrdering },
        ]);
        expect(await redactedBy()).toBe(redaction.eventId);
      };
      await purge();
      expect(await shown()).toEqual([]);
      expect(await test.database.query('SELECT 1 FROM thread_repliers WHERE room_id = ?', [roomId])).toEqual([]);
      // State stays, and so does what was done to it.
      expect(await redactedBy()).toBe(redaction.eventId);
      await past.backfill(roomId, back);
      await past.backfill(roomId, [stray], { after: head.eventId });
      await assertBack();
      await purge();
      expect(await receive(...back)).toEqual(['accepted', 'accepted', 'accepted']);
      await past.backfill(roomId, [stray], { after: head.eventId });
      await assertBack();
    });

    it('leaves redacted what stays, and what redacts it until that is final', async () => {
      const { roomId, server, state, head } = await shared();
      const events = rooms.get(EventStore);
      let prev = head;
      const say = async (type: string, content: JsonObject): Promise<RoomEvent> => {
        prev = server.make({ type, sender: zoe, content }, [prev], state);
        expect(await receive(prev)).toEqual(['accepted']);
        return prev;
      };
      const own = (type: string, content: JsonObject, stateKey?: string): Promise<SentEvent> =>
        rooms.get(EventCreation).send(alice, { roomId, type, content, stateKey });
      const topic = await own('m.room.topic', { topic: 'redacted' }, '');
      const kept = await own('m.room.message', { body: 'redacted' });
      const gone = await say('m.room.message', { body: 'redacted' });
      const late = server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'late' }, depth: 999 },
        [head],
        state,
      );
      const redactions: RoomEvent[] = [];
      for (const { eventId } of [topic, kept, gone, late])
        redactions.push(await say('m.room.redaction', { redacts: eventId }));
      const last = await own('m.room.message', { body: 'last' });
      const ts = clock.nowMs();
      await clock.jump(dayMs);
      expect(await receive(late)).toEqual(['accepted']);
      const redactedBy = async ({ eventId }: { readonly eventId: string }): Promise<string | undefined> => {
        events.forget([eventId]);
        return (await events.one(eventId))?.redactedBy;
      };
      const left = async (): Promise<boolean[]> => {
        const stored = await events.stored(redactions.map(({ eventId }) => eventId));
        return redactions.map(({ eventId }) => stored.has(eventId));
      };
      await rooms.get(PurgeService).purgeHistory(roomId, { eventId: last.eventId }, false);
      await rooms.get(RoomTasks).settled();
      const [ofTopic, ofKept, , ofLate] = redactions.map(({ eventId }) => eventId);
      expect(await Promise.all([topic, kept, late].map(redactedBy))).toEqual([ofTopic, ofKept, ofLate]);
      expect(await left()).toEqual([true, true, false, true]);
      await rooms.get(PurgeService).purgeOlder(roomId, ts);
      expect(await left()).toEqual([true, false, false, true]);
      expect(await Promise.all([topic, late].map(redactedBy))).toEqual([ofTopic, ofLate]);
      await clock.jump(8 * dayMs);
      await rooms.get(RedactionCensor).run();
      await rooms.get(PurgeService).purgeOlder(roomId, ts);
      expect(await left()).toEqual([false, false, false, false]);
      events.forget([topic.eventId]);
      expect((await events.one(topic.eventId))?.event.content).toEqual({});
    });

    it('counts who replies in a thread while a reply there is purged', async () => {
      const { database } = test;
      if (database.dialect.name === 'sqlite') return;
      const { roomId, server, state, head } = await shared();
      const say = (content: JsonObject): Promise<SentEvent> =>
        rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content });
      const root = await say({ body: 'root' });
      const inThread = { body: 'reply', 'm.relates_to': { rel_type: 'm.thread', event_id: root.eventId } };
      const [kept, gone] = [await say(inThread), await say(inThread)];
      const foreign = server.make({ type: 'm.room.message', sender: zoe, content: inThread }, [head], state);
      let isDone = false;
      const reached = Promise.withResolvers<void>();
      const replying = reached.promise.then(() => receive(foreign)).finally(() => (isDone = true));
      const isWaiting = async (): Promise<boolean> =>
        (await database.query('SELECT 1 AS found FROM pg_locks WHERE NOT granted')).length > 0;
      await database.write(async (tx) => {
        const run: Tx['run'] = async (sql, params) => {
          if (sql.startsWith('INSERT INTO thread_repliers')) {
            reached.resolve();
            await eventually(async () => isDone || (await isWaiting()));
          }
          return tx.run(sql, params);
        };
        const slow: Tx = new Proxy(tx, {
          get: (target, key) => {
            const value: unknown = key === 'run' ? run : Reflect.get(target, key, target);
            return typeof value === 'function' ? (value.bind(target) as unknown) : value;
          },
        });
        await deleteEvents(slow, roomId, [gone.eventId]);
      });
      expect(await replying).toEqual(['accepted']);
      expect(
        await database.query(
          'SELECT user_id, replies, latest_event_id FROM thread_repliers WHERE room_id = ? ORDER BY user_id',
          [roomId],
        ),
      ).toEqual([
        { user_id: alice.userId, replies: 1, latest_event_id: kept.eventId },
        { user_id: zoe, replies: 1, latest_event_id: foreign.eventId },
      ]);
    });

    it('keeps the newest head alone, and the state there', async () => {
      const { roomId, server, state, head } = await shared();
      const say = (type: string, content: JsonObject, prev = head, before = state): RoomEvent =>
        server.make({ type, stateKey: '', sender: zoe, content }, [prev], before);
      const topic = say('m.room.topic', { topic: 'left' });
      const name = say('m.room.name', { name: 'right' });
      expect(await receive(topic, name)).toEqual(['accepted', 'accepted']);
      const stateOf = async (): Promise<(string | undefined)[]> => {
        const current = await rooms.get(RoomStateReader).current(roomId);
        return [topic, name].map(({ eventId }) => current.find(({ event }) => event.eventId === eventId)?.event.type);
      };
      expect(await stateOf()).toEqual(['m.room.topic', 'm.room.name']);
      expect(await rooms.get(RoomRepair).dropExtremities(roomId)).toBe(1);
      expect((await headsOf(roomId)).map((event) => event.prevEventIds)).toEqual([[name.eventId]]);
      expect(await stateOf()).toEqual([undefined, 'm.room.name']);
      // What is current and what is behind the next event stay the same.
      const next = await rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'on' } });
      const after = await rooms.get(RoomStateReader).idsAfter([next.eventId]);
      const current = await rooms.get(RoomStateReader).current(roomId);
      expect([...after.get(next.eventId)!.values()].sort()).toEqual(current.map(({ event }) => event.eventId).sort());
      expect(await rooms.get(RoomRepair).dropExtremities(roomId)).toBe(0);
    });

    it('remembers nothing of a room that was deleted, when it comes back', async () => {
      const { roomId, server, state, head } = await shared();
      expect(await rooms.get(PurgeService).purgeRoom(roomId)).toBe(true);
      const back = server.make(
        { type: 'm.room.member', stateKey: alice.userId, sender: alice.userId, content: { membership: 'join' } },
        [head],
        state,
      );
      const given = { state: [...state.values()], authChain: [] };
      expect(await rooms.get(EventPersister).receiveWithState('11', { event: back }, given)).toMatchObject({
        kind: 'accepted',
      });
      // It follows upon what is known here as a piece of state only.
      const beside = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'beside' } }, [head], state);
      expect(await receive(beside)).toEqual(['missingAncestors']);
      const on = server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'on' } },
        [back],
        applied(state, back),
      );
      expect(await receive(on)).toEqual(['accepted']);
    });
  },
  stateApart,
);
