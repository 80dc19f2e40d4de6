import { databaseMigrations } from '@rookery/database';
import { contentHash, parsePdu, type RoomEvent, signEvent } from '@rookery/events';
import { type JsonObject, MatrixError, parseEventFilter } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { stateKeyOf } from '@rookery/state-res';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { JoinService } from '../membership/join.service.js';
import { LeaveService } from '../membership/leave.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { RoomForgetting } from '../membership/room-forgetting.js';
import { RoomHooks } from '../hooks.js';
import { type RemoteRoomGateway, RoomPorts } from '../ports.js';
import { roomsMigrations } from '../migrations/index.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomHeroes } from '../reading/room-heroes.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { MembershipTemplates } from '../servers/membership-templates.js';
import { ChainCovers } from '../upkeep/chain-covers.service.js';
import { RedactionCensor } from '../upkeep/redaction-censor.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { StateResolver } from '../state/state-resolver.js';
import { EventStore } from '../store/event-store.js';
import { EventPersister } from './event-persister.js';
import { InboundEvents } from './inbound-events.service.js';
import { applied, remoteKey, remoteServer, RemoteServer, stateLine, yan, zoe } from './remote-server.fixture.js';

eachDatabase('events of other servers', (open) => {
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

  const stateOf = async (roomId: string): Promise<Map<string, RoomEvent>> =>
    new Map(
      (await rooms.get(RoomStateReader).current(roomId)).map(({ event }) => [
        stateKeyOf(event.type, event.stateKey!),
        event,
      ]),
    );
  const headsOf = async (roomId: string): Promise<RoomEvent[]> => {
    const rows = await test.database.query<{ event_id: string }>(
      'SELECT event_id FROM event_forward_extremities WHERE room_id = ?',
      [roomId],
    );
    const found = await rooms.get(RoomReadingService)['events'].inOrder(rows.map((row) => row.event_id));
    return found.map((stored) => stored.event);
  };
  const receive = async (...events: RoomEvent[]) =>
    (
      await rooms.get(EventPersister).receive(
        events[0]!.roomId,
        events.map((event) => ({ event })),
      )
    ).map((verdict) => verdict.kind);
  const timeline = async (roomId: string): Promise<string[]> => {
    const page = await rooms
      .get(RoomReadingService)
      .messages(alice, roomId, { direction: 'b', limit: 200, filter: parseEventFilter({}) });
    return (page['chunk'] as { event_id: string }[]).map((event) => event.event_id);
  };
  /** A public room of alice's that zoe and yan have joined. */
  const shared = async (version = '11', options: JsonObject = {}) => {
    const { roomId } = await rooms
      .get(RoomCreation)
      .create(alice, { room_version: version, preset: 'public_chat', ...options });
    const server = new RemoteServer(version, roomId);
    let state = await stateOf(roomId);
    let heads = await headsOf(roomId);
    for (const userId of [zoe, yan]) {
      const join = server.make(
        { type: 'm.room.member', stateKey: userId, sender: userId, content: { membership: 'join' } },
        heads,
        state,
      );
      expect(await receive(join)).toEqual(['accepted']);
      state = applied(state, join);
      heads = [join];
    }
    return { roomId, server, state, head: heads[0]! };
  };

  it('takes in as part of the timeline what it knew as a piece of an auth chain', async () => {
    const { roomId, server, state, head } = await shared();
    const rename = (name: string, prev: RoomEvent, before: ReadonlyMap<string, RoomEvent>): RoomEvent =>
      server.make(
        {
          ...{ type: 'm.room.member', stateKey: zoe, sender: zoe },
          content: { membership: 'join', displayname: name },
        },
        [prev],
        before,
      );
    const first = rename('one', head, state);
    const second = rename('two', first, applied(state, first));
    await rooms.get(EventPersister).receiveOutliers(roomId, [first, second]);
    expect(await receive(first, second)).toEqual(['accepted', 'accepted']);
    const now = await stateOf(roomId);
    expect(now.get(stateKeyOf('m.room.member', zoe))?.eventId).toBe(second.eventId);
    const texts = await test.database.query<{ json: string }>('SELECT json FROM event_json WHERE event_id = ?', [
      first.eventId,
    ]);
    expect(texts).toHaveLength(1);
    const sent = await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.topic', stateKey: '', content: { topic: 'still alive' } });
    expect((await timeline(roomId)).slice(0, 3)).toEqual([sent.eventId, second.eventId, first.eventId]);
  });

  it('can say whether a batch is in the database, for the day on which a commit is not answered', async () => {
    const { roomId, server, state, head } = await shared();
    const { database } = test;
    const { write } = database;
    const answers: boolean[] = [];
    database.write = async (fn, options) => {
      const result = await write.call(
        database,
        async (tx) => {
          const done = await fn(tx);
          if (options?.happened) answers.push(await options.happened(database));
          return done;
        },
        options,
      );
      if (options?.happened) answers.push(await options.happened(database));
      return result as Awaited<ReturnType<typeof fn>>;
    };
    try {
      await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content: { body: 'own' } });
      const message = { type: 'm.room.message', sender: zoe, content: { body: 'foreign' } };
      expect(await receive(server.make(message, [head], state))).toEqual(['accepted']);
    } finally {
      database.write = write;
    }
    expect(answers).toEqual([false, true, false, true]);
  });

  it('takes in the event that began a room, long after it has learned of it', async () => {
    const server = new RemoteServer('11', `!${clock.nowMs()}:${remoteServer}`);
    const create = server.make({ type: 'm.room.create', stateKey: '', sender: zoe }, [], new Map());
    let state = applied(new Map(), create);
    const chain = [create];
    const add = (type: string, stateKey: string | undefined, sender: string, content: JsonObject): RoomEvent => {
      const event = server.make(
        { type, sender, content, ...(stateKey !== undefined && { stateKey }) },
        chain.slice(-1),
        state,
      );
      state = applied(state, event);
      chain.push(event);
      return event;
    };
    add('m.room.member', zoe, zoe, { membership: 'join' });
    add('m.room.join_rules', '', zoe, { join_rule: 'public' });
    const before = [...state.values()];
    const join = add('m.room.member', yan, yan, { membership: 'join' });
    const persister = rooms.get(EventPersister);
    expect(await persister.receiveWithState('11', { event: join }, { state: before, authChain: before })).toMatchObject(
      {
        kind: 'accepted',
      },
    );
    const fork = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'aside' } }, [chain[2]!], state);
    // As when another server fills a gap that goes back to the beginning.
    expect(await receive(...chain.slice(0, 3), fork)).toEqual(Array.from({ length: 4 }, () => 'accepted'));
    expect(new Set((await headsOf(join.roomId)).map((event) => event.eventId))).toEqual(
      new Set([join.eventId, fork.eventId]),
    );
    expect((await stateOf(join.roomId)).size).toBe(4);
    // Whoever could make another beginning could take the room away from those who are in it.
    const second = server.make(
      { type: 'm.room.create', stateKey: '', sender: yan, content: { other: true } },
      [],
      new Map(),
    );
    expect(await receive(second)).toEqual(['rejected']);
    expect((await stateOf(join.roomId)).get(stateKeyOf('m.room.create', ''))?.eventId).toBe(create.eventId);
    const last = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'end' } }, [join, fork], state);
    expect(await receive(last)).toEqual(['accepted']);
    expect((await stateOf(join.roomId)).size).toBe(4);
  });

  /** Does something while the next batch of events has been staged and is not written yet. */
  const whileWriting = async <T>(start: () => Promise<T>, meanwhile: () => Promise<void>): Promise<T> => {
    const { database } = test;
    const { write } = database;
    let writing = (): void => {};
    let goOn = (): void => {};
    const began = new Promise<void>((resolve) => (writing = resolve));
    const held = new Promise<void>((resolve) => (goOn = resolve));
    database.write = async (fn, options) => {
      if (options?.name === 'persist_events') {
        writing();
        await held;
      }
      return write.call(database, fn, options) as ReturnType<typeof fn>;
    };
    try {
      const done = start();
      await began;
      await meanwhile();
      goOn();
      return await done;
    } finally {
      goOn();
      database.write = write;
    }
  };
  const templateFor = (roomId: string, userId: string): Promise<RoomEvent> =>
    rooms.get(MembershipTemplates).make({ roomId, userId, content: { membership: 'join' } });

  it.each(['11', '12'])(
    'resolves forks that come together and authorize nothing once, in version %s',
    async (version) => {
      const anybody = { power_level_content_override: { state_default: 0 } };
      const { roomId, server, state, head } = await shared(version, anybody);
      const resolver = rooms.get(StateResolver);
      const resolve = resolver.resolve.bind(resolver);
      let resolved = 0;
      resolver.resolve = (...given) => {
        resolved++;
        return resolve(...given);
      };
      try {
        const forks = Array.from({ length: 12 }, (_, n) =>
          server.make({ type: 'x.y', stateKey: `${n}`, sender: zoe, content: { n } }, [head], state),
        );
        expect(new Set(await receive(...forks))).toEqual(new Set(['accepted']));
        expect(resolved).toBe(1);
        const now = await stateOf(roomId);
        for (const fork of forks)
          expect(now.get(stateKeyOf('x.y', fork.stateKey!))).toMatchObject({ eventId: fork.eventId });
        expect(await headsOf(roomId)).toHaveLength(12);
        // What authorizes counts for those behind it at once, whatever came before it.
        const before = server.make({ type: 'x.y', stateKey: 'before', sender: yan, content: {} }, [head], state);
        const leave = server.make(
          { type: 'm.room.member', stateKey: yan, sender: yan, content: { membership: 'leave' } },
          [head],
          state,
        );
        const after = server.make({ type: 'x.y', stateKey: 'after', sender: yan, content: {} }, [head], state);
        expect(await receive(before, leave, after)).toEqual(['accepted', 'accepted', 'softFailed']);
        const last = await stateOf(roomId);
        expect(last.get(stateKeyOf('x.y', 'before'))).toMatchObject({ eventId: before.eventId });
        expect(last.has(stateKeyOf('x.y', 'after'))).toBe(false);
        expect(last.get(stateKeyOf('m.room.member', yan))).toMatchObject({ eventId: leave.eventId });
      } finally {
        resolver.resolve = resolve;
      }
    },
  );

  it('reads no state group before it is written', async () => {
    const { roomId, server, state, head } = await shared();
    const topics = Array.from({ length: 14 }, (_, n) =>
      server.make(
        {
          ...{ type: 'm.room.member', stateKey: zoe, sender: zoe },
          content: { membership: 'join', displayname: `${n}` },
        },
        [head],
        state,
      ),
    );
    let template: RoomEvent | undefined;
    const verdicts = await whileWriting(
      () => receive(...topics),
      async () => {
        // More heads than one event follows upon: a state must be made for those that it does.
        template = await templateFor(roomId, `@new:${remoteServer}`);
      },
    );
    expect(new Set(verdicts)).toEqual(new Set(['accepted']));
    expect(template?.prevEventIds).toHaveLength(10);
    const authOf = (event: RoomEvent | undefined): Set<string> => new Set(event?.authEventIds);
    expect(authOf(template)).toEqual(authOf(await templateFor(roomId, `@new:${remoteServer}`)));
    // What was read too early is not remembered.
    const sent = await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.topic', stateKey: '', content: { topic: 'all' } });
    const merged = await rooms.get(RoomStateReader).idsAfter([sent.eventId]);
    expect(merged.get(sent.eventId)?.size).toBe((await stateOf(roomId)).size);
    for (let joined = 0; (await headsOf(roomId)).length > 1 && joined < 5; joined++) {
      await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content: { body: 'join' } });
    }
    expect((await stateOf(roomId)).size).toBe(state.size + 1);
  });

  it('shows others the state that is being written as a whole', async () => {
    const { roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'private_chat', room_version: '11' });
    await expect(templateFor(roomId, zoe)).rejects.toMatchObject({ status: 403 });
    await whileWriting(
      () =>
        rooms
          .get(EventCreation)
          .send(alice, { roomId, type: 'm.room.join_rules', stateKey: '', content: { join_rule: 'public' } }),
      async () => {
        const template = await templateFor(roomId, zoe);
        const rules = (await stateOf(roomId)).get(stateKeyOf('m.room.join_rules', ''));
        expect(template.authEventIds).not.toContain(rules?.eventId);
      },
    );
    const template = await templateFor(roomId, zoe);
    expect(template.authEventIds).toContain((await stateOf(roomId)).get(stateKeyOf('m.room.join_rules', ''))?.eventId);
  });

  it('keeps the heads of a room whose new beginning is refused', async () => {
    const server = new RemoteServer('11', `!${clock.nowMs() + 1}:${remoteServer}`);
    const create = server.make({ type: 'm.room.create', stateKey: '', sender: zoe }, [], new Map());
    const first = server.make(
      { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join' } },
      [create],
      applied(new Map(), create),
    );
    const state = applied(new Map(), create, first);
    const around = { state: [create, first], authChain: [create, first] };
    const message = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'one' } }, [first], state);
    const persister = rooms.get(EventPersister);
    expect(await persister.receiveWithState('11', { event: message }, around)).toMatchObject({ kind: 'accepted' });
    const refused = server.make({ type: 'm.room.message', sender: yan, content: { body: 'two' } }, [first], state);
    expect(await persister.receiveWithState('11', { event: refused }, around)).toMatchObject({ kind: 'rejected' });
    expect((await headsOf(message.roomId)).map((event) => event.eventId)).toEqual([message.eventId]);
    const unknown = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'three' } },
      [message],
      applied(state, first),
    );
    expect(await receive(unknown)).toEqual(['accepted']);
  });

  it('keeps names of more than 255 bytes in old rooms without believing in them, and what follows upon them', async () => {
    const { roomId, server, state, head } = await shared('10');
    const long = server.make({ type: 'x', sender: zoe, content: {} }, [head], state);
    const pdu = { ...long.pdu, type: 'é'.repeat(200) };
    const raw = parsePdu({ ...pdu, hashes: { sha256: contentHash(pdu) } }, long.rules);
    const next = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'after it' } }, [raw], state);
    expect(await receive(raw, next)).toEqual(['rejected', 'accepted']);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([next.eventId]);
    expect(await timeline(roomId)).not.toContain(raw.eventId);
  });

  it('goes on from a depth that nobody else could read', async () => {
    const { roomId, server, state, head } = await shared('5');
    const message = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'deep' } }, [head], state);
    const deepest = parsePdu(
      JSON.stringify(message.pdu).replace(/"depth":\d+/, '"depth":9223372036854775807'),
      message.rules,
    );
    expect(await receive(deepest)).toEqual(['accepted']);
    const own = await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.message', content: { body: 'own' } });
    const { json } = (await test.database.get<{ json: string }>('SELECT json FROM event_json WHERE event_id = ?', [
      own.eventId,
    ]))!;
    expect((JSON.parse(json) as { depth: number }).depth).toBe(2 ** 53 - 1);
  });

  it('leaves no room without a head, whatever a made-up past says', async () => {
    const { roomId, server, state, head } = await shared();
    const next = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'next' } }, [head], state);
    const past = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'past' } }, [next], state);
    const given = { state: [...state.values()], authChain: [...state.values()] };
    await rooms.get(EventPersister).backfill(roomId, [past], given);
    expect(await receive(next)).toEqual(['accepted']);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([next.eventId]);
    expect([...(await stateOf(roomId)).keys()].sort()).toEqual([...state.keys()].sort());
    const sent = await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.message', content: { body: 'on' } });
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([sent.eventId]);
  });

  it('stores the past from its end: the older, the smaller its place in the order of arrival', async () => {
    const { roomId, server, state, head } = await shared();
    const past = [head];
    for (let i = 0; i < 3; i++) {
      past.push(server.make({ type: 'm.room.message', sender: zoe, content: { body: `${i}` } }, past.slice(-1), state));
    }
    await rooms.get(EventPersister).backfill(roomId, past.slice(1));
    const rows = await test.database.query<{ event_id: string }>(
      'SELECT event_id FROM events WHERE room_id = ? AND stream_ordering < 0 ORDER BY stream_ordering',
      [roomId],
    );
    expect(rows.map((row) => row.event_id)).toEqual(past.slice(1).map((event) => event.eventId));
  });

  it('ends a thread with the reply that is the last in the room, whichever came last', async () => {
    const { roomId, server, state, head } = await shared();
    const say = (body: string, more: JsonObject = {}, depth?: number): RoomEvent => {
      const content = { body, ...more };
      return server.make({ type: 'm.room.message', sender: zoe, content, ...(depth && { depth }) }, [head], state);
    };
    const root = say('root');
    const inThread = { 'm.relates_to': { rel_type: 'm.thread', event_id: root.eventId } };
    const latest = async (): Promise<unknown> =>
      test.database.query('SELECT latest_event_id FROM threads WHERE room_id = ?', [roomId]);
    const live = say('live', inThread);
    expect(await receive(root, live)).toEqual(['accepted', 'accepted']);
    await rooms.get(EventPersister).backfill(roomId, [say('just as deep', inThread)]);
    expect(await latest()).toEqual([{ latest_event_id: live.eventId }]);
    const deeper = say('deeper', inThread, live.depth + 2);
    await rooms.get(EventPersister).backfill(roomId, [deeper, say('less so', inThread, live.depth + 1)]);
    expect(await latest()).toEqual([{ latest_event_id: deeper.eventId }]);
  });

  it('gives the past the state of what follows upon it, where it is told to, and makes no other', async () => {
    const { roomId, server, state, head } = await shared();
    const message = (body: string, prev: RoomEvent): RoomEvent =>
      server.make({ type: 'm.room.message', sender: zoe, content: { body } }, [prev], state);
    const unknown = message('never comes', head);
    const [first, second] = [message('first', unknown), message('second', head)];
    const after = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'x' } }, [head], state);
    expect(await receive(after)).toEqual(['accepted']);
    const countOf = async (): Promise<number> =>
      Number((await test.database.get<{ n: number }>('SELECT COUNT(*) AS n FROM state_groups'))!.n);
    const before = await countOf();
    await rooms.get(EventPersister).backfill(roomId, [first, second], { after: after.eventId });
    expect(await countOf()).toBe(before);
    const ids = [first, after].map(({ eventId }) => eventId);
    const states = await rooms.get(RoomStateReader).idsAfter(ids);
    expect(states.size).toBe(2);
    expect(states.get(first.eventId)).toEqual(states.get(after.eventId));
    // Of an event that has none nothing is known.
    const stray = message('stray', unknown);
    await rooms.get(EventPersister).backfill(roomId, [stray], { after: '$nothing' });
    expect(await rooms.get(EventStore).one(stray.eventId)).toBeUndefined();
  });

  it('stores a large state around a join part by part, also where another version of the room was believed', async () => {
    const server = new RemoteServer('11', `!${clock.nowMs()}:${remoteServer}`);
    let state = new Map<string, RoomEvent>();
    const chain: RoomEvent[] = [];
    const add = (type: string, stateKey: string, sender: string, content: JsonObject): RoomEvent => {
      const event = server.make({ type, stateKey, sender, content }, chain.slice(-1), state);
      state = applied(state, event);
      chain.push(event);
      return event;
    };
    add('m.room.create', '', zoe, {});
    add('m.room.member', zoe, zoe, { membership: 'join' });
    add('m.room.join_rules', '', zoe, { join_rule: 'public' });
    for (let n = 0; n < 90; n++) add('org.example.thing', `${n}`, zoe, { n });
    const heroes = ['e', 'b', 'f', 'a', 'd', 'c'].map((name) => `@${name}:${remoteServer}`);
    for (const userId of heroes) add('m.room.member', userId, userId, { membership: 'join' });
    // What yan may not say is no part of it.
    const refused = add('org.example.thing', 'refused', yan, {});
    const around = [...state.values()];
    const join = add('m.room.member', yan, yan, { membership: 'join' });
    const invite = new RemoteServer('9', join.roomId).make(
      { type: 'm.room.member', stateKey: alice.userId, sender: zoe, content: { membership: 'invite' } },
      [],
      state,
    );
    await rooms.get(EventPersister).receiveOutOfBand('9', invite);
    const { database } = test;
    const { write } = database;
    const sizes: number[] = [];
    database.write = async (fn, options) => {
      const count = async (): Promise<number> =>
        Number(
          (await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM events WHERE room_id = ?', [join.roomId]))!.n,
        );
      const before = options?.name === 'persist_events' ? await count() : undefined;
      const result = (await write.call(database, fn as never, options)) as never;
      if (before !== undefined) sizes.push((await count()) - before);
      return result;
    };
    try {
      expect(
        await rooms
          .get(EventPersister)
          .receiveWithState('11', { event: join }, { state: around.reverse(), authChain: chain }),
      ).toMatchObject({ kind: 'accepted' });
    } finally {
      database.write = write;
    }
    expect(sizes.length).toBeGreaterThan(3);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(25);
    const now = await stateOf(join.roomId);
    expect(now.size).toBe(state.size - 1);
    expect(now.has(stateKeyOf('org.example.thing', 'refused'))).toBe(false);
    expect((await rooms.get(EventStore).one(refused.eventId))?.rejectedReason).toBeDefined();
    expect(now.get(stateKeyOf('m.room.member', yan))?.eventId).toBe(join.eventId);
    expect((await rooms.get(RoomStateReader).versions([join.roomId])).get(join.roomId)).toBe('11');
    // All of them came with the state.
    const named = (await rooms.get(RoomHeroes).of([join.roomId], zoe)).get(join.roomId);
    expect(named).toEqual(heroes.toSorted().slice(0, 5));
  });

  it('condemns no event because its auth events were withheld', async () => {
    const { roomId, server, state, head } = await shared();
    const renamed = server.make(
      { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join', displayname: 'Zoe' } },
      [head],
      state,
    );
    const resting = server.make(
      { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join', displayname: 'Z.' } },
      [renamed],
      applied(state, renamed),
    );
    const persister = rooms.get(EventPersister);
    await persister.receiveOutliers(roomId, [resting]);
    await persister.receiveOutliers(roomId, [resting, renamed]);
    const on = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'on top' } },
      [head],
      applied(state, resting),
    );
    expect(on.authEventIds).toContain(resting.eventId);
    expect(await receive(on)).toEqual(['accepted']);
  });

  it('does not let an event that is refused in one room stand in the way of another', async () => {
    const one = await shared();
    const other = await shared();
    const alien = (name: string, eventId: string): RoomEvent =>
      other.server.make(
        {
          ...{ type: 'm.room.member', stateKey: zoe, sender: zoe },
          content: { membership: 'join', displayname: name },
          auth: [eventId],
        },
        [other.head],
        other.state,
      );
    let before = one.state;
    let prev = one.head;
    for (let n = 0; n < 4; n++) {
      const member = one.server.make(
        {
          ...{ type: 'm.room.member', stateKey: zoe, sender: zoe },
          content: { membership: 'join', displayname: `name ${n}` },
        },
        [prev],
        before,
      );
      expect(await receive(member)).toEqual(['accepted']);
      // It claims the place behind the member event, of another room.
      expect(await receive(alien(`x${n}`, member.eventId))).toEqual(['rejected']);
      before = applied(before, member);
      prev = member;
    }
    const placed = await test.database.query(
      `SELECT 1 FROM event_auth_chains c JOIN events e ON e.event_id = c.event_id
       WHERE e.rejection_reason IS NOT NULL AND e.room_id = ?`,
      [other.roomId],
    );
    expect(placed).toEqual([]);
    for (const { roomId } of [one, other]) {
      const row = await test.database.get<{ complete: unknown }>(
        'SELECT has_auth_chain_index AS complete FROM rooms WHERE room_id = ?',
        [roomId],
      );
      expect(Boolean(row?.complete)).toBe(true);
    }
  });

  it('takes no state from another room, and does not stumble over events that follow upon nothing', async () => {
    const one = await shared();
    const other = await shared();
    const message = { type: 'm.room.message', sender: zoe, content: { body: 'hi' } };
    const before = [...(await stateOf(one.roomId)).values()].map((event) => event.eventId).sort();
    const strays = [other.head, [...other.state.values()][0]!].map((alien) =>
      one.server.make(message, [one.head, alien], one.state),
    );
    strays.push(one.server.make(message, [other.head], one.state));
    for (const stray of strays) expect(await receive(stray)).toEqual(['missingAncestors']);
    expect(await receive(one.server.make(message, [], one.state))).toEqual(['rejected']);
    expect([...(await stateOf(one.roomId)).values()].map((event) => event.eventId).sort()).toEqual(before);
    expect(await receive(one.server.make(message, [one.head], one.state))).toEqual(['accepted']);
  });

  it('invites nobody from outside who has joined meanwhile', async () => {
    const { roomId, server, state, head } = await shared();
    const invite = server.make(
      { type: 'm.room.member', stateKey: alice.userId, sender: zoe, content: { membership: 'invite' } },
      [head],
      state,
    );
    await rooms.get(EventPersister).receiveOutOfBand('11', invite);
    expect((await rooms.get(MembershipReader).inRoom(alice.userId, roomId))?.membership).toBe('join');
  });

  it('lets nobody redact in one room what was said in another', async () => {
    const there = (await rooms.get(RoomCreation).create(alice, { room_version: '11', preset: 'public_chat' })).roomId;
    const say = (content: JsonObject) =>
      rooms.get(EventCreation).send(alice, { roomId: there, type: 'm.room.message', content });
    const first = await say({ msgtype: 'm.text', body: 'one' });
    const relation = { 'm.relates_to': { rel_type: 'm.reference', event_id: first.eventId } };
    const cached = await say({ msgtype: 'm.text', body: 'two', ...relation });
    const read = await say({ msgtype: 'm.text', body: 'three', ...relation });
    const { server, state, head } = await shared();
    const levels = server.make(
      {
        type: 'm.room.power_levels',
        stateKey: '',
        sender: alice.userId,
        content: { users: { [alice.userId]: 100, [zoe]: 100 } },
      },
      [head],
      state,
    );
    expect(await receive(levels)).toEqual(['accepted']);
    const events = rooms.get(RoomReadingService)['events'];
    events.forget([read.eventId]);
    let last = levels;
    for (const { eventId } of [cached, read]) {
      last = server.make(
        { type: 'm.room.redaction', sender: zoe, content: { redacts: eventId } },
        [last],
        applied(state, levels),
      );
      expect(await receive(last)).toEqual(['accepted']);
    }
    for (const { eventId } of [cached, read]) {
      expect((await events.one(eventId))?.redactedBy).toBeUndefined();
      expect((await events.one(eventId))?.event.content).toHaveProperty('body');
      const related = 'SELECT relates_to_id FROM event_relations WHERE event_id = ?';
      expect(await test.database.query(related, [eventId])).toEqual([{ relates_to_id: first.eventId }]);
    }
  });

  it('makes what is redacted final in its time, whatever the time of the redaction says, and whichever came first', async () => {
    const { roomId, server, state, head } = await shared();
    const say = (body: string): RoomEvent =>
      server.make({ type: 'm.room.message', sender: zoe, content: { body } }, [head], state);
    const redact = ({ eventId }: RoomEvent): RoomEvent =>
      server.make({ type: 'm.room.redaction', sender: zoe, content: { redacts: eventId } }, [head], state);
    const left = async ({ eventId }: RoomEvent): Promise<boolean> => {
      const row = await test.database.get<{ json: string }>('SELECT json FROM event_json WHERE event_id = ?', [
        eventId,
      ]);
      return (row?.json ?? '').includes('"body"');
    };
    const [here, late] = [say('here'), say('late')];
    // Both say that they are of 1970.
    expect(await receive(here, redact(here), redact(late))).toEqual(['accepted', 'accepted', 'accepted']);
    const censor = rooms.get(RedactionCensor);
    await censor.run();
    expect(await left(here)).toBe(true);
    // As one of before, whose sender's clock is far ahead.
    await test.database.write((tx) =>
      tx.run('UPDATE redactions SET received_ts = ? WHERE redacts = ?', [clock.nowMs() * 2, here.eventId]),
    );
    await censor.run();
    await clock.jump(8 * 24 * 3_600_000);
    await censor.run();
    expect(await left(here)).toBe(false);
    expect(await receive(late)).toEqual(['accepted']);
    expect(await left(late)).toBe(true);
    await censor.run();
    expect(await left(late)).toBe(false);
    expect(await timeline(roomId)).toContain(late.eventId);
  });

  it('takes nothing from the event that began a room, whoever redacts it', async () => {
    const { roomId, server, state, head } = await shared('10', { power_level_content_override: { redact: 0 } });
    const create = state.get(stateKeyOf('m.room.create', ''))!;
    expect(create.content['room_version']).toBe('10');
    const ofCreate = server.make({ type: 'm.room.redaction', sender: zoe, redacts: create.eventId }, [head], state);
    const ofJoin = server.make({ type: 'm.room.redaction', sender: yan, redacts: head.eventId }, [ofCreate], state);
    expect(await receive(ofCreate, ofJoin)).toEqual(['accepted', 'accepted']);
    const events = rooms.get(EventStore);
    const assertWhole = async (): Promise<void> => {
      const stored = await events.one(create.eventId);
      expect([stored?.event.content, stored?.redactedBy]).toEqual([create.content, undefined]);
      expect((await events.one(head.eventId))?.redactedBy).toBe(ofJoin.eventId);
      const told = await timeline(roomId);
      expect(told).toContain(ofJoin.eventId);
      expect(told).not.toContain(ofCreate.eventId);
    };
    await assertWhole();
    const entries = await events.inOrder([ofCreate.eventId, ofJoin.eventId]);
    // The database says the same as the cache.
    events.forget([create.eventId, head.eventId]);
    expect(await events.withoutVoidRedactions(entries)).toEqual(entries.slice(1));
    await assertWhole();
    await clock.jump(8 * 24 * 3_600_000);
    await rooms.get(RedactionCensor).run();
    const open = 'SELECT event_id FROM redactions WHERE have_censored = FALSE AND redacts = ?';
    expect(await test.database.query(open, [create.eventId])).toEqual([]);
    await assertWhole();
  });

  it.each(['1', '11', '12'])('takes events in order, once each (version %s)', async (version) => {
    const { roomId, server, state, head } = await shared(version);
    const first = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'hi' } }, [head], state);
    const second = server.make({ type: 'm.room.message', sender: yan, content: { body: 'ho' } }, [first], state);
    expect(await receive(second)).toEqual(['missingAncestors']);
    expect(await receive(first, second)).toEqual(['accepted', 'accepted']);
    expect(await receive(first)).toEqual(['known']);
    expect((await timeline(roomId)).slice(0, 2)).toEqual([second.eventId, first.eventId]);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([second.eventId]);
    const sent = await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'back' } });
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([sent.eventId]);
  });

  it('rejects what the rules forbid and never shows it', async () => {
    const { roomId, server, state, head } = await shared();
    const steal = server.make(
      { type: 'm.room.power_levels', stateKey: '', sender: zoe, content: { users: { [zoe]: 100 } } },
      [head],
      state,
    );
    const stranger = server.make(
      { type: 'm.room.message', sender: `@nobody:${remoteServer}`, content: { body: 'x' } },
      [head],
      state,
    );
    expect(await receive(steal, stranger)).toEqual(['rejected', 'rejected']);
    const seen = await timeline(roomId);
    expect(seen).not.toContain(steal.eventId);
    expect(seen).not.toContain(stranger.eventId);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([head.eventId]);
    await expect(rooms.get(RoomReadingService).event(alice, roomId, steal.eventId)).rejects.toMatchObject({
      errcode: 'M_NOT_FOUND',
    });
    const onTop = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'after' }, auth: [...head.authEventIds, steal.eventId] },
      [head],
      state,
    );
    expect(await receive(onTop)).toEqual(['rejected']);
  });

  it('soft-fails what only the past would allow', async () => {
    const { roomId, server, state, head } = await shared();
    await rooms.get(MembershipService).ban(alice, roomId, zoe);
    const late = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'sneaky' } }, [head], state);
    expect(await receive(late)).toEqual(['softFailed']);
    expect(await timeline(roomId)).not.toContain(late.eventId);
    expect((await headsOf(roomId)).map((event) => event.type)).toEqual(['m.room.member']);
  });

  it('judges an event that names one before it twice by that one alone', async () => {
    const { roomId, server, state, head } = await shared();
    await rooms.get(MembershipService).ban(alice, roomId, yan);
    const fork = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'fork' } }, [head], state);
    expect(await receive(fork)).toEqual(['accepted']);
    expect(await headsOf(roomId)).toHaveLength(2);
    // Of the ban, which is the other end of the room, its server has not heard.
    const late = server.make({ type: 'm.room.message', sender: yan, content: { body: 'late' } }, [fork, fork], state);
    expect(await receive(late)).toEqual(['softFailed']);
  });

  it('joins forks and resolves their state, in whatever order they arrive', async () => {
    const { roomId, server, state, head } = await shared();
    const left = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'left' } }, [head], state);
    const right = server.make({ type: 'm.room.message', sender: yan, content: { body: 'right' } }, [head], state);
    expect(await receive(right, left)).toEqual(['accepted', 'accepted']);
    expect((await headsOf(roomId)).length).toBe(2);
    await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.name', stateKey: '', content: { name: 'together' } });
    expect((await headsOf(roomId)).length).toBe(1);
  });

  it('resolves a conflict of member states by the rules, not by arrival', async () => {
    const { roomId, server, state, head } = await shared();
    // alice bans yan here; elsewhere yan changed his name on top of the older state.
    await rooms.get(MembershipService).ban(alice, roomId, yan);
    const rename = server.make(
      {
        type: 'm.room.member',
        stateKey: yan,
        sender: yan,
        content: { membership: 'join', displayname: 'Yan the free' },
      },
      [head],
      state,
    );
    expect(await receive(rename)).toEqual(['softFailed']);
    const merge = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'merge' } },
      [...(await headsOf(roomId)), rename],
      state,
    );
    expect(await receive(merge)).toEqual(['accepted']);
    expect((await stateOf(roomId)).get(stateKeyOf('m.room.member', yan))!.content['membership']).toBe('ban');
    const groups = await test.database.query(
      'SELECT * FROM state_group_edges e WHERE NOT EXISTS (SELECT 1 FROM state_groups g WHERE g.id = e.prev_state_group)',
    );
    expect(groups).toEqual([]);
  });

  it.each(['6', '10'])('resolves by power levels as they were sent, redacted or not (version %s)', async (version) => {
    const options = { power_level_content_override: { invite: 50 } };
    const { roomId, server, state, head } = await shared(version, options);
    const levels = state.get(stateKeyOf('m.room.power_levels', ''))!;
    const inviteOf = (userId: string): RoomEvent =>
      server.make(
        { type: 'm.room.member', stateKey: userId, sender: zoe, content: { membership: 'invite' } },
        [head],
        state,
      );
    const early = inviteOf(`@early:${remoteServer}`);
    expect(await receive(early)).toEqual(['rejected']);
    await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.redaction', content: {}, redacts: levels.eventId });
    const events = rooms.get(EventStore);
    expect((await events.one(levels.eventId))?.event.content).not.toHaveProperty('invite');
    // By what is left of them anybody may invite; a fork makes the room's state be resolved.
    const invites = ['one', 'two'].map((name) => inviteOf(`@${name}:${remoteServer}`));
    for (const invite of invites) {
      await receive(invite);
      expect((await events.one(invite.eventId))?.rejectedReason).toBeUndefined();
      // The first time they are cached, the second time they are not.
      events.forget([levels.eventId]);
    }
    const merge = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'merge' } },
      [...(await headsOf(roomId)), ...invites],
      state,
    );
    expect(await receive(merge)).toEqual(['accepted']);
    const now = await stateOf(roomId);
    for (const { stateKey } of [early, ...invites]) expect(now.has(stateKeyOf('m.room.member', stateKey!))).toBe(false);
    expect(now.get(stateKeyOf('m.room.power_levels', ''))?.eventId).toBe(levels.eventId);
  });

  it('asks for what is between first, and for auth events all at once', async () => {
    const { roomId, server, state, head } = await shared();
    // Zoe renames herself 30 times; none of it has come in. The last message rests upon the last name.
    let now: ReadonlyMap<string, RoomEvent> = state;
    const chain = [head];
    for (let n = 0; n < 30; n++) {
      const content = { membership: 'join', displayname: `${n}` };
      const rename = server.make({ type: 'm.room.member', stateKey: zoe, sender: zoe, content }, chain.slice(-1), now);
      chain.push(rename);
      now = applied(now, rename);
    }
    const message = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'x' } }, chain.slice(-1), now);
    const asked: string[] = [];
    const given = { withholds: false };
    rooms.get(RoomPorts).missingEvents.replace({
      missingEvents: async () => {
        asked.push('get_missing_events');
        return given.withholds ? [] : chain.slice(1);
      },
      events: async (_origin, _room, ids) => {
        asked.push(...ids.map(() => 'event'));
        return ids.flatMap((id) => server.known.get(id) ?? []);
      },
      authChain: async () => {
        asked.push('event_auth');
        return chain.slice(1);
      },
      stateBefore: async () => {
        asked.push('state');
        return { state: [...now.values()], authChain: [...state.values(), ...chain.slice(1)] };
      },
    });
    const inbound = rooms.get(InboundEvents);
    expect(await inbound.receive(remoteServer, roomId, { event: message })).toMatchObject({ kind: 'accepted' });
    expect(asked).toEqual(['get_missing_events']);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([message.eventId]);
    // Where nothing is told of what is between, one answer brings all that the event rests upon.
    const more = [message];
    for (let n = 0; n < 30; n++) {
      const content = { membership: 'join', displayname: `again ${n}` };
      const rename = server.make({ type: 'm.room.member', stateKey: zoe, sender: zoe, content }, more.slice(-1), now);
      more.push(rename);
      now = applied(now, rename);
    }
    const last = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'y' } }, more.slice(-1), now);
    given.withholds = true;
    chain.splice(1, chain.length, ...more.slice(1));
    asked.length = 0;
    expect(await inbound.receive(remoteServer, roomId, { event: last })).toMatchObject({ kind: 'accepted' });
    expect(asked).toEqual(['get_missing_events', 'event_auth', 'state']);
  });

  it('fetches what a server withholds, and takes its state where the gap stays', async () => {
    const { roomId, server, state, head } = await shared();
    const chain: RoomEvent[] = [head];
    for (let i = 0; i < 6; i++) {
      chain.push(
        server.make({ type: 'm.room.message', sender: zoe, content: { body: `${i}` } }, [chain.at(-1)!], state),
      );
    }
    let answers = 0;
    rooms.get(RoomPorts).missingEvents.replace({
      missingEvents: async () => {
        answers++;
        return chain.slice(3, 6).reverse();
      },
      events: async (_origin, _room, ids) => ids.flatMap((id) => server.known.get(id) ?? []),
      authChain: async () => [],
      stateBefore: async () => ({ state: [...state.values()], authChain: [...state.values()] }),
    });
    const verdict = await rooms.get(InboundEvents).receive(remoteServer, roomId, { event: chain[6]! });
    expect(verdict.kind).toBe('accepted');
    expect(answers).toBe(1);
    const seen = await timeline(roomId);
    for (const event of chain.slice(3)) expect(seen).toContain(event.eventId);
    const gaps = await test.database.query<{ event_id: string }>(
      'SELECT event_id FROM event_backward_extremities WHERE room_id = ?',
      [roomId],
    );
    expect(gaps).toEqual([{ event_id: chain[2]!.eventId }]);
    expect(await receive(chain[1]!, chain[2]!)).toEqual(['accepted', 'accepted']);
    const left = await test.database.query('SELECT event_id FROM event_backward_extremities WHERE room_id = ?', [
      roomId,
    ]);
    expect(left).toEqual([]);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toEqual([chain[6]!.eventId]);
  });

  it.each(['1', '10', '12'])(
    'lets go on who came within a gap that stays, and nobody who is banned here (version %s)',
    async (version) => {
      const { roomId, server } = await shared(version, { power_level_content_override: { invite: 0 } });
      const carol = '@carol:third.test';
      await rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.join_rules', stateKey: '', content: { join_rule: 'invite' } });
      let state = await stateOf(roomId);
      let prev = await headsOf(roomId);
      // Of this nobody tells: yan lets carol in and leaves, zoe renames herself.
      for (const [sender, stateKey, content] of [
        [yan, carol, { membership: 'invite' }],
        [carol, carol, { membership: 'join' }],
        [yan, yan, { membership: 'leave' }],
        [zoe, zoe, { membership: 'join', displayname: 'Z.' }],
      ] as const) {
        prev = [server.make({ type: 'm.room.member', stateKey, sender, content }, prev, state)];
        state = applied(state, ...prev);
      }
      rooms.get(RoomPorts).missingEvents.replace({
        missingEvents: async () => [],
        events: async (_origin, _room, ids) => ids.flatMap((id) => server.known.get(id) ?? []),
        authChain: async () => [],
        stateBefore: async () => ({ state: [...state.values()], authChain: [...server.known.values()] }),
      });
      await rooms.get(MembershipService).ban(alice, roomId, zoe);
      const say = (sender: string, before: readonly RoomEvent[]): RoomEvent =>
        server.make({ type: 'm.room.message', sender, content: { body: `by ${sender}` } }, before, state);
      const arrive = async (event: RoomEvent): Promise<string> =>
        (await rooms.get(InboundEvents).receive('third.test', roomId, { event })).kind;
      const sneaky = say(zoe, prev);
      expect(await arrive(sneaky)).toBe('softFailed');
      const first = say(carol, prev);
      expect(await arrive(first)).toBe('accepted');
      const second = say(carol, [first]);
      expect(await arrive(second)).toBe('accepted');
      const again = say(zoe, [second]);
      expect(await arrive(again)).toBe('softFailed');
      const seen = await timeline(roomId);
      expect(seen.slice(0, 2)).toEqual([second.eventId, first.eventId]);
      for (const { eventId } of [sneaky, again]) expect(seen).not.toContain(eventId);
      expect((await headsOf(roomId)).map((event) => event.eventId)).toContain(second.eventId);
      const now = await stateOf(roomId);
      const memberships = [carol, yan, zoe].map(
        (id) => now.get(stateKeyOf('m.room.member', id))?.content['membership'],
      );
      expect(memberships).toEqual(['join', 'leave', 'ban']);
    },
  );

  it.each(['1', '10', '12'])(
    'believes nobody who tells of a member that only the rules of long ago let in (version %s)',
    async (version) => {
      const { roomId, server, state: open, head } = await shared(version);
      const mallory = `@mallory:${remoteServer}`;
      const content = { membership: 'join' };
      const join = server.make(
        { type: 'm.room.member', stateKey: mallory, sender: mallory, content },
        [head],
        applied(open),
      );
      await rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.join_rules', stateKey: '', content: { join_rule: 'invite' } });
      const closed = await stateOf(roomId);
      const heads = await headsOf(roomId);
      const told = applied(closed, join);
      const withheld = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'x' } }, heads, closed);
      const sneaky = server.make({ type: 'm.room.message', sender: mallory, content: { body: 'y' } }, [withheld], told);
      rooms.get(RoomPorts).missingEvents.replace({
        missingEvents: async () => [],
        events: async (_origin, _room, ids) => ids.flatMap((id) => server.known.get(id) ?? []),
        authChain: async () => [join, ...open.values(), ...closed.values()],
        stateBefore: async () => ({ state: [...told.values()], authChain: [...open.values(), ...closed.values()] }),
      });
      const { kind } = await rooms.get(InboundEvents).receive(remoteServer, roomId, { event: sneaky });
      expect(kind).toBe('softFailed');
      const after = server.make({ type: 'm.room.message', sender: mallory, content: { body: 'z' } }, [sneaky], told);
      expect(await receive(after)).toEqual(['softFailed']);
      expect(await headsOf(roomId)).toEqual(heads);
      expect([...(await stateOf(roomId)).keys()]).not.toContain(stateKeyOf('m.room.member', mallory));
    },
  );

  it('goes on behind an event that cannot be stored, whatever is wrong with it', async () => {
    const { roomId, server, state, head } = await shared();
    const say = (body: string, prev: RoomEvent): RoomEvent =>
      server.make({ type: 'm.room.message', sender: zoe, content: { body } }, [prev], state);
    const broken = say('broken', head);
    rooms.get(RoomHooks).subscribe({
      inTransaction: async (_tx, { events }) => {
        if (events.some(({ event }) => event.eventId === broken.eventId)) throw new Error('broken');
      },
    });
    rooms.get(RoomPorts).missingEvents.replace({
      missingEvents: async () => [broken],
      events: async (_origin, _room, ids) => ids.flatMap((id) => server.known.get(id) ?? []),
      authChain: async () => [],
      stateBefore: async () => ({ state: [...state.values()], authChain: [...state.values()] }),
    });
    const arrive = async (event: RoomEvent): Promise<string> =>
      (await rooms.get(InboundEvents).receive(remoteServer, roomId, { event })).kind;
    await expect(receive(broken)).rejects.toThrow('broken');
    // The second one comes when it is known already that something follows upon the broken one.
    const after = [say('one', broken), say('another', broken)];
    for (const event of after) expect(await arrive(event)).toBe('accepted');
    expect(await timeline(roomId)).toEqual(expect.arrayContaining(after.map(({ eventId }) => eventId)));
    expect(await timeline(roomId)).not.toContain(broken.eventId);
  });

  it('stores what it fetched of a gap together', async () => {
    const { roomId, server, state, head } = await shared();
    const lost = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'lost' } }, [head], state);
    let now: ReadonlyMap<string, RoomEvent> = state;
    const chain = [lost];
    for (let n = 0; n < 100; n++) {
      const content = { membership: 'join', displayname: `${n}` };
      const rename = server.make({ type: 'm.room.member', stateKey: zoe, sender: zoe, content }, chain.slice(-1), now);
      chain.push(rename);
      now = applied(now, rename);
    }
    const last = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'x' } }, chain.slice(-1), now);
    let states = 0;
    rooms.get(RoomPorts).missingEvents.replace({
      missingEvents: async () => chain.slice(1).reverse(),
      events: async () => [],
      authChain: async () => [],
      stateBefore: async () => {
        states++;
        return { state: [...state.values()], authChain: [...state.values()] };
      },
    });
    const { database } = test;
    const before = { write: database.write, query: database.query, get: database.get };
    const count = { writes: 0, reads: 0 };
    database.write = (...args) => {
      count.writes++;
      return before.write.apply(database, args as Parameters<typeof database.write>) as never;
    };
    database.query = ((...args: Parameters<typeof database.query>) => {
      count.reads++;
      return before.query.apply(database, args);
    }) as typeof database.query;
    database.get = ((...args: Parameters<typeof database.get>) => {
      count.reads++;
      return before.get.apply(database, args);
    }) as typeof database.get;
    try {
      const verdict = await rooms.get(InboundEvents).receive(remoteServer, roomId, { event: last });
      expect(verdict.kind).toBe('accepted');
    } finally {
      Object.assign(database, before);
    }
    expect(states).toBe(1);
    expect((await headsOf(roomId)).map((event) => event.eventId)).toContain(last.eventId);
    const seen = await timeline(roomId);
    for (const event of [...chain.slice(1), last]) expect(seen).toContain(event.eventId);
    expect(count.writes).toBeLessThan(10);
    // Less than one for each, though the room has two heads and its state is resolved anew with each.
    expect(count.reads).toBeLessThan(chain.length);
  });

  it.each(['10', '12'])('joins a room of another server with the state it is given (version %s)', async (version) => {
    const roomId = version === '12' ? undefined : `!elsewhere${version}:${remoteServer}`;
    const server = new RemoteServer(version, roomId);
    const creation = version === '12' ? { room_version: version } : { room_version: version, creator: zoe };
    const create = server.make({ type: 'm.room.create', stateKey: '', sender: zoe, content: creation }, [], new Map());
    let state = applied(new Map(), create);
    let last = create;
    const add = (type: string, stateKey: string, content: JsonObject): void => {
      last = server.make({ type, stateKey, sender: zoe, content }, [last], state);
      state = applied(state, last);
    };
    add('m.room.member', zoe, { membership: 'join' });
    add('m.room.join_rules', '', { join_rule: 'public' });
    const join = server.make(
      { type: 'm.room.member', stateKey: alice.userId, sender: alice.userId, content: { membership: 'join' } },
      [last],
      state,
    );
    const all = [...state.values()];
    const verdict = await rooms
      .get(EventPersister)
      .receiveWithState(version, { event: join }, { state: all, authChain: all });
    expect(verdict.kind).toBe('accepted');
    expect((await stateOf(join.roomId)).size).toBe(state.size + 1);
    await rooms.get(JoinService).join(bob, join.roomId);
    const older = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'older' } }, [create], state);
    await rooms.get(EventPersister).backfill(join.roomId, [older], { state: all, authChain: all });
    expect(await timeline(join.roomId)).toContain(older.eventId);
  });

  it('covers the auth chain of an invite that was known before its room', async () => {
    const { state, add } = stateLine(new RemoteServer('10', `!later:${remoteServer}`));
    add('m.room.create', '', zoe, { room_version: '10', creator: zoe });
    add('m.room.member', zoe, zoe, { membership: 'join' });
    add('m.room.join_rules', '', zoe, { join_rule: 'invite' });
    const invite = add('m.room.member', bob.userId, zoe, { membership: 'invite' });
    const { roomId } = invite;
    await rooms.get(EventPersister).receiveOutOfBand('10', invite);
    const known = [...state.values()];
    const join = add('m.room.member', bob.userId, bob.userId, { membership: 'join' });
    const verdict = await rooms
      .get(EventPersister)
      .receiveWithState('10', { event: join }, { state: known, authChain: known });
    expect(verdict.kind).toBe('accepted');
    const uncovered = () =>
      test.database.query(
        `SELECT e.event_id FROM events e LEFT JOIN event_auth_chains c ON c.event_id = e.event_id
         WHERE e.room_id = ? AND e.state_key IS NOT NULL AND c.generation IS NULL`,
        [roomId],
      );
    expect(await uncovered()).not.toEqual([]);
    await rooms.get(ChainCovers).completeAll();
    expect(await uncovered()).toEqual([]);
    await rooms.get(EventCreation).send(bob, { roomId, type: 'm.room.message', content: { body: 'here' } });
  });

  it('takes an invite to a room it does not know, and lets the user reject it though nobody listens', async () => {
    const roomId = `!far:${remoteServer}`;
    const server = new RemoteServer('10', roomId);
    const invite = server.make(
      { type: 'm.room.member', stateKey: bob.userId, sender: zoe, content: { membership: 'invite' } },
      [],
      new Map(),
    );
    await rooms.get(EventPersister).receiveOutOfBand('10', invite);
    await rooms.get(EventPersister).receiveOutOfBand('10', invite);
    const memberships = rooms.get(MembershipReader);
    expect(await memberships.inRoom(bob.userId, roomId)).toMatchObject({ membership: 'invite', sender: zoe });
    await expect(rooms.get(JoinService).join(bob, roomId)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await rooms.get(LeaveService).leave(bob, roomId, { reason: 'no, thanks' });
    expect(await memberships.inRoom(bob.userId, roomId)).toMatchObject({ membership: 'leave', sender: bob.userId });
    await rooms.get(RoomForgetting).forget(bob, roomId);
    const [change] = (await memberships.changesOf(bob.userId, 0, Number.MAX_SAFE_INTEGER)).slice(-1);
    expect(change).toMatchObject({ roomId, membership: 'leave' });
  });

  it('brings no room back to who has forgotten it, because somebody else joins', async () => {
    const { state, add } = stateLine(new RemoteServer('10', `!forgotten:${remoteServer}`));
    add('m.room.create', '', zoe, { room_version: '10', creator: zoe });
    add('m.room.member', zoe, zoe, { membership: 'join' });
    add('m.room.join_rules', '', zoe, { join_rule: 'public' });
    const invite = add('m.room.member', bob.userId, zoe, { membership: 'invite' });
    const { roomId } = invite;
    const persister = rooms.get(EventPersister);
    await persister.receiveOutOfBand('10', invite);
    await persister.receiveOutOfBand('10', add('m.room.member', bob.userId, bob.userId, { membership: 'leave' }));
    await rooms.get(RoomForgetting).forget(bob, roomId);
    const known = [...state.values()];
    const join = add('m.room.member', alice.userId, alice.userId, { membership: 'join' });
    const given = { state: known, authChain: [...known, invite] };
    expect(await persister.receiveWithState('10', { event: join }, given)).toMatchObject({ kind: 'accepted' });
    const ofBob = async (): Promise<unknown> =>
      (await rooms.get(MembershipReader).roomsOf(bob.userId)).find((each) => each.roomId === roomId);
    expect(await ofBob()).toMatchObject({ membership: 'leave', forgotten: true });
    // Whatever is new about their membership does.
    const again = add('m.room.member', bob.userId, zoe, { membership: 'invite' });
    expect(await receive(again)).toEqual(['accepted']);
    expect(await ofBob()).toMatchObject({ membership: 'invite', forgotten: false });
  });

  it('joins and knocks by the servers that are named, and by what it knows of the room where none is', async () => {
    const asked: (readonly string[])[] = [];
    const note = async (_user: string, _room: string, servers: readonly string[]): Promise<void> => {
      asked.push(servers);
    };
    rooms
      .get(RoomPorts)
      .remoteRooms.replace({ membership: { join: note, knock: note } } as unknown as RemoteRoomGateway);
    const elsewhere = '!far:named.test';
    await rooms.get(JoinService).join(alice, elsewhere, { via: ['one.test', 'example.org', 'one.test', 'two.test'] });
    await rooms.get(JoinService).knock(alice, elsewhere, { via: ['one.test'] });
    await rooms.get(JoinService).join(alice, elsewhere, { via: ['example.org'] });
    await rooms.get(JoinService).join(alice, elsewhere);
    expect(asked).toEqual([['one.test', 'two.test'], ['one.test'], ['named.test'], ['named.test']]);
    // The id of such a room names no server.
    const { roomId } = await shared('12');
    await rooms.get(LeaveService).leave(alice, roomId);
    await rooms.get(JoinService).join(alice, roomId);
    await rooms.get(JoinService).join(alice, roomId, { via: ['one.test'] });
    expect(asked.slice(4)).toEqual([[remoteServer], ['one.test']]);
    rooms.get(RoomPorts).remoteRooms.replace(undefined);
  });

  it('says why somebody joins, also where somebody elsewhere has to let them in', async () => {
    const given: unknown[] = [];
    const joinAuthorised = async (_user: string, _room: string, _via: readonly string[], content: JsonObject) =>
      void given.push(content['reason']);
    rooms.get(RoomPorts).remoteRooms.replace({ membership: { joinAuthorised } } as unknown as RemoteRoomGateway);
    const { roomId: club } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, club);
    const content = { join_rule: 'restricted', allow: [{ type: 'm.room_membership', room_id: club }] };
    const { roomId } = await rooms.get(RoomCreation).create(alice, {
      room_version: '11',
      power_level_content_override: { invite: 101 },
      initial_state: [{ type: 'm.room.join_rules', state_key: '', content }],
    });
    await rooms.get(JoinService).join(bob, roomId, { reason: 'for the club' });
    expect(given).toEqual(['for the club']);
    rooms.get(RoomPorts).remoteRooms.replace(undefined);
  });

  it('asks the server of whom it invites for its signature', async () => {
    const { roomId } = await rooms.get(RoomCreation).create(alice, { name: 'Come in' });
    const shown: unknown[] = [];
    const gateway = {
      invite: async (event: RoomEvent, state: readonly JsonObject[]) => {
        shown.push(...state.map((each) => each['type']));
        return signEvent(event, remoteServer, remoteKey);
      },
    };
    rooms.get(RoomPorts).remoteRooms.replace({ membership: gateway } as unknown as RemoteRoomGateway);
    await rooms.get(MembershipService).invite(alice, roomId, zoe);
    const invite = (await stateOf(roomId)).get(stateKeyOf('m.room.member', zoe))!;
    expect(Object.keys(invite.pdu['signatures'] as object).sort()).toEqual(['example.org', remoteServer]);
    expect(shown).toEqual(expect.arrayContaining(['m.room.create', 'm.room.name', 'm.room.member']));
    const refusing = { invite: () => Promise.reject(MatrixError.forbidden('Not to us')) };
    rooms.get(RoomPorts).remoteRooms.replace({ membership: refusing } as unknown as RemoteRoomGateway);
    await expect(rooms.get(MembershipService).invite(alice, roomId, yan)).rejects.toMatchObject({
      message: 'Not to us',
    });
    expect((await stateOf(roomId)).has(stateKeyOf('m.room.member', yan))).toBe(false);
    rooms.get(RoomPorts).remoteRooms.replace(undefined);
  });

  it('is not wedged by absurd depths', async () => {
    const { roomId, server, state, head } = await shared('11');
    const deep = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'deep' }, depth: Number.MAX_SAFE_INTEGER },
      [head],
      state,
    );
    expect(await receive(deep)).toEqual(['accepted']);
    const send = () =>
      rooms
        .get(EventCreation)
        .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'x' } });
    await send();
    await send();
    expect((await timeline(roomId)).length).toBeGreaterThan(8);
  });
});
