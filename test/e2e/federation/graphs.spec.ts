import type { RoomEvent } from '@rookery/events';
import { stateKeyOf } from '@rookery/state-res';
import type { TestUser } from '@rookery/testing';
import { databases, join, leave, ok, outcome, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { remoteName } from './remote-server.js';
import { nobodyHelps, TwoServers, yan, zoe } from './two-servers.js';

interface Unread {
  readonly rooms: {
    readonly join: Record<
      string,
      {
        readonly timeline: { readonly events: WireEvent[] };
        readonly unread_notifications: { readonly notification_count: number };
        readonly 'org.matrix.msc2654.unread_count': number;
      }
    >;
  };
}

const v1 = '/_matrix/client/v1';

describe.each(databases)('graphs of other servers (%s)', (database) => {
  let servers: TwoServers;
  let alice: TestUser;

  beforeAll(async () => {
    servers = await TwoServers.start(database, {
      ...{ experimental_features: { msc2654_enabled: true }, retention: { enabled: true } },
    });
    ({ alice } = servers);
  });
  beforeEach(() => servers.inside.useMissingEvents(nobodyHelps));
  afterAll(() => servers?.homeserver.stop());

  it('never shows what was rejected or soft-failed, by whichever way', async () => {
    const { roomId, server, state, head } = await servers.shared('12');
    const target = await say(alice, roomId, 'target');
    const [tip] = await servers.inside.heads(roomId);
    if (!tip) throw new Error('a room without a head');
    const about = { 'm.relates_to': { rel_type: 'm.thread', event_id: target } };
    const levels = { users: { [zoe]: 100 } };
    const nobody = `@nobody:${remoteName}`;
    const { next_batch: since } = await servers.syncOf(roomId);
    const rejected = [
      server.make({ type: 'm.room.power_levels', stateKey: '', sender: zoe, content: levels }, [tip], state),
      server.make({ type: 'm.room.name', stateKey: '', sender: zoe, content: { name: 'stolen' } }, [tip], state),
      server.make({ type: 'm.room.message', sender: nobody, content: { body: 'hidden', ...about } }, [tip], state),
      server.make({ type: 'm.room.member', stateKey: yan, sender: zoe, content: { membership: 'ban' } }, [tip], state),
      server.make({ type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'king' } }, [tip], state),
      server.make({ type: 'm.room.create', stateKey: '', sender: zoe, content: { room_version: '12' } }, [tip], state),
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'hidden', ...about }, auth: [] },
        [tip],
        state,
      ),
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'hidden' }, auth: [tip.eventId] },
        [tip],
        state,
      ),
    ];
    for (const event of rejected)
      expect({ type: event.type, verdict: await servers.receive(event) }).toEqual({
        type: event.type,
        verdict: 'rejected',
      });
    // Whatever builds on one of them may stand, but the room's state does not follow.
    const onTop = server.make(
      { type: 'm.room.message', sender: yan, content: { body: 'on top' } },
      rejected.slice(0, 2),
      state,
    );
    expect(await servers.receive(onTop)).toBe('accepted');
    const relying = server.make(
      {
        type: 'm.room.message',
        sender: zoe,
        content: { body: 'hidden' },
        auth: [...head.authEventIds, rejected[0]?.eventId ?? ''],
      },
      [onTop],
      state,
    );
    expect(await servers.receive(relying)).toBe('rejected');
    await ok(alice, 'POST', `/rooms/${roomId}/ban`, { user_id: zoe });
    const late = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'hidden', ...about } },
      [onTop],
      state,
    );
    const lateEdit = server.make(
      {
        type: 'm.reaction',
        sender: zoe,
        content: { 'm.relates_to': { rel_type: 'm.annotation', event_id: target, key: 'hidden' } },
      },
      [late],
      state,
    );
    const lateName = server.make(
      { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join', displayname: 'hidden' } },
      [onTop],
      state,
    );
    const softFailed = [late, lateEdit, lateName];
    for (const event of softFailed)
      expect({ type: event.type, verdict: await servers.receive(event) }).toEqual({
        type: event.type,
        verdict: 'softFailed',
      });

    const seen = await servers.stillWorks(roomId, since);
    expect(seen).toContain(onTop.eventId);
    for (const event of [...rejected, relying, ...softFailed]) {
      const id = encodeURIComponent(event.eventId);
      expect(seen).not.toContain(event.eventId);
      for (const [method, path] of [
        ['GET', `/rooms/${roomId}/event/${id}`],
        ['GET', `/rooms/${roomId}/context/${id}`],
        ['GET', `${v1}/rooms/${roomId}/relations/${id}`],
        ['POST', `/rooms/${roomId}/report/${id}`],
      ] as const) {
        const answer = await alice.request(method, path, method === 'POST' ? {} : undefined);
        expect({ path, outcome: outcome(answer) }).toEqual({ path, outcome: '404 M_NOT_FOUND' });
      }
    }
    const event = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${target}`);
    const related = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `${v1}/rooms/${roomId}/relations/${target}`);
    const threads = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `${v1}/rooms/${roomId}/threads`);
    expect(JSON.stringify([event, related, threads])).not.toMatch(/hidden/);
    expect(related.chunk).toEqual([]);
    const byTime = await ok<{ event_id: string }>(
      alice,
      'GET',
      `${v1}/rooms/${roomId}/timestamp_to_event?dir=f&ts=${late.originServerTs}`,
    );
    expect(softFailed.map((each) => each.eventId)).not.toContain(byTime.event_id);
    expect((await servers.stateOf(roomId)).get(stateKeyOf('m.room.member', zoe))?.content['membership']).toBe('ban');
    expect(await ok(alice, 'GET', `${v1}/room_summary/${roomId}`)).not.toHaveProperty('name');
  });

  it('shows everything on either way, when as much arrives of another branch as there was of the longer one', async () => {
    const { roomId, server, state, head } = await servers.shared('11');
    const said: string[] = [];
    for (let n = 0; n < 130; n++) said.push(await say(alice, roomId, `here ${n}`));
    const { next_batch: between } = await servers.syncOf(roomId);
    const there: string[] = [];
    let last = head;
    for (let n = 0; n < 115; n++) {
      last = server.make({ type: 'm.room.message', sender: zoe, content: { body: `there ${n}` } }, [last], state);
      expect(await servers.receive(last)).toBe('accepted');
      there.push(last.eventId);
    }
    const read = async (direction: string, from?: string): Promise<string[]> => {
      const ids: string[] = [];
      for (let token = from; ;) {
        const start = token === undefined ? '' : `&from=${token}`;
        const page = await ok<{ chunk: WireEvent[]; end?: string }>(
          alice,
          'GET',
          `/rooms/${roomId}/messages?dir=${direction}&limit=40${start}`,
        );
        for (const event of page.chunk) if (event.type === 'm.room.message') ids.push(event.event_id);
        if (page.end === undefined || page.chunk.length === 0) return ids;
        token = page.end;
      }
    };
    const all = [...said, ...there].sort();
    expect((await read('b')).sort()).toEqual(all);
    const filter = encodeURIComponent(JSON.stringify({ room: { rooms: [roomId], timeline: { limit: 5 } } }));
    const { rooms } = await ok<{
      rooms: { join: Record<string, { timeline: { events: WireEvent[]; prev_batch: string } }> };
    }>(alice, 'GET', `/sync?filter=${filter}`);
    const { events, prev_batch: start } = rooms.join[roomId]!.timeline;
    const seen = new Set([...events.map((event) => event.event_id), ...(await read('b', start))]);
    expect(all.filter((id) => !seen.has(id))).toEqual([]);
    // A place in the order of arrival, the other way: what came behind it, however deep.
    const after = new Set(await read('f', between));
    expect(there.filter((id) => !after.has(id))).toEqual([]);
  });

  it('ends a page at a place in the order of arrival by what arrived, however deep it lies', async () => {
    const { roomId, server, state, head } = await servers.shared('11');
    const root = await say(alice, roomId, 'root');
    const about = (rel: object): object => ({ 'm.relates_to': rel });
    const thread = { rel_type: 'm.thread', event_id: root };
    const before: string[] = [];
    for (let n = 0; n < 30; n++) before.push(await say(alice, roomId, `before ${n}`, about(thread)));
    const { next_batch: since } = await servers.syncOf(roomId);
    // Far less deep than what was there, and later.
    const late: string[] = [];
    let last = head;
    for (let n = 0; n < 5; n++) {
      const content = { body: `late ${n}`, 'm.relates_to': thread };
      last = server.make({ type: 'm.room.message', sender: zoe, content }, [last], state);
      expect(await servers.receive(last)).toBe('accepted');
      late.push(last.eventId);
    }
    const onTop = await say(alice, roomId, 'on top', about(thread));
    const read = async (path: string): Promise<string[]> => {
      const ids: string[] = [];
      for (let page: { chunk: WireEvent[]; end?: string; next_batch?: string } | undefined; ;) {
        const from: string = page === undefined ? '' : `&from=${page.end ?? page.next_batch}`;
        page = await ok(alice, 'GET', `${path}&limit=4${from}`);
        for (const event of page!.chunk) if (event.type === 'm.room.message') ids.push(event.event_id);
        if ((page!.end ?? page!.next_batch) === undefined) return ids.sort();
      }
    };
    const relations = `${v1}/rooms/${roomId}/relations/${root}`;
    for (const path of [`/rooms/${roomId}/messages`, relations]) {
      const first = path === relations ? [] : [root];
      expect(await read(`${path}?dir=b&to=${since}`)).toEqual([...late, onTop].sort());
      expect(await read(`${path}?dir=f&to=${since}`)).toEqual([...first, ...before].sort());
    }
  });

  it.each(['1', '12'])(
    'counts of a thread what its reader may see, whatever arrived when (version %s)',
    async (version) => {
      const { roomId, server, state, head } = await servers.shared(version);
      const root = await say(alice, roomId, 'root');
      const thread = { 'm.relates_to': { rel_type: 'm.thread', event_id: root } };
      const [seen] = await servers.inside.heads(roomId);
      await ok(alice, 'PUT', `/rooms/${roomId}/state/m.room.history_visibility/`, { history_visibility: 'joined' });
      const closed = await servers.stateOf(roomId);
      const [known] = await servers.inside.heads(roomId);
      const bob = await servers.homeserver.registerUser(`bob${version}`);
      await join(bob, roomId);
      await say(alice, roomId, 'among us', thread);
      // A branch that began before bob was there, goes on for longer than all the rest, and arrives later.
      let last = known!;
      for (let n = 0; n < 5; n++) {
        const content = { body: `among themselves ${n}`, ...thread };
        last = server.make({ type: 'm.room.message', sender: zoe, content }, [last], closed);
        expect(await servers.receive(last)).toBe('accepted');
      }
      // Another, from before history was closed.
      last = server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'for all', ...thread } },
        [seen!],
        state,
      );
      expect(await servers.receive(last)).toBe('accepted');
      expect(head.depth).toBeLessThan(last.depth);
      const countFor = async (user: TestUser): Promise<unknown> => {
        const event = await ok<{ unsigned: { 'm.relations': { 'm.thread': { count: number } } } }>(
          user,
          'GET',
          `/rooms/${roomId}/event/${root}`,
        );
        return event.unsigned['m.relations']['m.thread'].count;
      };
      const listed = async (user: TestUser): Promise<unknown> =>
        (await ok<{ chunk: WireEvent[] }>(user, 'GET', `${v1}/rooms/${roomId}/relations/${root}/m.thread?limit=50`))
          .chunk.length;
      expect([await listed(alice), await countFor(alice)]).toEqual([7, 7]);
      expect([await listed(bob), await countFor(bob)]).toEqual([2, 2]);
      await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
      await say(alice, roomId, 'without bob', thread);
      expect([await listed(bob), await countFor(bob)]).toEqual([2, 2]);
    },
  );

  it.each(['1', '12'])(
    'stores a graph once, however it comes: forked, shuffled, repeated (version %s)',
    async (version) => {
      const { roomId, server, state, head } = await servers.shared(version, {
        power_level_content_override: { state_default: 0 },
      });
      const { next_batch: since } = await servers.syncOf(roomId);
      // Wide: many heads on one event, each saying something else about the same state.
      const width = 40;
      const fork = Array.from({ length: width }, (_, n) =>
        n % 2 === 0
          ? server.make(
              { type: 'm.room.topic', stateKey: '', sender: n % 4 === 0 ? zoe : yan, content: { topic: `${n}` } },
              [head],
              state,
            )
          : server.make({ type: 'm.room.message', sender: yan, content: { body: `${n}` } }, [head], state),
      );
      const merge = server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'merge' } },
        fork.slice(0, 20),
        state,
      );
      const all = [...fork, merge];
      servers.inside.useMissingEvents({
        ...nobodyHelps,
        events: (_origin, _room, ids) => Promise.resolve(ids.flatMap((id) => server.known.get(id) ?? [])),
        missingEvents: (_origin, _room, _earliest, latest) =>
          Promise.resolve(
            latest
              .flatMap((id) => server.known.get(id)?.prevEventIds ?? [])
              .flatMap((id) => server.known.get(id) ?? []),
          ),
      });
      // The last comes first, and everything twice, from several sides at once.
      const shuffled = [...all, ...all].sort((a, b) => (a.eventId < b.eventId ? -1 : 1));
      const verdicts = await Promise.all([merge, ...shuffled].map((event) => servers.receive(event)));
      expect(verdicts.filter((verdict) => verdict !== 'accepted' && verdict !== 'known')).toEqual([]);
      const seen = await servers.stillWorks(roomId, since);
      expect(all.filter((event) => !seen.has(event.eventId))).toEqual([]);
      const { chunk } = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=500`);
      expect(new Set(chunk.map((event) => event.event_id)).size).toBe(chunk.length);
      for (let n = 0; n < 4; n++) await say(alice, roomId, 'knitting');
      expect((await servers.inside.heads(roomId)).length).toBe(1);
      // Everybody agrees on one of the topics, and it stays.
      const topic = await ok<{ topic: string }>(alice, 'GET', `/rooms/${roomId}/state/m.room.topic`);
      expect(fork.some((event) => event.content['topic'] === topic.topic)).toBe(true);
    },
  );

  it('stands servers that withhold, lie, or never come to an end', async () => {
    const { roomId, server, state, head } = await servers.shared('12');
    const text = (prev: readonly RoomEvent[], body = 'x'): RoomEvent =>
      server.make({ type: 'm.room.message', sender: zoe, content: { body } }, prev, state);
    const { next_batch: since } = await servers.syncOf(roomId);
    const withheld = text([head], 'withheld');
    const orphan = text([withheld], 'orphan');
    expect(await servers.receive(orphan)).toBe('missingAncestors');
    servers.inside.useMissingEvents({
      ...nobodyHelps,
      missingEvents: () => Promise.reject(new Error('no')),
      events: () => Promise.reject(new Error('no')),
    });
    await servers.receive(orphan).catch(() => undefined);
    // Another event each time, with yet another ancestor.
    let asked = 0;
    const endless = (): RoomEvent => {
      asked += 1;
      return server.make(
        {
          type: 'm.room.message',
          sender: zoe,
          content: { n: asked },
          prev: [`$${'a'.repeat(42)}${asked % 10}`],
          depth: 50,
        },
        [],
        state,
      );
    };
    servers.inside.useMissingEvents({
      missingEvents: () => Promise.resolve([endless(), endless()]),
      events: () => Promise.resolve([endless()]),
      authChain: () => Promise.resolve([endless()]),
      stateBefore: () => Promise.resolve(undefined),
    });
    expect(await servers.receive(orphan)).toBe('missingAncestors');
    expect(asked).toBeLessThan(100);
    const badAuth = server.make(
      { type: 'm.room.message', sender: zoe, content: {}, auth: [`$${'b'.repeat(43)}`] },
      [head],
      state,
    );
    expect(await servers.receive(badAuth)).toBe('missingAncestors');
    // Events and a state of another room.
    const other = await servers.shared('12');
    servers.inside.useMissingEvents({
      missingEvents: () => Promise.resolve([other.head]),
      events: () => Promise.resolve([other.head]),
      authChain: () => Promise.resolve([...other.state.values()]),
      stateBefore: () => Promise.resolve({ state: [...other.state.values()], authChain: [...other.state.values()] }),
    });
    expect(await servers.receive(orphan)).toBe('missingAncestors');
    expect((await servers.stillWorks(roomId, since)).has(other.head.eventId)).toBe(false);
    await servers.stillWorks(other.roomId, since);
    servers.inside.useMissingEvents({ ...nobodyHelps, missingEvents: () => Promise.resolve([withheld]) });
    const next = text([orphan], 'next');
    const verdicts = [await servers.receive(withheld), await servers.receive(orphan), await servers.receive(next)];
    expect(verdicts).toEqual(['accepted', 'accepted', 'accepted']);
    expect(await servers.stillWorks(roomId, since)).toContain(next.eventId);
  });

  it('ends where ids are chosen by the sender and events point at each other', async () => {
    const { roomId, server, state, head } = await servers.shared('1');
    const [a, b] = [`$a:${remoteName}`, `$b:${remoteName}`];
    const { next_batch: since } = await servers.syncOf(roomId);
    const cycle = [
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'a' }, eventId: a, prev: [b], depth: 20 },
        [],
        state,
      ),
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'b' }, eventId: b, prev: [a], depth: 20 },
        [],
        state,
      ),
      server.make(
        {
          type: 'm.room.message',
          sender: zoe,
          content: { body: 'c' },
          eventId: `$c:${remoteName}`,
          prev: [`$c:${remoteName}`],
        },
        [],
        state,
      ),
      server.make(
        { type: 'm.room.name', stateKey: '', sender: zoe, eventId: `$d:${remoteName}`, auth: [`$e:${remoteName}`] },
        [head],
        state,
      ),
      server.make(
        { type: 'm.room.name', stateKey: '', sender: zoe, eventId: `$e:${remoteName}`, auth: [`$d:${remoteName}`] },
        [head],
        state,
      ),
    ];
    servers.inside.useMissingEvents({
      missingEvents: (_origin, _room, _earliest, latest) =>
        Promise.resolve(
          latest.flatMap((id) => server.known.get(id)?.prevEventIds ?? []).flatMap((id) => server.known.get(id) ?? []),
        ),
      events: (_origin, _room, ids) => Promise.resolve(ids.flatMap((id) => server.known.get(id) ?? [])),
      authChain: () => Promise.resolve(cycle),
      stateBefore: () => Promise.resolve({ state: [...state.values()], authChain: [...state.values(), ...cycle] }),
    });
    for (const event of cycle) await servers.receive(event);
    await servers.stillWorks(roomId, since);
    // The same id with another content is the same event.
    const first = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'first' }, eventId: `$same:${remoteName}` },
      [head],
      state,
    );
    const second = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'second' }, eventId: `$same:${remoteName}` },
      [head],
      state,
    );
    expect([await servers.receive(first), await servers.receive(second)]).toEqual(['accepted', 'known']);
    const told = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${encodeURIComponent(first.eventId)}`);
    expect(told.content['body']).toBe('first');
    await servers.stillWorks(roomId, since);
  });

  it.each(['joined', 'invited', 'shared'])('counts as unread what a reader may see (%s)', async (visibility) => {
    const { homeserver } = servers;
    const bob = await homeserver.registerUser(`bob_${visibility}`);
    const shown = { type: 'm.room.history_visibility', content: { history_visibility: visibility } };
    const { roomId, server, state, head } = await servers.shared('11', { initial_state: [shown] });
    await join(bob, roomId);
    // Of a branch whose server has not heard of him.
    const aside = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'aside' } }, [head], state);
    expect(await servers.receive(aside)).toBe('accepted');
    const unread = async (user: TestUser): Promise<[string[], number, number]> => {
      const { rooms } = await ok<Unread>(user, 'GET', '/sync?timeout=0');
      const { timeline, unread_notifications, 'org.matrix.msc2654.unread_count': messages } = rooms.join[roomId]!;
      const seen = timeline.events.filter(({ sender, type }) => sender === zoe && type === 'm.room.message');
      return [seen.map(({ content }) => String(content['body'])), unread_notifications.notification_count, messages];
    };
    const isShared = visibility === 'shared';
    expect(await unread(bob)).toEqual(isShared ? [['aside'], 1, 1] : [[], 0, 0]);
    expect(await unread(alice)).toEqual([['aside'], 1, 1]);
  });

  interface Found {
    readonly search_categories: {
      readonly room_events: { readonly count: number; readonly results: { readonly result: WireEvent }[] };
    };
  }
  const found = async (user: TestUser, roomId: string, order_by: string): Promise<[number, unknown[]]> => {
    const criteria = { search_term: 'needle', filter: { rooms: [roomId] }, order_by };
    const body = { search_categories: { room_events: criteria } };
    const { count, results } = (await ok<Found>(user, 'POST', '/search', body)).search_categories.room_events;
    return [count, results.map(({ result }) => result.content['body'])];
  };

  it('finds for those who have left what came before they did, of branches that go on', async () => {
    const carol = await servers.homeserver.registerUser('carol_left');
    const { roomId, server, state, head } = await servers.shared('11');
    await join(carol, roomId);
    // Its server has not heard of her: all of the branch sees the same state.
    const aside = (body: string, prev: RoomEvent): RoomEvent =>
      server.make({ type: 'm.room.message', sender: zoe, content: { body } }, [prev], state);
    const early = aside('needle, early', head);
    expect(await servers.receive(early)).toBe('accepted');
    await leave(carol, roomId);
    expect(await servers.receive(aside('needle, late', early))).toBe('accepted');
    for (const order of ['recent', 'rank']) {
      expect(await found(carol, roomId, order)).toEqual([1, ['needle, early']]);
      expect((await found(alice, roomId, order))[0]).toBe(2);
    }
  });

  it('finds and counts what is shown beside what came last and is too old to be shown', async () => {
    const dora = await servers.homeserver.registerUser('dora_late');
    const lifetime = { type: 'm.room.retention', content: { max_lifetime: 86_400_000 } };
    const { roomId, server, state } = await servers.shared('11', { initial_state: [lifetime] });
    await setState(alice, roomId, 'm.room.history_visibility', { history_visibility: 'world_readable' });
    const thread = await say(alice, roomId, 'root');
    const [root] = await servers.inside.heads(roomId);
    const reply = (body: string, originServerTs: number, prev: RoomEvent): RoomEvent => {
      const content = { body, 'm.relates_to': { rel_type: 'm.thread', event_id: thread } };
      return server.make({ type: 'm.room.message', sender: zoe, content, originServerTs }, [prev], state);
    };
    const fresh = reply('needle, fresh', Date.now(), root!);
    expect(await servers.receive(fresh)).toBe('accepted');
    for (let n = 0; n < 8; n++)
      expect(await servers.receive(reply(`needle, old ${n}`, Date.now() - 10 * 86_400_000, fresh))).toBe('accepted');
    for (const order of ['recent', 'rank']) expect((await found(alice, roomId, order))[1]).toEqual(['needle, fresh']);
    await join(dora, roomId);
    const counted = async (user: TestUser): Promise<unknown> => {
      const { unsigned } = await ok<WireEvent>(user, 'GET', `/rooms/${roomId}/event/${encodeURIComponent(thread)}`);
      return (unsigned?.['m.relations'] as { 'm.thread'?: { count: number } } | undefined)?.['m.thread']?.count;
    };
    // As everybody else does who was not there.
    expect(await counted(dora)).toBe(await counted(alice));
  });
});
