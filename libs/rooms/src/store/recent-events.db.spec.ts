import { Config } from '@rookery/platform';
import { databaseMigrations, DataStores } from '@rookery/database';
import {
  InProcessBus,
  InProcessRpc,
  Invalidations,
  Notifier,
  replicationMigrations,
  Streams,
  StreamWriters,
} from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomHooks } from '../hooks.js';
import { JoinService } from '../membership/join.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { EventStore } from './event-store.js';
import { RoomIds } from './room-ids.js';
import { Aggregations } from '../reading/aggregations.js';
import { buildRooms, queriesOf, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { ReaderStates } from '../reading/reader-states.js';
import { PartialRooms } from './partial-rooms.js';
import { RecentEvents } from './recent-events.js';
import { TimelineGaps } from './timeline-gaps.js';
import { TimelineReader } from '../reading/timeline-reader.js';
import { VisibilityFilter } from '../reading/visibility-filter.js';

eachDatabase('recent events', (open) => {
  let test: TestDatabase;
  let rooms: RoomsFixture;
  const alice = requesterOf('alice');
  const bob = requesterOf('bob');

  beforeAll(async () => {
    const clock = new FakeClock();
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    rooms = await buildRooms({ database: test.database, clock });
  });
  afterAll(() => rooms.close());

  const say = async (roomId: string, body: string, more: object = {}): Promise<string> => {
    const content = { msgtype: 'm.text', body, ...more };
    return (await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content })).eventId;
  };
  const create = async (): Promise<string> =>
    (await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' })).roomId;

  it('answers as the database does, for every range and limit', async () => {
    const roomIds = [await create(), await create(), await create()];
    const [first = '', second = ''] = roomIds;
    for (let n = 0; n < 30; n++) await say(n % 3 === 0 ? second : first, `message ${n}`);
    await rooms
      .get(EventCreation)
      .send(alice, { roomId: first, type: 'm.room.topic', stateKey: '', content: { topic: 'Ranges' } });
    for (let n = 0; n < 30; n++) await say(first, `message ${n}`);
    const end = rooms.get(RoomIds).events.current();
    // One that has heard of nothing asks the database every time.
    const ignorant = new RecentEvents(
      ...([new RoomHooks(), new Streams(test.database, rooms.notifier), rooms.get(Config)] as const),
      new Invalidations(rooms.notifier),
    );
    const events = rooms.get(EventStore);
    const cached = rooms.get(TimelineReader);
    const asking = new TimelineReader(test.database, events, ignorant, rooms.get(TimelineGaps));
    const states = rooms.get(RoomStateReader);
    const stores = new DataStores(test.database);
    const askingStates = new RoomStateReader(stores, events, ignorant, rooms.get(PartialRooms), rooms.get(RoomIds));
    for (let after = 0; after <= end; after += 3) {
      for (const upTo of [end, end - 7]) {
        for (const limit of [0, 1, 10, 39, 100]) {
          const range = { after, upTo, limit };
          const answer = await cached.latest(roomIds, range);
          const wanted = await asking.latest(roomIds, range);
          expect({ range, answer: new Map([...answer].sort()) }).toEqual({
            range,
            answer: new Map([...wanted].sort()),
          });
        }
        expect(await states.deltas(roomIds, after, upTo)).toEqual(await askingStates.deltas(roomIds, after, upTo));
      }
    }
  });

  it('lets a reader who is up to date ask the database nothing', async () => {
    const roomId = await create();
    await rooms.get(JoinService).join(bob, roomId);
    const read = async (since: number): Promise<string[]> => {
      const upTo = rooms.get(RoomIds).events.current();
      const [slice] = (await rooms.get(TimelineReader).latest([roomId], { after: since, upTo, limit: 10 })).values();
      const visible = await rooms.get(VisibilityFilter).visible(bob.userId, slice?.events ?? []);
      await rooms.get(Aggregations).of(
        bob.userId,
        visible.map(({ stored }) => stored),
      );
      expect(await rooms.get(RoomStateReader).deltas([roomId], since, upTo)).toEqual([]);
      return visible.map(({ stored }) => stored.event.eventId);
    };
    let since = rooms.get(RoomIds).events.current();
    await say(roomId, 'the first costs what is remembered of the room and its reader');
    await read(since);
    since = rooms.get(RoomIds).events.current();
    const eventId = await say(roomId, 'the second');
    let seen: string[] = [];
    expect(await queriesOf(test.database, async () => (seen = await read(since)))).toBe(0);
    expect(seen).toEqual([eventId]);
  });

  it('knows at once that something relates to an event', async () => {
    const roomId = await create();
    const root = await say(roomId, 'root');
    const recent = rooms.get(RecentEvents);
    expect(recent.isUnrelated(root)).toBe(true);
    const reply = await say(roomId, 'reply', { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    expect(recent.isUnrelated(root)).toBe(false);
    const stored = await rooms.get(EventStore).inOrder([root]);
    const { thread } = (await rooms.get(Aggregations).of(alice.userId, stored)).get(root) ?? {};
    expect(thread).toMatchObject({ count: 1, latest: { event: { eventId: reply } } });
  });

  it('knows the state group of what was stored', async () => {
    const roomId = await create();
    const eventId = await say(roomId, 'where');
    const { state_group } = (await test.database.get<{ state_group: number }>(
      'SELECT state_group FROM event_to_state_groups WHERE event_id = ?',
      [eventId],
    )) ?? { state_group: undefined };
    expect(rooms.get(RecentEvents).groupOf(eventId)).toBe(state_group);
    expect(rooms.get(RecentEvents).groupOf('$unknown')).toBeUndefined();
    expect(await rooms.get(ReaderStates).at(bob.userId, [eventId])).toEqual(
      new Map([[eventId, { visibility: expect.any(String) as string, member: undefined }]]),
    );
  });

  describe('of another process', () => {
    class SharedBus extends InProcessBus {
      override get isShared(): boolean {
        return true;
      }
    }
    class AskingRpc extends InProcessRpc {
      override async call<_Request, Response>(): Promise<Response> {
        return { events: rooms.get(RoomIds).events.current() } as Response;
      }
    }
    /** One that stores events, and one beside it. */
    const twoProcesses = async () => {
      const bus = new SharedBus();
      const [writer, reader] = ['writer', 'reader'].map((instance) => {
        const notifier = new Notifier(new FakeClock(), bus, { instance });
        const writers = new StreamWriters(instance, {}, 'writer');
        const streams = new Streams(test.database, notifier, { writers, rpc: new AskingRpc() });
        const [invalidations, config] = [new Invalidations(notifier), rooms.get(Config)];
        const recent = new RecentEvents(new RoomHooks(), streams, config, invalidations);
        const states = new ReaderStates(new DataStores(test.database), recent, config);
        return { notifier, streams, invalidations, recent, states };
      }) as [TestProcess, TestProcess];
      await reader.streams.open();
      // The first that one hears of another says that something before it may have been missed.
      writer.invalidations.send('recent_events', []);
      await settled();
      return { writer, reader };
    };
    interface TestProcess {
      readonly notifier: Notifier;
      readonly streams: Streams;
      readonly invalidations: Invalidations;
      readonly recent: RecentEvents;
      readonly states: ReaderStates;
    }
    const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    const heardOf = (eventId: string, roomId: string, more: object = {}) => ({
      ...{ eventId, roomId, sender: alice.userId, group: 1, isUnrelated: true, ...more },
    });
    /** Does something while what is read from the database is on its way. */
    const whileReading = async <T>(read: () => Promise<T>, work: () => Promise<void>): Promise<T> => {
      const { database } = test;
      const { query } = database;
      const [found, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const held = async (...args: Parameters<typeof query>): Promise<unknown> => {
        const rows = await query.apply(database, args);
        found.resolve();
        await goOn.promise;
        return rows;
      };
      Object.assign(database, { query: held });
      const reading = read();
      await found.promise;
      Object.assign(database, { query });
      await work();
      goOn.resolve();
      return reading;
    };
    /** A room that bob joins between two events; how he looks at the first one, whose group becomes that of the second. */
    const rejudgedRoom = async () => {
      const roomId = await create();
      const before = await say(roomId, 'before he came');
      await rooms.get(JoinService).join(bob, roomId);
      const after = await say(roomId, 'after he came');
      const member = async ({ states }: TestProcess): Promise<string | undefined> =>
        (await states.at(bob.userId, [before])).get(before)?.member;
      const rejudge = (): Promise<unknown> =>
        test.database.write((tx) =>
          tx.run(
            `UPDATE event_to_state_groups
                SET state_group = (SELECT state_group FROM event_to_state_groups WHERE event_id = ?) WHERE event_id = ?`,
            [after, before],
          ),
        );
      return { roomId, before, member, rejudge };
    };

    it('is forgotten where events were judged once more', async () => {
      const { writer, reader } = await twoProcesses();
      const { roomId, before, member, rejudge } = await rejudgedRoom();
      await reader.recent.hear(async () => ({ heard: [heardOf('$a', roomId), heardOf('$b', roomId)] }));
      for (const one of [writer, reader]) expect(await member(one)).toBeUndefined();
      await rejudge();
      for (const one of [writer, reader]) expect(await member(one)).toBeUndefined();
      writer.recent.forget(roomId, new Set([before, '$a']));
      await settled();
      for (const one of [writer, reader]) expect(await member(one)).toMatch(/^\$/);
      expect([reader.recent.groupOf('$a'), reader.recent.groupOf('$b')]).toEqual([undefined, 1]);
    });

    it('is not kept where it was being read when they were', async () => {
      const { writer, reader } = await twoProcesses();
      const { roomId, before, member, rejudge } = await rejudgedRoom();
      const forget = async (eventId: string): Promise<void> => {
        await rejudge();
        writer.recent.forget(roomId, [eventId]);
        await settled();
      };
      expect(
        await whileReading(
          () => member(reader),
          () => forget(before),
        ),
      ).toBeUndefined();
      expect(await member(reader)).toMatch(/^\$/);
      const { heard } = await reader.recent.hear(async () => {
        await forget('$a');
        return { heard: [heardOf('$a', roomId), heardOf('$b', roomId)] };
      });
      expect(heard.length).toBe(2);
      expect([reader.recent.groupOf('$a'), reader.recent.groupOf('$b')]).toEqual([undefined, 1]);
    });

    it('is forgotten where something may have been missed', async () => {
      const { writer, reader } = await twoProcesses();
      const { roomId, before, member, rejudge } = await rejudgedRoom();
      await reader.recent.hear(async () => ({ heard: [heardOf('$a', roomId)] }));
      expect(await member(reader)).toBeUndefined();
      await rejudge();
      reader.notifier.close();
      writer.recent.forget(roomId, [before]);
      await settled();
      expect(await member(reader)).toBeUndefined();
      reader.invalidations.forgetAll();
      expect(reader.recent.groupOf('$a')).toBeUndefined();
      expect(await member(reader)).toMatch(/^\$/);
    });

    it('says of no event of another server that nothing relates to it', async () => {
      const { reader } = await twoProcesses();
      const roomId = await create();
      const more = { sender: '@zoe:elsewhere.org' };
      await reader.recent.hear(async () => ({
        heard: [
          heardOf('$own', roomId),
          heardOf('$theirs', roomId, more),
          heardOf('$r', roomId, { isUnrelated: false }),
        ],
      }));
      const known = ['$own', '$theirs', '$r'].map((eventId) => [
        reader.recent.isUnrelated(eventId),
        reader.recent.groupOf(eventId),
      ]);
      expect(known).toEqual([
        [true, 1],
        [false, 1],
        [false, 1],
      ]);
    });
  });
});
