import type { JsonObject } from '@rookery/matrix-types';
import { EventPersister } from '@rookery/rooms';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join,
  leave,
  ok,
  outcome,
  say,
  setState,
  startHomeserver,
  type WireEvent,
} from '../rooms/rooms-client.js';
import { type EndpointRow, notRefused, type Operator, operatorOf } from './operator-world.js';

interface RoomEntry {
  readonly room_id: string;
  readonly name: string | null;
  readonly joined_members: number;
  readonly [key: string]: unknown;
}

interface RoomList {
  readonly rooms: readonly RoomEntry[];
  readonly offset: number;
  readonly total_rooms: number;
  readonly next_batch?: number;
  readonly prev_batch?: number;
}

describe.each(databases)('rooms in the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { room_list_publication_rules: [{ action: 'allow' }] });
    root = await operatorOf(homeserver);
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    carol = await homeserver.registerUser('carol');
  });
  afterAll(() => homeserver?.stop());

  describe('a list', () => {
    let small: string;
    let large: string;
    let empty: string;
    const list = (query = ''): Promise<RoomList> => root.ok<RoomList>('GET', `/v1/rooms${query}`);
    const idsOf = (found: RoomList): string[] => found.rooms.map((room) => room.room_id);

    beforeAll(async () => {
      small = await createRoom(alice, { name: 'Zebra crossing', room_alias_name: 'stripes' });
      large = await createRoom(alice, {
        preset: 'public_chat',
        visibility: 'public',
        name: '100% Apples',
        topic: 'Fruit',
        room_version: '10',
      });
      await join(bob, large);
      await join(carol, large);
      empty = await createRoom(bob, { name: 'Middle ground' });
      await leave(bob, empty);
    });

    it('tells of every room what is to be known', async () => {
      const found = (await list()).rooms.find((room) => room.room_id === large);
      expect(found).toEqual({
        room_id: large,
        name: '100% Apples',
        canonical_alias: null,
        joined_members: 3,
        joined_local_members: 3,
        version: '10',
        creator: alice.userId,
        encryption: null,
        federatable: true,
        public: true,
        join_rules: 'public',
        guest_access: null,
        history_visibility: 'shared',
        state_events: expect.any(Number) as number,
        room_type: null,
      });
    });

    it('is ordered by name unless told, and turned around', async () => {
      expect(idsOf(await list())).toEqual([large, empty, small]);
      expect(idsOf(await list('?order_by=alphabetical&dir=b'))).toEqual([small, empty, large]);
    });

    it('begins with the largest figure', async () => {
      for (const order of ['size', 'joined_members', 'joined_local_members']) {
        expect(idsOf(await list(`?order_by=${order}`))).toEqual([large, small, empty]);
        expect(idsOf(await list(`?order_by=${order}&dir=b`))).toEqual([empty, small, large]);
      }
    });

    it.each([
      'name',
      'canonical_alias',
      'version',
      'creator',
      'encryption',
      'federatable',
      'public',
      'join_rules',
      'guest_access',
      'history_visibility',
      'state_events',
    ])('can be ordered by %s, in both directions', async (order) => {
      const forwards = idsOf(await list(`?order_by=${order}`));
      const backwards = idsOf(await list(`?order_by=${order}&dir=b`));
      expect(forwards).toHaveLength(3);
      expect([...forwards].sort()).toEqual([...backwards].sort());
      if (order !== 'encryption') expect(forwards).not.toEqual(backwards);
    });

    it('rooms come in pages', async () => {
      const first = await list('?limit=2');
      expect(first).toMatchObject({ offset: 0, total_rooms: 3, next_batch: 2 });
      expect(first).not.toHaveProperty('prev_batch');
      const second = await list('?limit=2&from=2');
      expect(second).toMatchObject({ offset: 2, total_rooms: 3, prev_batch: 0 });
      expect(second).not.toHaveProperty('next_batch');
      expect([...idsOf(first), ...idsOf(second)]).toEqual(idsOf(await list()));
    });

    it.each([
      ['?search_term=ZEBRA', ['small']],
      ['?search_term=strip', ['small']],
      ['?search_term=100%25', ['large']],
      ['?search_term=%25', ['large']],
      ['?search_term=rookery.test', []],
      ['?search_term=nothing', []],
      ['?public_rooms=true', ['large']],
      ['?public_rooms=false', ['empty', 'small']],
      ['?empty_rooms=true', ['empty']],
      ['?empty_rooms=false', ['large', 'small']],
    ])('is searched: %s', async (query, names) => {
      const ids: Record<string, string> = { small, large, empty };
      const found = await list(query);
      expect(idsOf(found)).toEqual(names.map((name) => ids[name]));
      expect(found.total_rooms).toBe(names.length);
    });

    it('finds a room by its whole id', async () => {
      expect(idsOf(await list(`?search_term=${encodeURIComponent(small)}`))).toEqual([small]);
    });

    it.each([
      '?order_by=colour',
      '?search_term=',
      '?dir=up',
      '?limit=-1',
      '?from=x',
      '?public_rooms=1',
      '?empty_rooms=yes',
    ])('refuses %s', async (query) =>
      expect(outcome(await root.call('GET', `/v1/rooms${query}`))).toBe('400 M_INVALID_PARAM'),
    );
  });

  describe('one room', () => {
    let roomId: string;
    beforeAll(async () => {
      roomId = await createRoom(alice, { name: 'Detail', topic: 'Small things' });
      await setState(alice, roomId, 'm.room.avatar', { url: 'mxc://rookery.test/avatar' });
    });

    it('is told in detail', async () => {
      expect(await root.ok('GET', `/v1/rooms/${roomId}`)).toMatchObject({
        room_id: roomId,
        name: 'Detail',
        topic: 'Small things',
        avatar: 'mxc://rookery.test/avatar',
        joined_members: 1,
        joined_local_members: 1,
        joined_local_devices: 1,
        forgotten: false,
        tombstoned: false,
        replacement_room: null,
        federatable: true,
        public: false,
      });
    });

    it('is known to be replaced and forgotten', async () => {
      const old = await createRoom(alice);
      const { replacement_room: next } = await ok<{ replacement_room: string }>(
        alice,
        'POST',
        `/rooms/${old}/upgrade`,
        {
          new_version: '11',
        },
      );
      await leave(alice, old);
      expect(await root.ok('GET', `/v1/rooms/${old}`)).toMatchObject({ tombstoned: true, forgotten: false });
      await ok(alice, 'POST', `/rooms/${old}/forget`, {});
      expect(await root.ok('GET', `/v1/rooms/${old}`)).toMatchObject({ replacement_room: next, forgotten: true });
    });

    it('has members and state, whoever asks', async () => {
      await act(alice, 'invite', roomId, bob);
      expect(await root.ok('GET', `/v1/rooms/${roomId}/members`)).toEqual({ members: [alice.userId], total: 1 });
      const { state } = await root.ok<{ state: WireEvent[] }>('GET', `/v1/rooms/${roomId}/state`);
      expect(state.map((event) => event.type)).toEqual(
        expect.arrayContaining(['m.room.create', 'm.room.name', 'm.room.power_levels']),
      );
      const named = await root.ok<{ state: WireEvent[] }>('GET', `/v1/rooms/${roomId}/state?type=m.room.member`);
      expect(named.state.map((event) => event.state_key).sort()).toEqual([alice.userId, bob.userId]);
      expect((await root.ok('GET', `/v1/rooms/${roomId}`))['state_events']).toBe(state.length);
      await setState(alice, roomId, 'org.example.more', {});
      await setState(alice, roomId, 'org.example.more', { changed: true });
      expect((await root.ok('GET', `/v1/rooms/${roomId}`))['state_events']).toBe(state.length + 1);
    });

    it.each(['', '/members', '/state', '/messages', '/context/$nothing', '/timestamp_to_event?ts=1', '/hierarchy'])(
      'that nobody knows has no %s',
      async (what) =>
        expect(outcome(await root.call('GET', `/v1/rooms/!nowhere:rookery.test${what}`))).toBe('404 M_NOT_FOUND'),
    );
  });

  describe('history', () => {
    let roomId: string;
    let events: string[];
    beforeAll(async () => {
      roomId = await createRoom(alice, { preset: 'private_chat' });
      await setState(alice, roomId, 'm.room.history_visibility', { history_visibility: 'joined' });
      events = [];
      for (const body of ['one', 'two', 'three']) events.push(await say(alice, roomId, body));
    });
    const bodies = (page: { chunk: WireEvent[] }): unknown[] =>
      page.chunk.filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);

    it('is read in pages, from its beginning unless told', async () => {
      type Page = { chunk: WireEvent[]; start: string; end?: string };
      const first = await root.ok<Page>('GET', `/v1/rooms/${roomId}/messages?limit=2`);
      expect(first.chunk.map((event) => event.type)).toEqual(['m.room.create', 'm.room.member']);
      const filter = encodeURIComponent(JSON.stringify({ types: ['m.room.message'] }));
      const back = await root.ok<Page>('GET', `/v1/rooms/${roomId}/messages?dir=b&limit=2&filter=${filter}`);
      expect(bodies(back)).toEqual(['three', 'two']);
      const rest = await root.ok<Page>(
        'GET',
        `/v1/rooms/${roomId}/messages?dir=b&from=${String(back.end)}&filter=${filter}`,
      );
      expect(bodies(rest)).toEqual(['one']);
    });

    it('is shown as it travels between servers', async () => {
      const page = await root.ok<{ chunk: Record<string, unknown>[] }>(
        'GET',
        `/v1/rooms/${roomId}/messages?dir=b&limit=1&raw=true`,
      );
      expect(page.chunk[0]).toMatchObject({ event_id: events[2], hashes: { sha256: expect.any(String) as string } });
    });

    it('an event comes with those around it', async () => {
      const context = await root.ok<{
        event: WireEvent;
        events_before: WireEvent[];
        events_after: WireEvent[];
        state: WireEvent[];
      }>('GET', `/v1/rooms/${roomId}/context/${events[1] ?? ''}?limit=2`);
      expect(context.event.event_id).toBe(events[1]);
      expect(context.events_before.map((event) => event.event_id)).toEqual([events[0]]);
      expect(context.events_after.map((event) => event.event_id)).toEqual([events[2]]);
      expect(context.state.length).toBeGreaterThan(3);
      expect(context).toMatchObject({ start: expect.any(String) as string, end: expect.any(String) as string });
    });

    it('is found by time', async () => {
      const page = await root.ok<{ chunk: WireEvent[] }>('GET', `/v1/rooms/${roomId}/messages?dir=b&limit=1`);
      const ts = page.chunk[0]?.origin_server_ts ?? 0;
      const path = `/v1/rooms/${roomId}/timestamp_to_event`;
      expect(await root.ok('GET', `${path}?ts=${ts}&dir=b`)).toEqual({ event_id: events[2], origin_server_ts: ts });
      expect(await root.ok('GET', `${path}?ts=0`)).toMatchObject({ event_id: expect.stringMatching(/^\$/) as string });
      expect(outcome(await root.call('GET', `${path}?ts=0&dir=b`))).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('GET', path))).toBe('400 M_MISSING_PARAM');
      expect(outcome(await root.call('GET', `${path}?ts=soon`))).toBe('400 M_INVALID_PARAM');
    });

    it('is not shown to the administrator as to a client', async () => {
      const asClient = await root.user.request('GET', `/rooms/${roomId}/messages?dir=b`);
      expect(outcome(asClient)).toBe('403 M_FORBIDDEN');
    });

    it('shows single events as they are stored, redacted or not', async () => {
      const said = await say(alice, roomId, 'I wish I had not');
      await ok(alice, 'PUT', `/rooms/${roomId}/redact/${said}/r1`, {});
      const { event } = await root.ok<{ event: Record<string, unknown> }>('GET', `/v1/fetch_event/${said}`);
      expect(event).toMatchObject({
        event_id: said,
        sender: alice.userId,
        content: { body: 'I wish I had not' },
        auth_events: expect.any(Array) as unknown[],
        signatures: { 'rookery.test': expect.any(Object) as object },
      });
      expect(outcome(await root.call('GET', '/v1/fetch_event/$unknown'))).toBe('404 M_NOT_FOUND');
    });

    it('of spaces is walked without being in them', async () => {
      const space = await createRoom(alice, { creation_content: { type: 'm.space' }, name: 'Space' });
      const child = await createRoom(alice, { name: 'Child' });
      await setState(alice, space, 'm.space.child', { via: ['rookery.test'] }, child);
      await setState(alice, space, 'm.space.child', { via: ['elsewhere.test'] }, '!unknown:elsewhere.test');
      type Page = { rooms: { room_id: string; children_state: unknown[] }[]; next_batch?: string };
      const all = await root.ok<Page>('GET', `/v1/rooms/${space}/hierarchy`);
      expect(all.rooms.map((room) => [room.room_id, room.children_state.length])).toEqual([
        [space, 2],
        [child, 0],
      ]);
      const top = await root.ok<Page>('GET', `/v1/rooms/${space}/hierarchy?max_depth=0`);
      expect(top.rooms.map((room) => room.room_id)).toEqual([space]);
      const first = await root.ok<Page>('GET', `/v1/rooms/${space}/hierarchy?limit=1`);
      const second = await root.ok<Page>(
        'GET',
        `/v1/rooms/${space}/hierarchy?limit=1&from=${String(first.next_batch)}`,
      );
      expect(second.rooms.map((room) => room.room_id)).toEqual([child]);
      const asClient = await root.user.request(
        'GET',
        `/_matrix/client/v1/rooms/${encodeURIComponent(space)}/hierarchy`,
      );
      expect(asClient.status).toBe(403);
    });
  });

  describe('blocking', () => {
    it('keeps everybody out until it ends', async () => {
      const roomId = await createRoom(alice, { preset: 'public_chat' });
      expect(await root.ok('GET', `/v1/rooms/${roomId}/block`)).toEqual({ block: false });
      expect(await root.ok('PUT', `/v1/rooms/${roomId}/block`, { block: true })).toEqual({ block: true });
      expect(await root.ok('GET', `/v1/rooms/${roomId}/block`)).toEqual({ block: true, user_id: root.user.userId });
      expect(outcome(await bob.request('POST', `/rooms/${roomId}/join`, {}))).toBe('403 M_FORBIDDEN');
      expect(await root.ok('PUT', `/v1/rooms/${roomId}/block`, { block: false })).toEqual({ block: false });
      await join(bob, roomId);
    });

    it('works for rooms that are not known yet', async () => {
      const path = '/v1/rooms/!later:elsewhere.test/block';
      await root.ok('PUT', path, { block: true });
      expect(await root.ok('GET', path)).toMatchObject({ block: true });
    });

    it.each([
      ['GET', '/v1/rooms/nonsense/block', undefined, '400 M_UNKNOWN'],
      ['PUT', '/v1/rooms/nonsense/block', { block: true }, '400 M_UNKNOWN'],
      ['GET', '/v1/rooms/!noserver/block', undefined, '400 M_UNKNOWN'],
      ['PUT', '/v1/rooms/!noserver/block', { block: true }, '400 M_UNKNOWN'],
      ['GET', `/v1/rooms/!${'a'.repeat(43)}/block`, undefined, '200'],
      ['PUT', '/v1/rooms/!a:b.test/block', { block: 'yes' }, '400 M_BAD_JSON'],
      ['PUT', '/v1/rooms/!a:b.test/block', {}, '400 M_MISSING_PARAM'],
    ])('%s %s %j: %s', async (method, path, body, expected) =>
      expect(outcome(await root.call(method, path, body))).toBe(expected),
    );
  });

  describe('power', () => {
    const levelOf = async (roomId: string, userId: string): Promise<unknown> => {
      const { state } = await root.ok<{ state: WireEvent[] }>(
        'GET',
        `/v1/rooms/${roomId}/state?type=m.room.power_levels`,
      );
      return (state[0]?.content['users'] as Record<string, unknown> | undefined)?.[userId];
    };

    it('is given to whoever asks for it, who is invited', async () => {
      const roomId = await createRoom(alice, { room_alias_name: 'throne', room_version: '11' });
      expect(await root.ok('POST', '/v1/rooms/%23throne:rookery.test/make_room_admin')).toEqual({});
      expect(await levelOf(roomId, root.user.userId)).toBe(100);
      await join(root.user, roomId);
      expect(await root.ok('POST', `/v1/rooms/${roomId}/make_room_admin`, { user_id: bob.userId })).toEqual({});
      await join(bob, roomId);
      await setState(bob, roomId, 'm.room.name', { name: 'Mine' });
    });

    it('is given in rooms whose creators have it without end', async () => {
      const roomId = await createRoom(alice, { preset: 'public_chat', room_version: '12' });
      await root.ok('POST', `/v1/rooms/${roomId}/make_room_admin`, { user_id: bob.userId });
      await join(bob, roomId);
      await setState(bob, roomId, 'm.room.name', { name: 'Mine, too' });
    });

    it('is given in rooms where no event says who has it, and the creator keeps it', async () => {
      const state = (type: string, stateKey: string, content: JsonObject) => ({
        ...{ type, stateKey, content, sender: alice.userId },
      });
      const { roomId } = await homeserver.server.service(EventPersister).createRoom({
        ...{ roomVersion: '11', roomId: '!bare:rookery.test', creator: alice.userId, isPublic: false },
        drafts: [
          state('m.room.create', '', { room_version: '11' }),
          state('m.room.member', alice.userId, { membership: 'join' }),
        ],
      });
      await root.ok('POST', `/v1/rooms/${roomId}/make_room_admin`, { user_id: bob.userId });
      expect([await levelOf(roomId, alice.userId), await levelOf(roomId, bob.userId)]).toEqual([100, 100]);
      await join(bob, roomId);
      await setState(bob, roomId, 'm.room.name', { name: 'Ours' });
      await setState(alice, roomId, 'm.room.name', { name: 'Still ours' });
    });

    it('cannot be given where nobody of this server has any', async () => {
      const roomId = await createRoom(alice, { preset: 'public_chat', room_version: '11' });
      await join(bob, roomId);
      await leave(alice, roomId);
      const path = (room: string): string => `/v1/rooms/${encodeURIComponent(room)}/make_room_admin`;
      expect(outcome(await root.call('POST', path(roomId)))).toBe('400 M_UNKNOWN');
      expect(outcome(await root.call('POST', path('!nowhere:rookery.test')))).toBe('400 M_UNKNOWN');
      expect(outcome(await root.call('POST', path('#nowhere:rookery.test')))).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('POST', path(roomId), { user_id: 'bob' }))).toBe('400 M_INVALID_PARAM');
    });
  });

  describe('forward extremities', () => {
    it('are shown and reduced', async () => {
      const roomId = await createRoom(alice, { room_alias_name: 'heads' });
      const newest = await say(alice, roomId, 'newest');
      const found = await root.ok('GET', '/v1/rooms/%23heads:rookery.test/forward_extremities');
      expect(found).toEqual({
        count: 1,
        results: [
          {
            event_id: newest,
            state_group: expect.any(Number) as number,
            depth: expect.any(Number) as number,
            received_ts: expect.any(Number) as number,
          },
        ],
      });
      expect(await root.ok('DELETE', `/v1/rooms/${roomId}/forward_extremities`)).toEqual({ deleted: 0 });
      expect(outcome(await root.call('GET', '/v1/rooms/nonsense/forward_extremities'))).toBe('400 M_UNKNOWN');
    });
  });

  describe('joining for a user', () => {
    const bringIn = (room: string, userId: string) =>
      root.call('POST', `/v1/join/${encodeURIComponent(room)}`, { user_id: userId });
    const isIn = async (roomId: string, user: TestUser): Promise<boolean> => {
      const { members } = await root.ok<{ members: string[] }>('GET', `/v1/rooms/${roomId}/members`);
      return members.includes(user.userId);
    };

    it('works in open rooms, by id and by alias', async () => {
      const roomId = await createRoom(alice, { preset: 'public_chat', room_alias_name: 'open' });
      expect(await bringIn(roomId, bob.userId)).toMatchObject({ status: 200, body: { room_id: roomId } });
      expect(await bringIn('#open:rookery.test', carol.userId)).toMatchObject({
        status: 200,
        body: { room_id: roomId },
      });
      expect(await isIn(roomId, bob)).toBe(true);
      expect(await isIn(roomId, carol)).toBe(true);
    });

    it('needs an administrator inside where the room is not open', async () => {
      const roomId = await createRoom(alice);
      expect(outcome(await bringIn(roomId, bob.userId))).toBe('403 M_FORBIDDEN');
      expect(await isIn(roomId, bob)).toBe(false);
      await act(alice, 'invite', roomId, root.user);
      await join(root.user, roomId);
      expect(await bringIn(roomId, bob.userId)).toMatchObject({ status: 200 });
      expect(await isIn(roomId, bob)).toBe(true);
    });

    it.each([
      ['@bob:elsewhere.test', '400 M_UNKNOWN'],
      ['bob', '400 M_INVALID_PARAM'],
      ['@nobody:rookery.test', '404 M_NOT_FOUND'],
    ])('refuses %s', async (userId, expected) => {
      const roomId = await createRoom(alice, { preset: 'public_chat' });
      expect(outcome(await bringIn(roomId, userId))).toBe(expected);
    });

    it('needs a room and a user', async () => {
      expect(outcome(await bringIn('nonsense', bob.userId))).toBe('400 M_UNKNOWN');
      expect(outcome(await bringIn('#nowhere:rookery.test', bob.userId))).toBe('404 M_NOT_FOUND');
      expect(outcome(await bringIn('!nowhere:rookery.test', bob.userId))).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('POST', '/v1/join/!a:b.test', {}))).toBe('400 M_MISSING_PARAM');
    });
  });

  describe('purging history', () => {
    const finished = (purgeId: string): Promise<string> =>
      eventually(async () => {
        const { status } = await root.ok<{ status: string }>('GET', `/v1/purge_history_status/${purgeId}`);
        return status !== 'active' && status;
      });
    const bodiesIn = async (roomId: string): Promise<unknown[]> => {
      const page = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=f&limit=100`);
      return page.chunk.filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);
    };
    let roomId: string;
    let said: string[];
    beforeEach(async () => {
      roomId = await createRoom(alice);
      said = [];
      for (const body of ['first', 'second', 'third']) said.push(await say(alice, roomId, body));
    });

    it('takes what is before an event', async () => {
      const { purge_id: id } = await root.ok<{ purge_id: string }>(
        'POST',
        `/v1/purge_history/${roomId}/${said[2] ?? ''}`,
        {
          delete_local_events: true,
        },
      );
      expect(await finished(id)).toBe('complete');
      expect(await bodiesIn(roomId)).toEqual(['third']);
      expect(outcome(await root.call('GET', `/v1/fetch_event/${said[0] ?? ''}`))).toBe('404 M_NOT_FOUND');
    });

    it('leaves what users of this server said in the database unless told, out of sight', async () => {
      const { purge_id: id } = await root.ok<{ purge_id: string }>('POST', `/v1/purge_history/${roomId}`, {
        purge_up_to_event_id: said[2],
      });
      expect(await finished(id)).toBe('complete');
      expect(await bodiesIn(roomId)).toEqual(['third']);
      expect(outcome(await alice.request('GET', `/rooms/${roomId}/event/${said[0] ?? ''}`))).toBe('404 M_NOT_FOUND');
      expect(await root.ok('GET', `/v1/fetch_event/${said[0] ?? ''}`)).toMatchObject({
        event: { content: { body: 'first' } },
      });
    });

    it('takes what is before a time', async () => {
      const { purge_id: id } = await root.ok<{ purge_id: string }>('POST', `/v1/purge_history/${roomId}`, {
        purge_up_to_ts: Date.now() + 60_000,
        delete_local_events: true,
      });
      expect(await finished(id)).toBe('complete');
      expect(await bodiesIn(roomId)).toEqual(['third']);
    });

    it('needs a point in this room', async () => {
      const other = await say(alice, await createRoom(alice), 'elsewhere');
      const purge = async (body?: object): Promise<string> =>
        outcome(await root.call('POST', `/v1/purge_history/${roomId}`, body));
      expect(await purge()).toBe('400 M_BAD_JSON');
      expect(await purge({})).toBe('400 M_BAD_JSON');
      expect(await purge({ purge_up_to_ts: 'then' })).toBe('400 M_BAD_JSON');
      for (const ts of [1e21, -1]) expect(await purge({ purge_up_to_ts: ts })).toBe('400 M_INVALID_PARAM');
      expect(await purge({ purge_up_to_event_id: other })).toBe('400 M_UNKNOWN');
      expect(await purge({ purge_up_to_event_id: '$unknown' })).toBe('404 M_NOT_FOUND');
      expect(await purge({ purge_up_to_ts: 1 })).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('GET', '/v1/purge_history_status/unknown'))).toBe('404 M_NOT_FOUND');
    });
  });

  it('are for administrators only', async () => {
    const endpoints: EndpointRow[] = [
      ['GET', '/v1/rooms'],
      ['GET', '/v1/rooms/!a:b.test'],
      ['DELETE', '/v1/rooms/!a:b.test', {}],
      ['DELETE', '/v2/rooms/!a:b.test', {}],
      ['GET', '/v2/rooms/!a:b.test/delete_status'],
      ['GET', '/v2/rooms/delete_status/x'],
      ['GET', '/v1/rooms/!a:b.test/members'],
      ['GET', '/v1/rooms/!a:b.test/state'],
      ['GET', '/v1/rooms/!a:b.test/messages'],
      ['GET', '/v1/rooms/!a:b.test/context/$x'],
      ['GET', '/v1/rooms/!a:b.test/timestamp_to_event?ts=1'],
      ['GET', '/v1/rooms/!a:b.test/hierarchy'],
      ['GET', '/v1/rooms/!a:b.test/block'],
      ['PUT', '/v1/rooms/!a:b.test/block', { block: true }],
      ['POST', '/v1/rooms/!a:b.test/make_room_admin', {}],
      ['GET', '/v1/rooms/!a:b.test/forward_extremities'],
      ['DELETE', '/v1/rooms/!a:b.test/forward_extremities'],
      ['POST', '/v1/join/!a:b.test', { user_id: '@bob:rookery.test' }],
      ['POST', '/v1/purge_history/!a:b.test', {}],
      ['POST', '/v1/purge_history/!a:b.test/$x', {}],
      ['GET', '/v1/purge_history_status/x'],
      ['GET', '/v1/fetch_event/$x'],
    ];
    expect(await notRefused(homeserver, alice, endpoints)).toEqual([]);
    expect(outcome(await root.call('POST', '/v1/rooms'))).toBe('405 M_UNRECOGNIZED');
  });
});
