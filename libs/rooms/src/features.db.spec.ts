import { databaseMigrations, type Db, type SqlValue } from '@rookery/database';
import { type ClientEvent, type JsonObject, MatrixError, parseEventFilter } from '@rookery/matrix-types';
import { eachLimit, type Requester } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountDataService, ProfileService, usersMigrations } from '@rookery/users';
import type { CreateRoomRequest } from './creation/create-room.schema.js';
import { RoomCreation } from './creation/room-creation.service.js';
import { AliasService } from './directory/alias.service.js';
import { RoomDirectory } from './directory/directory.service.js';
import { RoomSummaries } from './directory/room-summaries.service.js';
import { SpaceHierarchy } from './directory/space-hierarchy.service.js';
import { EventByTime } from './history/event-by-time.service.js';
import { RoomReadingService } from './history/room-reading.service.js';
import { JoinService } from './membership/join.service.js';
import { LeaveService } from './membership/leave.service.js';
import { MembershipService } from './membership/membership.service.js';
import { ProfilePropagation } from './accounts/profile-propagation.js';
import { roomsMigrations } from './migrations/index.js';
import { dropRelationPlaces, relationPlacesSchema } from './migrations/relation-places.migration.js';
import { dropThreadRepliers, threadRepliersSchema } from './migrations/thread-repliers.migration.js';
import { selectEdits, selectReferences, selectReplies, selectThreads } from './reading/aggregations.query.js';
import { selectThreadRoots } from './relations/relations.query.js';
import { MembershipReader } from './reading/membership-reader.js';
import { RelationsService } from './relations/relations.service.js';
import { Reports } from './reports/reports.service.js';
import { buildRooms, queriesOf, requesterOf, type RoomsFixture } from './rooms.fixture.js';
import { EventCreation } from './sending/event-creation.service.js';
import { RoomStateReader } from './state/room-state-reader.js';
import { SuccessorData } from './upgrade/successor-data.js';
import { RoomUpgrade } from './upgrade/room-upgrade.service.js';
import { EventPersister } from './pipeline/event-persister.js';

async function outcome(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return '200';
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return `${error.status} ${error.errcode}`;
  }
}

eachDatabase('the rest of the rooms API', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let rooms: RoomsFixture;
  const alice = requesterOf('alice');
  const admin = requesterOf('admin', { isAdmin: true });
  const bob = requesterOf('bob');
  const carol = requesterOf('carol');

  const create = async (body: CreateRoomRequest = {}, requester = alice): Promise<string> =>
    (await rooms.get(RoomCreation).create(requester, body)).roomId;
  const send = (
    requester: typeof alice,
    roomId: string,
    content: JsonObject,
    type = 'm.room.message',
    stateKey?: string,
  ) => rooms.get(EventCreation).send(requester, { roomId, type, content, stateKey });
  const stateOf = async (roomId: string, type: string, stateKey = ''): Promise<JsonObject | undefined> =>
    (await rooms.get(RoomStateReader).currentEvent(roomId, type, stateKey))?.event.content;
  const relating = (type: string, eventId: string, more: JsonObject = {}): JsonObject => ({
    msgtype: 'm.text',
    body: 'x',
    'm.relates_to': { rel_type: type, event_id: eventId },
    ...more,
  });

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    rooms = await buildRooms({ database: test.database, clock });
  });
  afterAll(() => rooms.close());

  it('names rooms, and lets only those who may change that', async () => {
    const aliases = rooms.get(AliasService);
    const roomId = await create({ preset: 'public_chat' });
    await aliases.create(alice, '#cats:example.org', roomId);
    expect(await outcome(aliases.create(alice, '#cats:example.org', roomId))).toBe('409 M_UNKNOWN');
    expect(await outcome(aliases.create(bob, '#bobs:example.org', roomId))).toBe('403 M_FORBIDDEN');
    expect(await outcome(aliases.create(alice, '#x:elsewhere.org', roomId))).toBe('400 M_INVALID_PARAM');
    expect(await aliases.resolve('#cats:example.org')).toEqual({ roomId, servers: ['example.org'] });
    await aliases.checkCanonical(alice, roomId, { alias: '#cats:example.org' });
    await send(alice, roomId, { alias: '#cats:example.org' }, 'm.room.canonical_alias', '');
    expect(await outcome(aliases.checkCanonical(alice, roomId, { alias: '#dogs:example.org' }))).toBe(
      '400 M_BAD_ALIAS',
    );
    // Nobody is asked for whoever may not send it.
    const remote = { alias: '#cats:elsewhere.org' };
    expect(await outcome(aliases.checkCanonical(bob, roomId, remote))).toBe('403 M_FORBIDDEN');
    const other = await create();
    expect(await outcome(aliases.checkCanonical(alice, other, { alias: '#cats:example.org' }))).toBe('400 M_BAD_ALIAS');
    const many = Array.from({ length: 101 }, (_, i) => `#many${i}:example.org`);
    expect(await outcome(aliases.checkCanonical(alice, roomId, { alt_aliases: many }))).toBe('400 M_BAD_JSON');
    expect(await outcome(aliases.delete(bob, '#cats:example.org'))).toBe('403 M_FORBIDDEN');
    await aliases.delete(alice, '#cats:example.org');
    expect(await outcome(aliases.resolveRoom('#cats:example.org'))).toBe('404 M_NOT_FOUND');
    expect(await stateOf(roomId, 'm.room.canonical_alias')).toEqual({});
  });

  it('looks at a room from outside without going through its members, or through all rooms of who asks', async () => {
    const club = await create({ preset: 'public_chat' });
    for (const roomId of [club, await create({ preset: 'public_chat' }), await create({ preset: 'public_chat' })])
      await rooms.get(JoinService).join(bob, roomId);
    const allow = [{ type: 'm.room_membership', room_id: club }];
    const rules = { type: 'm.room.join_rules', state_key: '', content: { join_rule: 'restricted', allow } };
    const restricted = await create({ initial_state: [rules] });
    const aliases = rooms.get(AliasService);
    await aliases.create(alice, '#outside:example.org', club);
    await aliases.resolve('#outside:example.org');
    const { database } = test;
    const query = database.query.bind(database);
    const read: number[] = [];
    database.query = async <Row>(...args: Parameters<typeof query>): Promise<Row[]> => {
      const rows = await query<Row>(...args);
      if (/current_state_events|local_current_membership/.test(args[0])) read.push(rows.length);
      return rows;
    };
    expect((await aliases.resolve('#outside:example.org'))?.roomId).toBe(club);
    expect(read).toEqual([]);
    expect(await rooms.get(RoomSummaries).visible(bob.userId, restricted)).toBeDefined();
    expect(await rooms.get(RoomSummaries).visible(carol.userId, restricted)).toBeUndefined();
    database.query = query;
    expect(Math.max(...read)).toBe(1);
  });

  it('lists published rooms by size, searched, in pages', async () => {
    const directory = rooms.get(RoomDirectory);
    const names = ['Zebra', 'Apfel 100%', 'Quince'];
    const ids: string[] = [];
    for (const name of names) ids.push(await create({ preset: 'public_chat', visibility: 'public', name }, admin));
    await rooms.get(JoinService).join(bob, ids[1]!);
    await create(
      { preset: 'public_chat', visibility: 'public', name: 'A space', creation_content: { type: 'm.space' } },
      admin,
    );
    await create({ preset: 'private_chat', visibility: 'public', name: 'Published, invite only' }, admin);
    expect(await outcome(directory.setPublished(bob, ids[0]!, false))).toBe('403 M_FORBIDDEN');
    const seen: string[] = [];
    let since: string | undefined;
    let previous: string | undefined;
    for (let page = 0; page < 10; page++) {
      const answer = await directory.search({ limit: 2, since });
      seen.push(...(answer['chunk'] as { name: string }[]).map((room) => room.name));
      if (page === 1) previous = answer['prev_batch'] as string;
      since = answer['next_batch'] as string | undefined;
      if (since === undefined) break;
    }
    expect(seen[0]).toBe('Apfel 100%');
    expect([...seen].sort()).toEqual(['A space', 'Apfel 100%', 'Quince', 'Zebra']);
    const back = await directory.search({ limit: 2, since: previous });
    expect((back['chunk'] as { name: string }[]).map((room) => room.name)).toEqual(seen.slice(0, 2));
    const found = async (filter: object) =>
      ((await directory.search({ filter }))['chunk'] as { name: string }[]).map((room) => room.name);
    expect(await found({ generic_search_term: '100%' })).toEqual(['Apfel 100%']);
    expect(await found({ generic_search_term: '%' })).toEqual(['Apfel 100%']);
    expect(await found({ room_types: ['m.space'] })).toEqual(['A space']);
    expect((await found({ room_types: [null] })).length).toBe(3);
    await directory.setPublished(admin, ids[0]!, false);
    expect(await directory.isPublished(ids[0]!)).toBe(false);
    expect(await outcome(directory.search({ since: 'rubbish' }))).toBe('400 M_INVALID_PARAM');
  });

  it('lists no rooms of this server nor of others where that is switched off', async () => {
    expect(await outcome(rooms.get(RoomDirectory).search({}, 'elsewhere.org'))).toBe('404 M_NOT_FOUND');
    const silent = await buildRooms({
      ...{ database: test.database, clock },
      settings: { enable_room_list_search: false },
    });
    const nothing = { chunk: [], total_room_count_estimate: 0 };
    const directory = silent.get(RoomDirectory);
    for (const server of [undefined, 'example.org', 'elsewhere.org'])
      expect(await directory.search({ limit: 5 }, server)).toEqual(nothing);
    expect(await outcome(directory.search({}, 'no server'))).toBe('400 M_INVALID_PARAM');
    await silent.close();
  });

  it('counts of a thread what its reader may see', async () => {
    const counted = async (reader: Requester, roomId: string, eventId: string): Promise<unknown> => {
      const event = await rooms.get(RoomReadingService).event(reader, roomId, eventId);
      return (event.unsigned!['m.relations'] as Record<string, JsonObject> | undefined)?.['m.thread']?.['count'];
    };
    const visibility = (roomId: string, history_visibility: string): Promise<unknown> =>
      rooms.get(EventCreation).send(alice, {
        roomId,
        type: 'm.room.history_visibility',
        stateKey: '',
        content: { history_visibility },
      });
    const roomId = await create({ preset: 'public_chat' });
    const root = await send(alice, roomId, { msgtype: 'm.text', body: 'root' });
    await send(alice, roomId, relating('m.thread', root.eventId));
    await visibility(roomId, 'joined');
    for (let i = 0; i < 3; i++) await send(alice, roomId, relating('m.thread', root.eventId));
    await rooms.get(JoinService).join(bob, roomId);
    await send(alice, roomId, relating('m.thread', root.eventId));
    expect(await counted(alice, roomId, root.eventId)).toBe(5);
    expect(await counted(bob, roomId, root.eventId)).toBe(2);
    await rooms.get(LeaveService).leave(bob, roomId);
    await send(alice, roomId, relating('m.thread', root.eventId));
    expect(await counted(alice, roomId, root.eventId)).toBe(6);
    expect(await counted(bob, roomId, root.eventId)).toBe(2);
    await rooms.get(JoinService).join(bob, roomId);
    expect(await counted(bob, roomId, root.eventId)).toBe(2);
  });

  it('keeps who replied in a thread, and how often, as if it were counted each time', async () => {
    const roomId = await create({ preset: 'public_chat' });
    for (const user of [bob, carol]) await rooms.get(JoinService).join(user, roomId);
    const [first, second] = [
      await send(alice, roomId, { msgtype: 'm.text', body: 'first' }),
      await send(alice, roomId, { msgtype: 'm.text', body: 'second' }),
    ];
    const reply = (user: Requester, root: { readonly eventId: string }) =>
      send(user, roomId, relating('m.thread', root.eventId));
    const redact = (redacts: string): Promise<unknown> =>
      rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.redaction', content: {}, redacts });
    const ignore = (userIds: readonly string[]): Promise<unknown> => {
      const content = { ignored_users: Object.fromEntries(userIds.map((userId) => [userId, {}])) };
      const [accountData, type] = [rooms.get(AccountDataService), 'm.ignored_user_list'];
      return accountData.set(alice.userId, undefined, type, content, { requester: alice });
    };
    const repliers = (): Promise<unknown[]> =>
      test.database.query('SELECT * FROM thread_repliers WHERE room_id = ? ORDER BY thread_id, user_id', [roomId]);
    const summary = async (reader: Requester, root = first): Promise<unknown[] | undefined> => {
      const event = await rooms.get(RoomReadingService).event(reader, roomId, root.eventId);
      const relations = event.unsigned!['m.relations'] as Record<string, JsonObject> | undefined;
      const thread = relations?.['m.thread'];
      return (
        thread && [
          thread['count'],
          (thread['latest_event'] as ClientEvent).event_id,
          thread['current_user_participated'],
        ]
      );
    };
    const participated = async (reader: Requester): Promise<string[]> => {
      const found = await rooms.get(RelationsService).threads(reader, roomId, { participated: true, limit: 5 });
      return (found['chunk'] as ClientEvent[]).map((event) => event.event_id);
    };

    const bobs = [await reply(bob, first), await reply(bob, first), await reply(bob, first)];
    const carols = await reply(carol, first);
    const late = await reply(carol, second);
    expect(await summary(bob)).toEqual([4, carols.eventId, true]);
    expect(await participated(bob)).toEqual([first.eventId]);
    expect(await participated(carol)).toEqual([second.eventId, first.eventId]);
    await ignore([carol.userId]);
    expect(await summary(alice)).toEqual([3, bobs[2]!.eventId, true]);
    expect(await summary(alice, second)).toBeUndefined();
    await ignore([]);
    // One in between, the last one of somebody who has others, and the only one of somebody.
    for (const { eventId } of [bobs[0]!, bobs[2]!, late]) await redact(eventId);
    expect(await summary(bob)).toEqual([2, carols.eventId, true]);
    expect(await summary(bob, second)).toBeUndefined();
    await redact(carols.eventId);
    expect(await summary(carol)).toEqual([1, bobs[1]!.eventId, false]);
    expect(await participated(carol)).toEqual([]);
    await Promise.all([bob, carol, bob].map((user) => reply(user, first)));
    await reply(bob, second);
    const kept = await repliers();
    expect(kept).toHaveLength(3);
    await test.database.write(async (tx) => {
      await dropThreadRepliers(tx);
      await threadRepliersSchema(tx);
    });
    expect(await repliers()).toEqual(kept);

    // What is asked does not grow with the replies.
    const asked: string[] = [];
    const { dialect } = test.database;
    const query = (sql: string): Promise<never[]> => Promise.resolve(asked.push(sql)).then(() => []);
    const db = { dialect, query } as unknown as Db;
    await selectThreads(db, [first.eventId], bob.userId, []);
    await selectThreadRoots(db, roomId, bob.userId, undefined, 5);
    expect(asked.filter((sql) => sql.includes('event_relations'))).toEqual([]);
  });

  it('finds the newest edits and replies and the first references without the others', async () => {
    const roomId = await create({ preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, roomId);
    const [one, other] = [
      await send(alice, roomId, { msgtype: 'm.text', body: 'one' }),
      await send(alice, roomId, { msgtype: 'm.text', body: 'other' }),
    ];
    const sent = new Map<string, string[]>();
    for (const type of ['m.replace', 'm.thread', 'm.reference'])
      for (const { eventId } of [one, other, one, one]) {
        const related = await send(alice, roomId, relating(type, eventId, { 'm.new_content': { body: 'new' } }));
        sent.set(`${type} ${eventId}`, [...(sent.get(`${type} ${eventId}`) ?? []), related.eventId]);
        await clock.advance(1);
      }
    await send(bob, roomId, relating('m.replace', one.eventId, { 'm.new_content': { body: 'not by its sender' } }));
    await send(alice, roomId, relating('m.replace', one.eventId), 'org.example.of_another_type');
    const of = (type: string, eventId: string): readonly string[] => sent.get(`${type} ${eventId}`)!;
    const found = async (db: Db, select: typeof selectEdits, limit: number): Promise<string[][]> => {
      const rows = await select(db, [one.eventId, other.eventId, of('m.replace', one.eventId)[0]!], limit);
      return [one, other].map(({ eventId }) => rows.filter((row) => row.target === eventId).map((row) => row.event_id));
    };
    const db = test.database;
    for (const [type, select] of [
      ['m.replace', selectEdits],
      ['m.thread', selectReplies],
    ] as const) {
      const newestFirst = [one, other].map(({ eventId }) => of(type, eventId).toReversed());
      expect(await found(db, select, 50)).toEqual(newestFirst);
      expect(await found(db, select, 2)).toEqual(newestFirst.map((ids) => ids.slice(0, 2)));
    }
    const oldestFirst = [one, other].map(({ eventId }) => of('m.reference', eventId));
    expect(await found(db, selectReferences, 2)).toEqual(oldestFirst.map((ids) => ids.slice(0, 2)));

    // Written down with each relation is what was worked out for those that were there before.
    const places = (): Promise<unknown[]> => test.database.query('SELECT * FROM event_relations ORDER BY event_id');
    const reactions = `DELETE FROM event_relations WHERE relation_type NOT IN ('m.replace', 'm.thread', 'm.reference')`;
    await test.database.write((tx) => tx.run(reactions));
    const written = await places();
    await test.database.write(async (tx) => {
      await dropRelationPlaces(tx);
      await relationPlacesSchema(tx);
    });
    expect(await places()).toEqual(written);

    if (test.database.dialect.name !== 'sqlite') return;
    const plans: string[] = [];
    const query = async (sql: string, params: readonly SqlValue[]): Promise<never[]> => {
      const steps = await test.database.query<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`, params);
      plans.push(steps.map(({ detail }) => detail).join('; '));
      return [];
    };
    const explaining = { dialect: test.database.dialect, query } as unknown as Db;
    for (const select of [selectEdits, selectReplies, selectReferences]) await found(explaining, select, 2);
    expect(plans.filter((plan) => plan.includes('TEMP B-TREE'))).toEqual([]);
    expect(plans.map((plan) => /event_relations_(?:edits|replies|references)/.exec(plan)?.[0])).toEqual([
      ...['event_relations_edits', 'event_relations_replies', 'event_relations_references'],
    ]);
  });

  it('asks no more about an event for its reactions', async () => {
    const roomId = await create({ preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, roomId);
    const { eventId } = await send(alice, roomId, { msgtype: 'm.text', body: 'much liked' });
    const read = (): Promise<unknown> => rooms.get(RoomReadingService).event(bob, roomId, eventId);
    const relates = { rel_type: 'm.annotation', event_id: eventId };
    for (const key of ['a', 'b', 'c']) await send(alice, roomId, { 'm.relates_to': { ...relates, key } }, 'm.reaction');
    await read();
    const withReactions = await queriesOf(test.database, read);
    await send(alice, roomId, relating('m.reference', eventId));
    await read();
    expect(await queriesOf(test.database, read)).toBeGreaterThan(withReactions);
    const plain = await send(alice, roomId, { msgtype: 'm.text', body: 'unheard' });
    const readPlain = (): Promise<unknown> => rooms.get(RoomReadingService).event(bob, roomId, plain.eventId);
    await readPlain();
    // Whether anything relates to it, and no more.
    expect(withReactions).toBeLessThanOrEqual((await queriesOf(test.database, readPlain)) + 1);
  });

  it('bundles edits and threads, and follows relations', async () => {
    const roomId = await create({ preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, roomId);
    const root = await send(alice, roomId, { msgtype: 'm.text', body: 'root' });
    const reply = await send(bob, roomId, relating('m.thread', root.eventId));
    const reaction = await send(
      alice,
      roomId,
      { 'm.relates_to': { rel_type: 'm.annotation', event_id: reply.eventId, key: '👍' } },
      'm.reaction',
    );
    const edit = await send(
      alice,
      roomId,
      relating('m.replace', root.eventId, { 'm.new_content': { body: 'better' } }),
    );
    await send(bob, roomId, relating('m.replace', root.eventId, { 'm.new_content': { body: 'not mine' } }));
    const read = await rooms.get(RoomReadingService).event(alice, roomId, root.eventId);
    const bundled = read.unsigned!['m.relations'] as Record<string, JsonObject>;
    expect(bundled['m.replace']).toMatchObject({
      event_id: edit.eventId,
      content: { 'm.new_content': { body: 'better' } },
    });
    expect(bundled['m.thread']).toMatchObject({
      count: 1,
      current_user_participated: true,
      latest_event: { event_id: reply.eventId },
    });
    const relations = async (more: object): Promise<string[]> => {
      const answer = await rooms
        .get(RelationsService)
        .relations(alice, { roomId, eventId: root.eventId, direction: 'b', limit: 50, recurse: false, ...more });
      return (answer['chunk'] as ClientEvent[]).map((event) => event.event_id);
    };
    expect((await relations({})).length).toBe(3);
    expect(await relations({ relType: 'm.thread' })).toEqual([reply.eventId]);
    expect(await relations({ recurse: true, eventType: 'm.reaction' })).toEqual([reaction.eventId]);
    const first = await rooms
      .get(RelationsService)
      .relations(alice, { roomId, eventId: root.eventId, direction: 'f', limit: 2, recurse: false });
    const second = await relations({ direction: 'f', limit: 2, from: first['next_batch'] });
    expect(second.length).toBe(1);
    const threads = await rooms.get(RelationsService).threads(alice, roomId, { participated: false, limit: 5 });
    expect((threads['chunk'] as ClientEvent[]).map((event) => event.event_id)).toEqual([root.eventId]);
    const participated = { participated: true, limit: 5 };
    expect(await outcome(rooms.get(RelationsService).threads(carol, roomId, participated))).toBe('403 M_FORBIDDEN');
    await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.redaction', content: {}, redacts: edit.eventId });
    const after = await rooms.get(RoomReadingService).event(alice, roomId, root.eventId);
    expect(after.unsigned!['m.relations']).not.toHaveProperty(['m.replace']);
    expect(
      await outcome(
        rooms
          .get(RelationsService)
          .relations(carol, { roomId, eventId: root.eventId, direction: 'b', limit: 5, recurse: false }),
      ),
    ).toBe('404 M_NOT_FOUND');
  });

  it('finds events by time', async () => {
    const roomId = await create();
    await clock.advance(10_000);
    const early = await send(alice, roomId, { msgtype: 'm.text', body: 'early' });
    const at = clock.nowMs();
    await clock.advance(10_000);
    const late = await send(alice, roomId, { msgtype: 'm.text', body: 'late' });
    const find = (ts: number, direction: 'f' | 'b') => rooms.get(EventByTime).find(alice, roomId, ts, direction);
    expect(await find(at + 1, 'f')).toEqual({ eventId: late.eventId, ts: at + 10_000 });
    expect(await find(at + 1, 'b')).toEqual({ eventId: early.eventId, ts: at });
    expect(await outcome(find(at + 99_999, 'f'))).toBe('404 M_NOT_FOUND');
    expect(await outcome(rooms.get(EventByTime).find(bob, roomId, at, 'f'))).toBe('403 M_FORBIDDEN');
  });

  it('finds the first and last event that somebody may see, however much was said before they came and after they left', async () => {
    const hidden = { type: 'm.room.history_visibility', state_key: '', content: { history_visibility: 'joined' } };
    const roomId = await create({ preset: 'public_chat', initial_state: [hidden] });
    await clock.advance(10_000);
    const began = clock.nowMs();
    await Promise.all(
      Array.from({ length: 1_050 }, (_, i) => send(alice, roomId, { msgtype: 'm.text', body: `${i}` })),
    );
    await clock.advance(10_000);
    const entered = await rooms.get(JoinService).join(bob, roomId);
    await clock.advance(10_000);
    await send(alice, roomId, { msgtype: 'm.text', body: 'welcome' });
    const found = await rooms.get(EventByTime).find(bob, roomId, began, 'f');
    expect(found.eventId).toBe(entered?.eventId);
    await clock.advance(10_000);
    await rooms.get(LeaveService).leave(bob, roomId);
    const left = clock.nowMs();
    await clock.advance(10_000);
    await Promise.all(
      Array.from({ length: 1_050 }, (_, i) => send(alice, roomId, { msgtype: 'm.text', body: `without ${i}` })),
    );
    const last = await rooms.get(EventByTime).find(bob, roomId, clock.nowMs(), 'b');
    expect(last.ts).toBe(left);
    expect(await rooms.get(EventByTime).find(bob, roomId, left - 1, 'b')).not.toEqual(last);
  });

  it('walks through spaces in order, in pages, without what is hidden', async () => {
    const space = await create({ creation_content: { type: 'm.space' }, name: 'Space' });
    const inner = await create({ creation_content: { type: 'm.space' }, name: 'Inner', preset: 'public_chat' });
    const [a, b, secret] = [
      await create({ name: 'A', preset: 'public_chat' }),
      await create({ name: 'B', preset: 'public_chat' }),
      await create({ name: 'Secret' }, bob),
    ];
    const add = (parent: string, child: string, content: JsonObject) =>
      send(alice, parent, { via: ['example.org'], ...content }, 'm.space.child', child);
    await add(space, b, { order: 'bbb' });
    await add(space, inner, { order: 'aaa', suggested: true });
    await add(space, secret, { order: 'ccc' });
    await add(inner, a, {});
    await add(inner, space, {});
    const walk = async (more: object = {}): Promise<[string[], string | undefined]> => {
      const answer = await rooms.get(SpaceHierarchy).walk(alice.userId, {
        roomId: space,
        suggestedOnly: false,
        limit: 50,
        maxDepth: undefined,
        from: undefined,
        ...more,
      });
      return [(answer['rooms'] as { name: string }[]).map((room) => room.name), answer['next_batch'] as string];
    };
    expect((await walk())[0]).toEqual(['Space', 'Inner', 'A', 'B']);
    expect((await walk({ maxDepth: 1 }))[0]).toEqual(['Space', 'Inner', 'B']);
    expect((await walk({ suggestedOnly: true }))[0]).toEqual(['Space', 'Inner']);
    const [first, token] = await walk({ limit: 3 });
    expect(first).toEqual(['Space', 'Inner', 'A']);
    expect(await walk({ limit: 3, from: token })).toEqual([['B'], undefined]);
    expect(await outcome(walk({ suggestedOnly: true, from: token }))).toBe('400 M_INVALID_PARAM');
    expect(await outcome(walk({ roomId: secret }))).toBe('403 M_FORBIDDEN');
  });

  it('goes on in a space where the page before has ended, whatever is shown by then', async () => {
    const open = (name: string, more: CreateRoomRequest = {}) => create({ name, preset: 'public_chat', ...more });
    const isSpace = { creation_content: { type: 'm.space' } };
    const [space, inner] = [await open('Space', isSpace), await open('Inner', isSpace)];
    const [a, b, c, d] = [await open('A'), await open('B'), await open('C'), await open('D')];
    const add = (parent: string, child: string, order: string) =>
      send(alice, parent, { via: ['example.org'], order }, 'm.space.child', child);
    for (const [index, child] of [inner, c, d].entries()) await add(space, child, `${index}`);
    for (const [index, child] of [a, b].entries()) await add(inner, child, `${index}`);
    const closeOrOpen = (rule: string) => send(alice, inner, { join_rule: rule }, 'm.room.join_rules', '');
    const page = async (limit: number, from?: string): Promise<[string[], string | undefined]> => {
      const request = { roomId: space, suggestedOnly: false, limit, maxDepth: undefined, from };
      const answer = await rooms.get(SpaceHierarchy).walk(bob.userId, request);
      return [(answer['rooms'] as { name: string }[]).map((room) => room.name), answer['next_batch'] as string];
    };
    const [atA, behindA] = await page(3);
    const [atC, behindC] = await page(5);
    expect([atA, atC]).toEqual([
      ['Space', 'Inner', 'A'],
      ['Space', 'Inner', 'A', 'B', 'C'],
    ]);

    await closeOrOpen('invite');
    expect(await page(3, behindA)).toEqual([['C', 'D'], undefined]);
    expect(await page(3, behindC)).toEqual([['D'], undefined]);
    const [shown, behindFewer] = await page(2);
    expect(shown).toEqual(['Space', 'C']);
    await closeOrOpen('public');
    expect(await page(3, behindFewer)).toEqual([['D'], undefined]);

    // Nothing is left of where the page has ended: then so many are skipped as it showed, as tokens of earlier versions say, too.
    await send(alice, inner, {}, 'm.space.child', a);
    expect(await page(1, behindA)).toEqual([['C'], expect.any(String)]);
    expect(await page(3, behindA)).toEqual([['C', 'D'], undefined]);
    const former = Buffer.from(JSON.stringify([3, false, null])).toString('base64url');
    expect(await page(3, former)).toEqual([['C', 'D'], undefined]);
    const longer = Buffer.from(JSON.stringify([3, false, null, ...Array<string>(20).fill('x')])).toString('base64url');
    expect(await outcome(page(3, longer))).toBe('400 M_INVALID_PARAM');
  });

  it('asks for the rooms of a space a level at a time', async () => {
    const restrictedTo = (roomId: string): JsonObject => ({
      join_rule: 'restricted',
      allow: [{ type: 'm.room_membership', room_id: roomId }],
    });
    const club = await create({ preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, club);
    const joinRules = (content: JsonObject): CreateRoomRequest => ({
      initial_state: [{ type: 'm.room.join_rules', state_key: '', content }],
    });
    const add = (parent: string, child: string, order: string): Promise<unknown> =>
      send(alice, parent, { via: ['example.org'], order }, 'm.space.child', child);
    const isSpace = { creation_content: { type: 'm.space' }, preset: 'public_chat' } as const;
    /** A space of spaces, each with a room for everybody, one for some, one that is hidden and one that bob is invited to. */
    const build = async (name: string, size: number): Promise<string> => {
      const space = await create({ ...isSpace, name });
      for (let n = 0; n < size; n++) {
        const inner = await create({ ...isSpace, name: `${name}${n}` });
        await add(space, inner, `${n}`);
        const children = await Promise.all([
          create({ preset: 'public_chat', name: `${name}${n} open` }),
          create({ ...joinRules(restrictedTo(club)), name: `${name}${n} club` }),
          create({ name: `${name}${n} hidden` }),
          create({ ...joinRules(restrictedTo(inner)), name: `${name}${n} others` }),
          create({ invite: [bob.userId], name: `${name}${n} invited` }),
        ]);
        for (const [index, child] of children.entries()) await add(inner, child, `${index}`);
        await add(inner, space, 'z');
      }
      return space;
    };
    const shown = (name: string, size: number): string[] => [
      name,
      ...Array.from({ length: size }, (_, n) => `${name}${n}`).flatMap((one) => [
        ...[one, `${one} open`, `${one} club`, `${one} invited`],
      ]),
    ];
    const walk = async (roomId: string, limit: number, from?: string): Promise<[string[], string | undefined]> => {
      const request = { roomId, suggestedOnly: false, limit, maxDepth: undefined, from };
      const answer = await rooms.get(SpaceHierarchy).walk(bob.userId, request);
      return [(answer['rooms'] as { name: string }[]).map((room) => room.name), answer['next_batch'] as string];
    };
    const cost = async (space: string, limit: number, expected: readonly string[]): Promise<number> => {
      let names: string[] = [];
      const queries = await queriesOf(test.database, async () => ([names] = await walk(space, limit)));
      expect(names).toEqual(expected);
      return queries;
    };
    const [few, many] = [await build('Few', 1), await build('Many', 8)];
    for (const space of [few, many]) await walk(space, 50);
    const least = await cost(few, 50, shown('Few', 1));
    expect(await cost(many, 50, shown('Many', 8))).toBeLessThanOrEqual(least + 5);
    expect(await cost(many, 7, shown('Many', 8).slice(0, 7))).toBeLessThanOrEqual(least + 5);
    const paged: string[] = [];
    let from: string | undefined;
    do {
      const [names, next] = await walk(many, 5, from);
      paged.push(...names);
      from = next;
    } while (from !== undefined);
    expect(paged).toEqual(shown('Many', 8));
  });

  it('sums rooms up for those who may know of them', async () => {
    const open2 = await create({ name: 'Open', preset: 'public_chat' });
    const closed = await create({ name: 'Closed' });
    const summaries = rooms.get(RoomSummaries);
    expect(await summaries.one(undefined, open2)).toMatchObject({
      room_id: open2,
      name: 'Open',
      num_joined_members: 1,
      join_rule: 'public',
      room_version: '12',
    });
    expect(await summaries.one(undefined, open2)).not.toHaveProperty('membership');
    expect(await summaries.one(bob, open2)).toMatchObject({ room_id: open2, membership: 'leave' });
    expect(await outcome(summaries.one(bob, closed))).toBe('404 M_NOT_FOUND');
    expect(await summaries.one(alice, closed)).toMatchObject({ membership: 'join' });
  });

  it('lets people knock, and in by membership of another room', async () => {
    const club = await create({ preset: 'public_chat' });
    const rule = (content: JsonObject) => [{ type: 'm.room.join_rules', content }];
    const knocking = await create({ initial_state: rule({ join_rule: 'knock' }) });
    await rooms.get(JoinService).knock(bob, knocking, { reason: 'please' });
    expect(await rooms.get(MembershipReader).currentOf(knocking, bob.userId)).toBe('knock');
    await rooms.get(MembershipService).invite(alice, knocking, bob.userId);
    await rooms.get(JoinService).join(bob, knocking);
    const restricted = await create({
      initial_state: rule({ join_rule: 'restricted', allow: [{ type: 'm.room_membership', room_id: club }] }),
    });
    expect(await outcome(rooms.get(JoinService).join(bob, restricted))).toBe('403 M_FORBIDDEN');
    await rooms.get(JoinService).join(bob, club);
    await rooms.get(JoinService).join(bob, restricted);
    expect(await stateOf(restricted, 'm.room.member', bob.userId)).toMatchObject({
      membership: 'join',
      join_authorised_via_users_server: alice.userId,
    });
    expect(await outcome(rooms.get(JoinService).knock(carol, club))).toBe('403 M_FORBIDDEN');
  });

  it.each([
    ['10', '12'],
    ['12', '12'],
    ['11', '9'],
  ])('replaces a room of version %s by one of version %s', async (from, to) => {
    const alias = `upgrade${from}to${to}`;
    const old = await create({ room_version: from, preset: 'public_chat', name: 'Kept', room_alias_name: alias });
    await rooms.get(JoinService).join(bob, old);
    await rooms.get(MembershipService).ban(alice, old, carol.userId);
    expect(await outcome(rooms.get(RoomUpgrade).upgrade(bob, old, to, undefined))).toBe('403 M_FORBIDDEN');
    const accountData = rooms.get(AccountDataService);
    await accountData.setTag(bob.userId, old, 'm.favourite', { order: 0.5 }, { requester: bob });
    await accountData.set(bob.userId, undefined, 'm.direct', { [alice.userId]: [old] }, { requester: bob });
    const last = await send(bob, old, { msgtype: 'm.text', body: 'the last word' });
    const replacement = await rooms.get(RoomUpgrade).upgrade(alice, old, to, undefined);
    expect(await stateOf(old, 'm.room.tombstone')).toMatchObject({ replacement_room: replacement });
    const predecessor = { room_id: old, ...(to !== '12' && { event_id: last.eventId }) };
    expect(await stateOf(replacement, 'm.room.create')).toMatchObject({ room_version: to });
    expect((await stateOf(replacement, 'm.room.create'))?.['predecessor']).toEqual(predecessor);
    expect(await stateOf(replacement, 'm.room.name')).toEqual({ name: 'Kept' });
    expect(await stateOf(replacement, 'm.room.member', carol.userId)).toMatchObject({ membership: 'ban' });
    expect((await rooms.get(AliasService).resolve(`#${alias}:example.org`))?.roomId).toBe(replacement);
    expect(await stateOf(replacement, 'm.room.canonical_alias')).toEqual({ alias: `#${alias}:example.org` });
    expect(await outcome(send(bob, old, { msgtype: 'm.text', body: 'still here' }))).toBe('403 M_FORBIDDEN');
    await rooms.get(JoinService).join(bob, replacement);
    await send(bob, replacement, { msgtype: 'm.text', body: 'hello' });
    await rooms.get(SuccessorData).settled();
    expect(await accountData.tags(bob.userId, replacement)).toEqual({ 'm.favourite': { order: 0.5 } });
    expect(await accountData.find(bob.userId, undefined, 'm.direct')).toEqual({ [alice.userId]: [old, replacement] });

    // What was taken along once is the user's to change: a new name is no second coming.
    await accountData.setTag(bob.userId, replacement, 'm.favourite', undefined, { requester: bob });
    await rooms.get(ProfileService).setField(bob, bob.userId, 'displayname', `Bob of ${replacement}`);
    await rooms.get(ProfilePropagation).settled(bob.userId);
    await rooms.get(SuccessorData).settled();
    expect(await stateOf(replacement, 'm.room.member', bob.userId)).toMatchObject({
      displayname: `Bob of ${replacement}`,
    });
    expect(await accountData.tags(bob.userId, replacement)).toEqual({});
  });

  it('replaces a room once for whoever asks again meanwhile', async () => {
    const old = await create({ preset: 'public_chat' });
    const upgrade = () => rooms.get(RoomUpgrade).upgrade(alice, old, '12', undefined);
    const [first, again] = await Promise.all([upgrade(), upgrade()]);
    expect(again).toBe(first);
    expect(await stateOf(old, 'm.room.tombstone')).toMatchObject({ replacement_room: first });
    expect(await upgrade()).not.toBe(first);
  });

  it('replaces a room by one only, where several want to at once', async () => {
    const levels = { users: { [alice.userId]: 100, [bob.userId]: 100 } };
    const old = await create({ room_version: '11', preset: 'public_chat', power_level_content_override: levels });
    await rooms.get(JoinService).join(bob, old);
    const upgrades = [alice, bob].map((one) => rooms.get(RoomUpgrade).upgrade(one, old, '12', undefined));
    const outcomes = await Promise.all(upgrades.map(outcome));
    expect(outcomes.toSorted()).toEqual(['200', '400 M_UNKNOWN']);
    const replacement = await upgrades[outcomes.indexOf('200')];
    expect(await stateOf(old, 'm.room.tombstone')).toMatchObject({ replacement_room: replacement });
  });

  it('replaces no room by what it read of it before somebody else did so', async () => {
    const levels = { users: { [alice.userId]: 100, [bob.userId]: 100 } };
    const old = await create({ room_version: '11', preset: 'public_chat', power_level_content_override: levels });
    await rooms.get(JoinService).join(bob, old);
    const state = rooms.get(RoomStateReader);
    const current = state.current.bind(state);
    let isFirst = true;
    const slow = jest.spyOn(state, 'current').mockImplementation(async (...args) => {
      const read = await current(...args);
      if (!isFirst || args[0] !== old) return read;
      isFirst = false;
      await rooms.get(RoomUpgrade).upgrade(bob, old, '12', undefined);
      return read;
    });
    const late = await outcome(rooms.get(RoomUpgrade).upgrade(alice, old, '12', undefined));
    slow.mockRestore();
    expect(late).toBe('400 M_UNKNOWN');
  });

  it('replaces a room whose bans the new one cannot have all', async () => {
    const banned = async (version: string, level?: number): Promise<string> => {
      const power = level === undefined ? {} : { power_level_content_override: { users: { [carol.userId]: level } } };
      const old = await create({ room_version: version, preset: 'public_chat', ...power });
      await rooms.get(MembershipService).ban(alice, old, carol.userId);
      await rooms.get(MembershipService).ban(alice, old, bob.userId);
      return old;
    };
    const membershipOf = async (roomId: string, userId: string): Promise<unknown> =>
      (await stateOf(roomId, 'm.room.member', userId))?.['membership'];
    const upgrades = rooms.get(RoomUpgrade);

    // A creator cannot be banned.
    const kept = await upgrades.upgrade(alice, await banned('11'), '12', [carol.userId]);
    expect(await membershipOf(kept, carol.userId)).toBeUndefined();
    expect(await membershipOf(kept, bob.userId)).toBe('ban');

    // Where creators are not above everybody, neither can be who has a level like theirs.
    const older = await upgrades.upgrade(alice, await banned('12', 100), '11', undefined);
    expect(await membershipOf(older, carol.userId)).toBe('ban');
    expect(await membershipOf(older, bob.userId)).toBe('ban');
    expect(await stateOf(older, 'm.room.power_levels')).toMatchObject({
      users: { [alice.userId]: 100 },
      events: { 'm.room.tombstone': 100 },
    });
    expect((await stateOf(older, 'm.room.power_levels'))?.['users']).not.toHaveProperty([carol.userId]);
    expect(await upgrades.upgrade(alice, older, '12', undefined)).toMatch(/^!/);
  });

  it('replaces a room with all that happens in it until it is closed', async () => {
    const users = { [alice.userId]: 100, [bob.userId]: 75, [carol.userId]: 75 };
    const old = await create({ room_version: '11', power_level_content_override: { users: { ...users } } });
    const levels = (await stateOf(old, 'm.room.power_levels'))!;
    const demote = (userId: string): Promise<unknown> => {
      delete users[userId];
      return send(alice, old, { ...levels, users: { ...users } }, 'm.room.power_levels', '');
    };
    const [creation, persister] = [rooms.get(RoomCreation), rooms.get(EventPersister)];
    const [make, store] = [creation.create.bind(creation), persister.send.bind(persister)];
    const made = jest.spyOn(creation, 'create').mockImplementationOnce(async (...args) => {
      const room = await make(...args);
      await demote(bob.userId);
      await rooms.get(MembershipService).ban(alice, old, bob.userId);
      return room;
    });
    let isRaised = false;
    const sent = jest.spyOn(persister, 'send').mockImplementation(async (draft) => {
      const isLast = draft.roomId === old && draft.content['events_default'] === 50;
      if (isLast && !isRaised) {
        isRaised = true;
        await demote(carol.userId);
      }
      return store(draft);
    });
    try {
      const replacement = await rooms.get(RoomUpgrade).upgrade(alice, old, '11', undefined);
      expect(isRaised).toBe(true);
      const closed = { users: { [alice.userId]: 100 }, events_default: 50, invite: 50 };
      expect(await stateOf(old, 'm.room.power_levels')).toMatchObject(closed);
      for (const roomId of [old, replacement]) {
        const now = (await stateOf(roomId, 'm.room.power_levels'))?.['users'];
        expect(now).toEqual({ [alice.userId]: 100 });
      }
      expect(await stateOf(replacement, 'm.room.member', bob.userId)).toMatchObject({ membership: 'ban' });
    } finally {
      made.mockRestore();
      sent.mockRestore();
    }
  });

  it('replaces a room with any number of bans, and says so where one is in the way', async () => {
    const old = await create({ room_version: '11' });
    const banned = Array.from({ length: 120 }, (_, n) => `@banned${n}:elsewhere.org`);
    await eachLimit(banned, 20, async (userId) => void (await rooms.get(MembershipService).ban(alice, old, userId)));
    const persister = rooms.get(EventPersister);
    const store = persister.send.bind(persister);
    let [now, most, isFull] = [0, 0, false];
    const sent = jest.spyOn(persister, 'send').mockImplementation(async (draft) => {
      most = Math.max(most, ++now);
      try {
        if (isFull && draft.stateKey === banned[7]) throw MatrixError.limitExceeded(1_000);
        return await store(draft);
      } finally {
        now--;
      }
    });
    try {
      const upgrade = (): Promise<string> => rooms.get(RoomUpgrade).upgrade(alice, old, '11', undefined);
      const replacement = await upgrade();
      expect(most).toBeLessThanOrEqual(50);
      const moved = await rooms.get(MembershipReader).userIdsIn([replacement], ['ban']);
      expect(moved.get(replacement)).toEqual(new Set(banned));
      isFull = true;
      expect(await outcome(upgrade())).toBe('429 M_LIMIT_EXCEEDED');
    } finally {
      sent.mockRestore();
    }
  });

  it('keeps reports, of what the reporter can see only', async () => {
    const roomId = await create();
    const sent = await send(alice, roomId, { msgtype: 'm.text', body: 'bad' });
    const reports = rooms.get(Reports);
    await reports.event(alice, roomId, sent.eventId, { reason: 'rude', score: -100 });
    expect(await outcome(reports.event(bob, roomId, sent.eventId, {}))).toBe('404 M_NOT_FOUND');
    await reports.room(bob, roomId, 'spam');
    expect(await outcome(reports.room(bob, '!none:example.org', 'spam'))).toBe('404 M_NOT_FOUND');
    await reports.user(bob, '@nobody:example.org', 'spam');
    expect(await test.database.query('SELECT user_id, reason FROM event_reports')).toEqual([
      { user_id: alice.userId, reason: 'rude' },
    ]);
    expect((await test.database.query('SELECT id FROM user_reports')).length).toBe(0);
  });

  it('shows a new name in the rooms of its bearer', async () => {
    const roomId = await create();
    await rooms.get(ProfileService).setField(alice, alice.userId, 'displayname', 'Alice the Great');
    const propagation = rooms.get(ProfilePropagation);
    await propagation.settled(alice.userId);
    expect(await stateOf(roomId, 'm.room.member', alice.userId)).toEqual({
      membership: 'join',
      displayname: 'Alice the Great',
    });
  });

  it('shows a new name in all rooms but a broken one, and there after a pause', async () => {
    const dora = requesterOf('dora');
    const roomIds = [await create({}, dora), await create({}, dora), await create({}, dora)];
    const persister = rooms.get(EventPersister);
    const { send: store } = persister;
    const broken = jest.spyOn(persister, 'send').mockImplementation((draft) => {
      if (draft.roomId === roomIds[0]) return Promise.reject(new Error('a mistake'));
      return store.call(persister, draft);
    });
    const shownIn = async (roomId: string | undefined): Promise<boolean> =>
      (await stateOf(roomId!, 'm.room.member', dora.userId))?.['displayname'] === 'Dora';
    await rooms.get(ProfileService).setField(dora, dora.userId, 'displayname', 'Dora');
    await rooms.get(ProfilePropagation).settled(dora.userId);
    expect(await Promise.all(roomIds.map(shownIn))).toEqual([false, true, true]);
    broken.mockRestore();
    await clock.advance(10_000);
    await rooms.get(ProfilePropagation).settled(dora.userId);
    expect(await shownIn(roomIds[0])).toBe(true);
    expect(await test.database.query('SELECT user_id FROM profiles_behind WHERE user_id = ?', [dora.userId])).toEqual(
      [],
    );
  });

  it('lets nobody in again who leaves while a new name is shown', async () => {
    const roomId = await create({ preset: 'public_chat' });
    const erin = requesterOf('erin');
    await rooms.get(JoinService).join(erin, roomId);
    const persister = rooms.get(EventPersister);
    const { send: store } = persister;
    jest.spyOn(persister, 'send').mockImplementationOnce(async (draft) => {
      await rooms.get(LeaveService).leave(erin, roomId);
      return store.call(persister, draft);
    });
    await rooms.get(ProfileService).setField(erin, erin.userId, 'displayname', 'Erin');
    await rooms.get(ProfilePropagation).settled(erin.userId);
    expect(await stateOf(roomId, 'm.room.member', erin.userId)).toEqual({ membership: 'leave' });
  });

  it('goes on after a restart to show a new name in rooms', async () => {
    const { database } = test;
    const dying = await buildRooms({ database, clock });
    const roomIds: string[] = [];
    for (let n = 0; n < 20; n++) roomIds.push((await dying.get(RoomCreation).create(carol, {})).roomId);
    const persister = dying.get(EventPersister);
    const { send: store } = persister;
    let stored = 0;
    persister.send = (draft) =>
      ++stored > 5 ? Promise.reject(new Error('The server was killed')) : store.call(persister, draft);
    await dying.get(ProfileService).setField(carol, carol.userId, 'displayname', 'Carol Once More');
    await dying.get(ProfilePropagation).settled(carol.userId);
    await dying.close();
    const again = await buildRooms({ database, clock });
    const isShown = async (roomId: string): Promise<boolean> => {
      const member = await again.get(RoomStateReader).currentEvent(roomId, 'm.room.member', carol.userId);
      return member?.event.content['displayname'] === 'Carol Once More';
    };
    await eventually(async () => (await Promise.all(roomIds.map(isShown))).every(Boolean));
    await again.get(ProfilePropagation).settled(carol.userId);
    expect(await test.database.query('SELECT user_id FROM profiles_behind')).toEqual([]);
    await again.close();
  });

  it('filters pages of history', async () => {
    const roomId = await create({ preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, roomId);
    await send(alice, roomId, { msgtype: 'm.text', body: 'a' });
    await send(bob, roomId, { msgtype: 'm.image', body: 'b', url: 'mxc://example.org/x' });
    const bodies = async (filter: object): Promise<unknown[]> => {
      const page = await rooms
        .get(RoomReadingService)
        .messages(alice, roomId, { direction: 'b', limit: 50, filter: parseEventFilter(filter) });
      return (page['chunk'] as ClientEvent[]).map((event) => event.content['body'] ?? event.type);
    };
    expect(await bodies({ types: ['m.room.mess*'] })).toEqual(['b', 'a']);
    expect(await bodies({ contains_url: true })).toEqual(['b']);
    expect(await bodies({ types: ['m.room.message'], not_senders: [bob.userId] })).toEqual(['a']);
    expect(await bodies({ senders: [] })).toEqual([]);
  });
});
