import { databaseMigrations, type SqlValue } from '@rookery/database';
import { buildEvent, type RoomEvent, roomVersionRules } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { findConflict, resolveState, stateKeyOf, type StateMap } from '@rookery/state-res';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { EventStore } from '../store/event-store.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { ChainCovers } from '../upkeep/chain-covers.service.js';
import { RedactionCensor } from '../upkeep/redaction-censor.js';
import { selectAuthLinks } from './auth-links.query.js';
import { RoomStateReader } from './room-state-reader.js';
import { ResolutionBudget, type ResolutionCost } from './resolution-budget.js';
import { StateResolver } from './state-resolver.js';

const rules = roomVersionRules('12')!;
const depthOfHistory = 150;

eachDatabase('state resolution over stored events', (open) => {
  const clock = new FakeClock();
  const alice = requesterOf('alice');
  let test: TestDatabase;
  let rooms: RoomsFixture;
  let roomId: string;
  let state: Map<string, RoomEvent>;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    rooms = await buildRooms({ database: test.database, clock });
    ({ roomId } = await rooms.get(RoomCreation).create(alice, { room_version: '12' }));
    const levels = stateKeyOf('m.room.power_levels', '');
    const { content } = (await current()).get(levels)!;
    for (let i = 0; i < depthOfHistory; i++) await send('m.room.power_levels', { ...content, kick: i % 50 });
    state = await current();
  });
  afterAll(() => rooms.close());

  const current = async (): Promise<Map<string, RoomEvent>> =>
    new Map(
      (await rooms.get(RoomStateReader).current(roomId)).map(({ event }) => [
        stateKeyOf(event.type, event.stateKey!),
        event,
      ]),
    );
  const send = (type: string, content: JsonObject) =>
    rooms.get(EventPersister).send({ roomId, type, stateKey: '', sender: alice.userId, content });
  const generationOf = async (id: string): Promise<number | undefined> =>
    (await selectAuthLinks(test.database, [id])).get(id)?.generation;
  /** Power levels on top of others; the first of two is in no state. */
  const levelsAfter = (before: RoomEvent, ban: number): RoomEvent =>
    buildEvent(
      {
        roomId,
        type: 'm.room.power_levels',
        stateKey: '',
        sender: alice.userId,
        content: { ...before.content, ban },
        originServerTs: clock.nowMs() + ban,
        depth: before.depth + 1,
        prevEventIds: [before.eventId],
        authEventIds: [before.eventId, state.get(stateKeyOf('m.room.member', alice.userId))!.eventId],
      },
      rules,
    );

  it('counts generations while it stores', async () => {
    const levels = state.get(stateKeyOf('m.room.power_levels', ''))!;
    const auth = await selectAuthLinks(test.database, [...levels.authEventIds, levels.eventId]);
    const before = Math.max(...levels.authEventIds.map((id) => auth.get(id)!.generation!));
    expect(auth.get(levels.eventId)).toEqual({
      authEventIds: expect.arrayContaining([...levels.authEventIds]) as string[],
      generation: before + 1,
    });
    expect(before).toBeGreaterThanOrEqual(depthOfHistory - 1);
    expect(await generationOf([...state.values()].find((event) => event.type === 'm.room.create')!.eventId)).toBe(0);
    expect((await selectAuthLinks(test.database, ['$unknown'])).size).toBe(0);
  });

  it.each([false, true])('walks to where chains meet and no further (events stored: %s)', async (isStored) => {
    const levels = state.get(stateKeyOf('m.room.power_levels', ''))!;
    const base = isStored ? 70 : 10;
    const forks = [base, base + 10].map((ban) => {
      const first = levelsAfter(levels, ban);
      return [first, levelsAfter(first, ban + 1)] as const;
    });
    const events = forks.flat();
    if (isStored) await rooms.get(EventPersister).receiveOutliers(roomId, events);
    const ids = new Map([...state].map(([key, event]) => [key, event.eventId]));
    const sets: StateMap[] = forks.map(([, tip]) =>
      new Map(ids).set(stateKeyOf('m.room.power_levels', ''), tip.eventId),
    );
    const staged = new Map(
      isStored ? [] : events.map((event) => [event.eventId, { event, rejectedReason: undefined }]),
    );
    const store = rooms.get(EventStore);
    const { database } = test;
    const [stored, sent, query] = [store.events.bind(store), store.asSent.bind(store), database.query.bind(database)];
    const asked = new Set<string>();
    let linkRows = 0;
    const counted =
      (read: typeof stored): typeof stored =>
      (wanted, more) => {
        const list = [...wanted];
        for (const id of list) if (more?.has(id) !== true) asked.add(id);
        return read(list, more);
      };
    Object.assign(store, { events: counted(stored), asSent: counted(sent) });
    database.query = async <Row>(sql: string, params?: readonly SqlValue[]) => {
      const rows = await query<Row>(sql, params);
      if (sql.includes('event_auth a')) linkRows += rows.length;
      return rows;
    };
    let resolved: StateMap;
    try {
      const conflict = findConflict(sets, rules.stateResolution);
      const rest = await rooms.get(StateResolver).resolve(roomId, conflict, rules, staged);
      resolved = new Map([...conflict.unconflicted, ...rest]);
    } finally {
      Object.assign(store, { events: stored, asSent: sent });
      database.query = query;
    }
    expect(asked.size).toBeGreaterThan(0);
    expect(asked.size).toBeLessThan(20);
    expect(linkRows).toBeLessThan(30);
    const load = (wanted: readonly string[]) => store.events(wanted, staged);
    expect(resolved).toEqual(await resolveState(sets, { events: load }, rules));
  });

  it('counts the CPU time of its own turns, not what others do in theirs, nor waiting', async () => {
    const forks = ['one', 'two'].map((topic, fork) =>
      Array.from({ length: 400 }, (_, n) =>
        buildEvent(
          {
            ...{ roomId, type: 'org.example.fork', stateKey: String(n), sender: alice.userId, content: { topic } },
            originServerTs: clock.nowMs() + fork,
            depth: depthOfHistory * 2,
            prevEventIds: [],
            authEventIds: ['m.room.power_levels', 'm.room.member'].map(
              (type) => state.get(stateKeyOf(type, type === 'm.room.member' ? alice.userId : ''))!.eventId,
            ),
          },
          rules,
        ),
      ),
    );
    const ids = [...state].map(([key, event]) => [key, event.eventId] as const);
    const sets: StateMap[] = forks.map(
      (fork) =>
        new Map([...ids, ...fork.map((each) => [stateKeyOf(each.type, each.stateKey!), each.eventId] as const)]),
    );
    const staged = new Map(forks.flat().map((event) => [event.eventId, { event, rejectedReason: undefined }]));
    const [budget, store] = [rooms.get(ResolutionBudget), rooms.get(EventStore)];
    const [note, sent] = [budget.note.bind(budget), store.asSent.bind(store)];
    const costs: ResolutionCost[] = [];
    let [asked, turns, isOver] = [0, 0, false];
    budget.note = (_, cost) => void costs.push(cost);
    store.asSent = async (wanted, more) => {
      asked += [...wanted].length;
      clock.cpuMs += 3;
      // The database takes its time, and the thread sleeps.
      await clock.advance(5_000);
      return sent(wanted, more);
    };
    const others = (): void => {
      if (isOver) return;
      clock.cpuMs += 1_000;
      turns++;
      setImmediate(others);
    };
    others();
    clock.cpuMs = 0;
    try {
      await rooms.get(StateResolver).resolve(roomId, findConflict(sets, rules.stateResolution), rules, staged);
    } finally {
      isOver = true;
      budget.note = note;
      store.asSent = sent;
    }
    expect(turns).toBeGreaterThan(0);
    expect(clock.cpuMs).toBeGreaterThan(1_000);
    expect(costs).toEqual([{ cpuMs: expect.any(Number), databaseMs: expect.any(Number), groups: 2 }]);
    expect(costs[0]!.cpuMs).toBeGreaterThanOrEqual(3);
    // Of what others did while the database was waited for no more than it may have been.
    expect(costs[0]!.cpuMs).toBeLessThan(20 + asked);
    expect(costs[0]!.databaseMs).toBeGreaterThanOrEqual(5_000);
  });

  it('reads events as they were sent, wherever they are, until what was redacted is gone', async () => {
    const [store, persister] = [rooms.get(EventStore), rooms.get(EventPersister)];
    const other = (await rooms.get(RoomCreation).create(alice, { room_version: '10' })).roomId;
    const draft = { roomId: other, sender: alice.userId };
    const topics = new Map<string, string>();
    for (const topic of ['redacted', 'redacted and not cached', 'kept', 'kept and not cached']) {
      const sent = await persister.send({ ...draft, type: 'm.room.topic', stateKey: '', content: { topic } });
      topics.set(topic, sent.eventId);
    }
    const ids = [...topics.values()];
    for (const redacts of ids.slice(0, 2))
      await persister.send({ ...draft, type: 'm.room.redaction', content: {}, redacts });
    const staged = buildEvent(
      {
        ...{ ...draft, type: 'm.room.topic', stateKey: '', content: { topic: 'staged' }, originServerTs: 1, depth: 99 },
        ...{ prevEventIds: ids.slice(-1), authEventIds: [] },
      },
      roomVersionRules('10')!,
    );
    const read = async (from: 'asSent' | 'events'): Promise<unknown[]> => {
      const wanted = [ids[0]!, staged.eventId, ...ids.slice(1), '$unknown'];
      const found = await store[from](new Set(wanted), new Map([[staged.eventId, { event: staged }]]));
      return wanted.map((id) => found.get(id)?.content['topic']);
    };
    const [redacted, , kept] = ids as [string, string, string];
    await store.many(ids);
    store.forget([topics.get('redacted and not cached')!, topics.get('kept and not cached')!]);
    expect(ids.map((id) => store.peek(id) !== undefined)).toEqual([true, false, true, false]);
    const sent = ['redacted', 'staged', 'redacted and not cached', 'kept', 'kept and not cached', undefined];
    expect(await read('asSent')).toEqual(sent);
    // Now all of them are cached, and whoever is shown them sees what is left.
    expect(await read('asSent')).toEqual(sent);
    expect(store.peek(redacted)?.event.content).toEqual({});
    expect(store.peek(kept)?.event.content).toEqual({ topic: 'kept' });
    const left = [undefined, 'staged', undefined, 'kept', 'kept and not cached', undefined];
    expect(await read('events')).toEqual(left);
    await clock.jump(8 * 24 * 3_600_000);
    await rooms.get(RedactionCensor).run();
    expect(await read('asSent')).toEqual(left);
  });

  it('completes covers that lack places or generations', async () => {
    const all = async () =>
      test.database.query<{ event_id: string; generation: number | null }>(
        `SELECT c.event_id, c.generation FROM event_auth_chains c JOIN events e ON e.event_id = c.event_id
         WHERE e.room_id = ? ORDER BY c.event_id`,
        [roomId],
      );
    const before = await all();
    await test.database.write(async (tx) => {
      await tx.run('UPDATE rooms SET has_auth_chain_index = FALSE');
      await tx.run('UPDATE event_auth_chains SET generation = NULL');
      // The newest half has no place at all.
      const { middle } = (await tx.get<{ middle: number }>(
        'SELECT stream_ordering AS middle FROM events WHERE room_id = ? ORDER BY stream_ordering LIMIT 1 OFFSET 60',
        [roomId],
      ))!;
      await tx.run(
        `DELETE FROM event_auth_chains WHERE event_id IN
           (SELECT event_id FROM events WHERE room_id = ? AND stream_ordering > ?)`,
        [roomId, middle],
      );
    });
    expect((await all()).length).toBeLessThan(before.length - 50);
    await rooms.get(ChainCovers).completeAll();
    expect(await all()).toEqual(before);
    expect(await test.database.query('SELECT room_id FROM rooms WHERE has_auth_chain_index = FALSE')).toEqual([]);
    await send('m.room.topic', { topic: 'still alive' });
  });
});
