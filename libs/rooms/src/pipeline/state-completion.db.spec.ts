import { databaseMigrations } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { replicationMigrations } from '@rookery/replication';
import { stateKeyOf } from '@rookery/state-res';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { BackwardGaps } from '../store/backward-gaps.js';
import { EventStore } from '../store/event-store.js';
import { PurgeService } from '../upkeep/purge.service.js';
import { RoomTasks } from '../upkeep/room-tasks.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { PartialRooms } from '../store/partial-rooms.js';
import { selectBegunGroup } from '../store/partial-rooms.query.js';
import { EventPersister } from './event-persister.js';
import { applied, remoteServer, RemoteServer, stateLine, zoe } from './remote-server.fixture.js';

const version = '11';
const memberCount = 700;

/** Counts how many of its entries are looked at one after the other. */
class CountedState extends Map<string, string> {
  seen = 0;

  override *[Symbol.iterator](): MapIterator<[string, string]> {
    for (const entry of super.entries()) {
      this.seen++;
      yield entry;
    }
  }
}

eachDatabase(
  'all of the state of a room that was joined with a part of it',
  (open) => {
    const clock = new FakeClock();
    let test: TestDatabase;
    let rooms: RoomsFixture;
    const alice = requesterOf('alice');
    const member = (n: number): string => `@member${n}:${remoteServer}`;

    beforeAll(async () => {
      test = await open(clock);
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
    });
    afterAll(() => rooms.close());

    /** A room of many members that was joined with a part of its state. */
    const partlyJoined = async (name: string) => {
      const server = new RemoteServer(version, `!${name}:${remoteServer}`);
      const { state, add } = stateLine(server);
      add('m.room.create', '', zoe, { room_version: version });
      add('m.room.member', zoe, zoe, { membership: 'join' });
      add('m.room.join_rules', '', zoe, { join_rule: 'public' });
      const part = [...state.values()];
      for (let n = 0; n < memberCount; n++) add('m.room.member', member(n), member(n), { membership: 'join' });
      const whole = [...state.values()];
      const before = new Map(state);
      const join = add('m.room.member', alice.userId, alice.userId, { membership: 'join' });
      const { roomId } = join;
      const persister = rooms.get(EventPersister);
      const given = { state: part, authChain: part };
      const partial = { via: remoteServer, servers: [remoteServer] };
      expect(await persister.receiveWithState(version, { event: join }, given, partial)).toMatchObject({
        kind: 'accepted',
      });
      await persister.receiveOutliers(roomId, whole);
      const { database } = test;
      const all = {
        state: new Map(whole.map((event) => [stateKeyOf(event.type, event.stateKey!), event.eventId])),
        servers: new Set([remoteServer]),
      };
      /** Is killed after it has stored some of the state. @returns the group that holds it */
      const beginToComplete = async (): Promise<number> => {
        const { write } = database;
        let writes = 0;
        database.write = (fn, options) =>
          ++writes === 3
            ? Promise.reject(new Error('The server was killed'))
            : (write.call(database, fn, options) as never);
        await expect(persister.completeState(roomId, join.eventId, all)).rejects.toThrow('killed');
        database.write = write;
        const begun = await selectBegunGroup(database, roomId);
        expect(await rowsOf(begun!)).toBeGreaterThan(0);
        return begun!;
      };
      return { server, before, join, roomId, part, whole, all, persister, partial, beginToComplete };
    };
    /** Rows of a state group, its own among them. */
    const rowsOf = async (group: number): Promise<number> => {
      const rows = await Promise.all([
        test.state.query('SELECT 1 FROM state_groups_state WHERE state_group = ?', [group]),
        test.state.query('SELECT 1 FROM state_groups WHERE id = ?', [group]),
      ]);
      return rows.flat().length;
    };

    it('is looked at a few thousand entries at a time, however large it is', async () => {
      const { roomId, join, all, persister } = await partlyJoined('larger');
      const state = new CountedState(all.state);
      for (let n = 0; n < 11_000; n++) state.set(stateKeyOf('org.example.entry', String(n)), `$entry${n}`);
      let [most, isOver] = [0, false];
      const look = (): void => {
        most = Math.max(most, state.seen);
        state.seen = 0;
        if (!isOver) setImmediate(look);
      };
      look();
      expect(await persister.completeState(roomId, join.eventId, { ...all, state })).toBe(true);
      isOver = true;
      expect(most).toBeGreaterThan(0);
      expect(most).toBeLessThanOrEqual(6_000);
      const pages: (readonly { readonly userId: string }[])[] = [];
      for await (const page of rooms.get(MembershipReader).joinedMembers(roomId, 300)) pages.push(page);
      expect(pages.map((page) => page.length)).toEqual([300, 300, memberCount + 2 - 600]);
      const ids = pages.flat().map(({ userId }) => userId);
      expect(ids.toSorted()).toEqual(
        [zoe, alice.userId, ...Array.from({ length: memberCount }, (_, n) => member(n))].toSorted(),
      );
    });

    it('is stored in parts while the room goes on, and once more from the beginning after a failure', async () => {
      const { server, before, join, roomId, all, persister, beginToComplete } = await partlyJoined('large');
      const { database } = test;
      const say = (body: string) =>
        rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content: { body } });
      const membership = (n: number) => rooms.get(MembershipReader).currentOf(roomId, member(n));
      const begun = await beginToComplete();
      expect([await membership(0), await membership(memberCount - 1)]).toEqual(['join', undefined]);
      expect(rooms.get(PartialRooms).has(roomId)).toBe(true);
      await say('between');

      // Somebody leaves while the rest comes.
      const leave = server.make(
        { type: 'm.room.member', stateKey: member(9), sender: member(9), content: { membership: 'leave' } },
        [join],
        applied(before, join),
      );
      const [isDone, verdicts] = await Promise.all([
        persister.completeState(roomId, join.eventId, all),
        persister.receive(roomId, [{ event: leave }]),
        say('meanwhile'),
      ]);
      expect([isDone, verdicts]).toMatchObject([true, [{ kind: 'accepted' }]]);
      expect(rooms.get(PartialRooms).has(roomId)).toBe(false);
      const current = await rooms.get(RoomStateReader).currentIds(roomId);
      const wanted = applied(before, join, leave);
      expect(current).toEqual(new Map([...wanted].map(([key, event]) => [key, event.eventId])));
      const counts = await rooms.get(MembershipReader).counts([roomId]);
      expect(counts.get(roomId)?.joined).toBe(memberCount + 1);
      const at = (await rooms.get(RoomStateReader).idsAfter([join.eventId])).get(join.eventId);
      expect(at).toEqual(new Map([...applied(before, join)].map(([key, event]) => [key, event.eventId])));

      expect(await rowsOf(begun)).toBe(0);
      expect(await database.query('SELECT 1 FROM partial_state_rooms WHERE room_id = ?', [roomId])).toEqual([]);
      const [{ most = 0 } = {}] = await database.query<{ most: number }>(
        `SELECT MAX(changed) AS most FROM (
         SELECT COUNT(*) AS changed FROM current_state_delta_stream WHERE room_id = ? GROUP BY stream_id) AS counts`,
        [roomId],
      );
      expect(Number(most)).toBeLessThanOrEqual(50);
      await say('whole');
    });

    it('leaves nothing of what was stored in part when somebody comes in with the whole', async () => {
      const { server, before, join, roomId, whole, persister, beginToComplete } = await partlyJoined('rejoined');
      const begun = await beginToComplete();
      const leaving = { roomId, type: 'm.room.member', stateKey: alice.userId, content: { membership: 'leave' } };
      const { eventId } = await rooms.get(EventCreation).send(alice, leaving);
      const left = (await rooms.get(EventStore).one(eventId))!.event;
      const again = server.make(
        { type: 'm.room.member', stateKey: alice.userId, sender: alice.userId, content: { membership: 'join' } },
        [left],
        before,
      );
      const given = { state: whole, authChain: [join] };
      expect(await persister.receiveWithState(version, { event: again }, given)).toMatchObject({ kind: 'accepted' });
      expect(rooms.get(PartialRooms).has(roomId)).toBe(false);
      // Elsewhere it goes once nothing here names it.
      if (test.stateOptions) await rooms.get(PurgeService).collectGroups(roomId, { superseded: true });
      expect(await rowsOf(begun)).toBe(0);
    });

    it('judges what was purged and came back', async () => {
      const { server, before, join, roomId, all, persister } = await partlyJoined('forgetful');
      const own = async (body: string): Promise<RoomEvent> => {
        const draft = { roomId, type: 'm.room.message', content: { body } };
        const { eventId } = await rooms.get(EventCreation).send(alice, draft);
        return (await rooms.get(EventStore).one(eventId))!.event;
      };
      const receive = async (...events: RoomEvent[]): Promise<string[]> =>
        (
          await persister.receive(
            roomId,
            events.map((event) => ({ event })),
          )
        ).map(({ kind }) => kind);
      const early = await own('early');
      const said = { type: 'm.room.message', sender: zoe, content: { body: 'foreign' } };
      const foreign = server.make(said, [early], applied(before, join));
      expect(await receive(foreign)).toEqual(['accepted']);
      const late = await own('late');
      const { eventId } = await own('last');
      await rooms.get(PurgeService).purgeHistory(roomId, { eventId }, false);
      await rooms.get(RoomTasks).settled();
      expect(await receive(early, foreign)).toEqual(['accepted', 'accepted']);
      expect(await persister.completeState(roomId, join.eventId, all)).toBe(true);
      expect(await receive(late)).toEqual(['accepted']);
      const states = await rooms.get(RoomStateReader).idsAfter([early, foreign, late].map((event) => event.eventId));
      expect([...states.values()].map(({ size }) => size)).toEqual(Array(3).fill(applied(before, join).size));
    });

    it('is not collected as unused while it is being stored', async () => {
      const { roomId, beginToComplete } = await partlyJoined('purged');
      const begun = await beginToComplete();
      const stored = await rowsOf(begun);
      await rooms.get(PurgeService).collectGroups(roomId);
      expect(await rowsOf(begun)).toBe(stored);
    });

    it('brings no room back that was deleted meanwhile', async () => {
      const { server, before, join, roomId, part, whole, all, persister } = await partlyJoined('deleted');
      const { over } = rooms.get(PartialRooms).get(roomId)!;
      expect(over.aborted).toBe(false);
      await rooms.get(PurgeService).purgeRoom(roomId);
      expect(over.aborted).toBe(true);
      const said = { type: 'm.room.message', sender: zoe, content: { body: 'old' } };
      const event = server.make(said, [...before.values()].slice(-1), before);
      const gone = { errcode: 'M_FORBIDDEN' };
      await expect(persister.receiveOutliers(roomId, whole.slice(0, 20))).rejects.toMatchObject(gone);
      await expect(persister.completeState(roomId, join.eventId, all)).rejects.toMatchObject(gone);
      for (const state of [part, whole]) {
        const given = { state, authChain: [] };
        await expect(persister.backfill(roomId, [event], given)).rejects.toMatchObject(gone);
        await expect(persister.receiveWithState(undefined, { event }, given)).rejects.toMatchObject(gone);
      }
      const leaving = { type: 'm.room.member', stateKey: alice.userId, sender: alice.userId };
      const leave = server.make({ ...leaving, content: { membership: 'leave' } }, [join], applied(before, join));
      await expect(persister.receiveOutOfBand(version, leave)).rejects.toMatchObject(gone);
      await rooms.get(BackwardGaps).note(roomId, [], ['$missing'], 'nobody gave it');
      for (const table of ['rooms', 'events', 'event_json', 'state_events', 'event_failed_pull_attempts'])
        expect(await test.database.query(`SELECT 1 FROM ${table} WHERE room_id = ?`, [roomId])).toEqual([]);
      // Whoever comes in again finds the room.
      const given = { state: whole, authChain: [] };
      expect(await persister.receiveWithState(version, { event: join }, given)).toMatchObject({ kind: 'accepted' });
    });

    it('is not given up for a join that does not count any more', async () => {
      const { roomId, join, persister, beginToComplete } = await partlyJoined('overtaken');
      const begun = await beginToComplete();
      const stored = await rowsOf(begun);
      expect(await persister.abandonState(roomId, '$another')).toBe(true);
      expect(await rowsOf(begun)).toBe(stored);
      expect(await persister.abandonState(roomId, join.eventId)).toBe(false);
    });
  },
  stateApart,
);
