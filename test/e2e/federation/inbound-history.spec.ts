import { Database } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { type Operator, operatorOf } from '../admin/operator-world.js';
import { createRoom, databases, ok, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { type Answer, FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction, Visit } from './visiting-server.js';

const v1 = '/_matrix/federation/v1';
const bob = '@bob:visitor.test';
const part = encodeURIComponent;

describe.each(databases)('the past of rooms for other servers (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let root: Operator;
  let alice: TestUser;
  let visitor: PlayedServer;
  let stranger: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    const settings = { rc_federation: { sleep_limit: 1_000, concurrent: 50 } };
    home = await world.homeserver('home.test', { database, settings });
    visitor = await world.played('visitor.test');
    stranger = await world.played('stranger.test');
    root = await operatorOf(home);
    alice = await home.registerUser('alice');
  });
  afterAll(() => world.stop());

  const visitRoom = async (version = '12', more: object = {}): Promise<Visit> => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version, ...more });
    return Visit.join(visitor, home, roomId, bob);
  };
  const get = (uri: string, as = visitor): Promise<Answer> => as.request(home, 'GET', `${v1}${uri}`);
  const eventsIn = (visit: Visit, list: unknown): RoomEvent[] => (list as unknown[]).map((pdu) => visit.parse(pdu));
  const idsIn = (visit: Visit, list: unknown): string[] => eventsIn(visit, list).map((event) => event.eventId);
  const missing = (visit: Visit, content: JsonObject, as = visitor): Promise<Answer> =>
    as.request(home, 'POST', `${v1}/get_missing_events/${part(visit.roomId)}`, content);

  it.each(['1', '5', '10', '12'])('is state at events, and what it rests upon (version %s)', async (version) => {
    const visit = await visitRoom(version);
    const before = await setState(alice, visit.roomId, 'm.room.topic', { topic: 'before' });
    const after = await setState(alice, visit.roomId, 'm.room.topic', { topic: 'after' });
    const room = part(visit.roomId);
    const state = await get(`/state/${room}?event_id=${part(after)}`);
    const topics = eventsIn(visit, state.body['pdus']).filter((event) => event.type === 'm.room.topic');
    // As it was before the event itself.
    expect(topics.map((event) => event.eventId)).toEqual([before]);
    const ids = await get(`/state_ids/${room}?event_id=${part(after)}`);
    expect([...(ids.body['pdu_ids'] as string[])].sort()).toEqual(idsIn(visit, state.body['pdus']).sort());
    expect([...(ids.body['auth_chain_ids'] as string[])].sort()).toEqual(idsIn(visit, state.body['auth_chain']).sort());
    const chain = eventsIn(visit, (await get(`/event_auth/${room}/${part(after)}`)).body['auth_chain']);
    const types = chain.map((event) => event.type).sort();
    expect(types).toEqual(['m.room.create', 'm.room.member', 'm.room.power_levels']);
    // Everything that an auth event names is there, too.
    const all = new Set([...idsIn(visit, state.body['auth_chain']), ...idsIn(visit, state.body['pdus'])]);
    for (const event of eventsIn(visit, state.body['pdus']))
      for (const id of event.authEventIds) expect(all).toContain(id);
    const one = await get(`/event/${part(after)}`);
    expect(idsIn(visit, one.body['pdus'])).toEqual([after]);
  });

  it('is walked back from anywhere', async () => {
    const visit = await visitRoom('10');
    const said: string[] = [];
    for (let n = 0; n < 25; n++) said.push(await say(alice, visit.roomId, `line ${n}`));
    const room = part(visit.roomId);
    const latest = await get(`/backfill/${room}?v=${part(said[24]!)}&limit=10`);
    expect(idsIn(visit, latest.body['pdus'])).toEqual(said.slice(15).reverse());
    const whole = await get(`/backfill/${room}?v=${part(said[24]!)}&limit=1000`);
    const events = eventsIn(visit, whole.body['pdus']);
    expect(events.at(-1)?.type).toBe('m.room.create');
    expect((await get(`/backfill/${room}?v=${part('$unknown')}&limit=10`)).body['pdus']).toEqual([]);
    expect((await get(`/backfill/${room}?v=${part(said[0]!)}`)).status).toBe(400);
    expect((await get(`/backfill/${room}?limit=3`)).status).toBe(400);
    const between = await missing(visit, {
      ...{ earliest_events: [said[3]!], latest_events: [said[9]!], limit: 20, min_depth: 0 },
    });
    expect(idsIn(visit, between.body['events'])).toEqual(said.slice(4, 9));
    const some = await missing(visit, { earliest_events: [], latest_events: [said[20]!], limit: 5 });
    expect(idsIn(visit, some.body['events'])).toEqual(said.slice(15, 20));
    const shallow = await missing(visit, {
      ...{ earliest_events: [], latest_events: [said[20]!], limit: 50, min_depth: events[0]!.depth - 6 },
    });
    expect(idsIn(visit, shallow.body['events'])).toEqual(said.slice(18, 20));
    const malformed = [
      {},
      { earliest_events: 5, latest_events: [] },
      { earliest_events: [], latest_events: [5] },
      { earliest_events: [], latest_events: ['$\0'] },
    ];
    for (const content of malformed) expect((await missing(visit, content as JsonObject)).status).toBe(400);
    const times = events.map((event) => event.originServerTs);
    const found = await get(`/timestamp_to_event/${room}?ts=${Math.max(...times)}&dir=b`);
    expect(found.body['origin_server_ts']).toBe(Math.max(...times));
    const first = await get(`/timestamp_to_event/${room}?ts=0&dir=f`);
    expect(first.body['event_id']).toBe(events.at(-1)?.eventId);
    expect((await get(`/timestamp_to_event/${room}?ts=0&dir=b`)).status).toBe(404);
    expect((await get(`/timestamp_to_event/${room}?ts=0&dir=x`)).status).toBe(400);
  });

  it('is for servers in the room only', async () => {
    const visit = await visitRoom();
    const eventId = await say(alice, visit.roomId, 'secret');
    const room = part(visit.roomId);
    const event = part(eventId);
    const paths = [
      `/state/${room}?event_id=${event}`,
      `/state_ids/${room}?event_id=${event}`,
      `/event_auth/${room}/${event}`,
      `/backfill/${room}?v=${event}&limit=10`,
      `/timestamp_to_event/${room}?ts=0&dir=f`,
    ];
    for (const path of paths) {
      expect({ path, status: (await get(path)).status }).toEqual({ path, status: 200 });
      const { status, body } = await get(path, stranger);
      expect({ path, status, errcode: body['errcode'] }).toEqual({ path, status: 403, errcode: 'M_FORBIDDEN' });
    }
    const range = { earliest_events: [], latest_events: [eventId] };
    expect((await missing(visit, range, stranger)).status).toBe(403);
    // Whose id is all that is known is not told apart from what there is not.
    expect((await get(`/event/${event}`)).status).toBe(200);
    const unknown = await get(`/event/${part('$unknown')}`, stranger);
    expect(unknown).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    expect(await get(`/event/${event}`, stranger)).toEqual(unknown);
    // Also those who have left again, and those of other rooms.
    const leave = Visit.complete(visitor, (await Visit.make(visitor, home, 'leave', visit.roomId, bob)).body);
    await Visit.send(visitor, home, 'leave', leave);
    for (const path of paths) expect({ path, status: (await get(path)).status }).toEqual({ path, status: 403 });
    expect(await get(`/event/${event}`)).toEqual(unknown);
    const other = part((await visitRoom()).roomId);
    for (const path of [`/state/${other}?event_id=${event}`, `/event_auth/${other}/${event}`])
      expect((await get(path)).body['errcode']).toBe('M_NOT_FOUND');
    expect((await get(`/event/${part('$unknown')}`)).body['errcode']).toBe('M_NOT_FOUND');
    expect((await get(`/state_ids/${part('!unknown:home.test')}?event_id=${event}`)).status).toBe(404);
  });

  it('comes without what a server could not see at the time', async () => {
    const roomId = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    const early = await say(alice, roomId, 'before you came');
    const visit = await Visit.join(visitor, home, roomId, bob);
    const late = await say(alice, roomId, 'now you are here');
    const pdus = eventsIn(visit, (await get(`/backfill/${part(roomId)}?v=${part(late)}&limit=50`)).body['pdus']);
    const contentOf = (id: string): unknown => pdus.find((event) => event.eventId === id)?.content;
    expect(contentOf(early)).toEqual({});
    expect(contentOf(late)).toMatchObject({ body: 'now you are here' });
    const one = eventsIn(visit, (await get(`/event/${part(early)}`)).body['pdus']);
    expect(one.map((event) => event.content)).toEqual([{}]);
    const missed = await missing(visit, { earliest_events: [], latest_events: [late], limit: 50 });
    expect(eventsIn(visit, missed.body['events']).find((event) => event.eventId === early)?.content).toEqual({});
    // Redacted things stay so for everybody.
    const regretted = await say(alice, roomId, 'regretted');
    await ok(alice, 'PUT', `/rooms/${roomId}/redact/${part(regretted)}/r${Math.random()}`, {});
    const { body } = await get(`/event/${part(regretted)}`);
    expect(eventsIn(visit, body['pdus']).map((event) => event.content)).toEqual([{}]);
  });

  it.each(['shared', 'world_readable'])('comes without what was purged, though it is kept (%s)', async (shown) => {
    const visibility = { type: 'm.room.history_visibility', content: { history_visibility: shown } };
    const visit = await visitRoom('12', { initial_state: [visibility] });
    const contentsOf = async (id: string): Promise<unknown[]> =>
      eventsIn(visit, (await get(`/event/${part(id)}`)).body['pdus']).map(({ content }) => content);
    const purged = await say(alice, visit.roomId, 'to be purged');
    const topic = await setState(alice, visit.roomId, 'm.room.topic', { topic: 'stays' });
    const last = await say(alice, visit.roomId, 'later');
    expect(await contentsOf(purged)).toMatchObject([{ body: 'to be purged' }]);
    const { purge_id: id } = await root.ok<{ purge_id: string }>('POST', `/v1/purge_history/${visit.roomId}`, {
      purge_up_to_event_id: last,
    });
    await eventually(async () => (await root.ok('GET', `/v1/purge_history_status/${id}`))['status'] === 'complete');
    expect(await contentsOf(purged)).toEqual([{}]);
    expect(await contentsOf(topic)).toEqual([{ topic: 'stays' }]);
    expect(await contentsOf(last)).toMatchObject([{ body: 'later' }]);
    const told = await get(`/backfill/${part(visit.roomId)}?v=${part(last)}&limit=50`);
    expect(JSON.stringify(told.body)).not.toContain('to be purged');
    const range = { earliest_events: [], latest_events: [last], limit: 50 };
    expect(JSON.stringify((await missing(visit, range)).body)).not.toContain('to be purged');
  });

  it('is found by time behind any number of events that a server could not see', async () => {
    const roomId = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    const early = await say(alice, roomId, 'before you came');
    for (let n = 0; n < 60; n++) await say(alice, roomId, `before you came, ${n}`);
    await Visit.join(visitor, home, roomId, bob);
    const { origin_server_ts: ts } = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${part(early)}`);
    const joined = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=1`);
    const found = await get(`/timestamp_to_event/${part(roomId)}?ts=${ts}&dir=f`);
    expect(found.body['event_id']).toBe(joined.chunk[0]!.event_id);
  });

  it('comes to a server of whose many users the last that came could see it', async () => {
    const shown = { type: 'm.room.history_visibility', content: { history_visibility: 'joined' } };
    const visit = await visitRoom('11', { initial_state: [shown] });
    const said = await say(alice, visit.roomId, 'for all who are here');
    const gone = Array.from({ length: 1_000 }, (_, n) => [`$gone${n}`, `@gone${n}:visitor.test`]);
    const columns = ['event_id', 'user_id', 'sender', 'room_id', 'membership', 'event_stream_ordering'];
    await home.server.service(Database).write((tx) =>
      tx.insertMany(
        'room_memberships',
        columns,
        gone.map(([id = '', user = '']) => [id, user, user, visit.roomId, 'leave', 0]),
      ),
    );
    const { body } = await get(`/event/${part(said)}`);
    expect(eventsIn(visit, body['pdus']).map(({ content }) => content['body'])).toEqual(['for all who are here']);
  });

  it('never holds what was rejected or soft-failed', async () => {
    const visit = await visitRoom('12');
    const [start] = visit.heads as [RoomEvent];
    const seen = async (body: string): Promise<unknown> =>
      eventually(async () =>
        (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${visit.roomId}/messages?dir=b&limit=50`)).chunk.some(
          (event) => event.content['body'] === body,
        ),
      );
    const rejected = visit.make({ type: 'm.room.name', stateKey: '', sender: bob, content: { name: 'stolen' } });
    const onTop = visit.make({
      ...{ type: 'm.room.message', sender: bob, content: { body: 'on top' } },
      prev: [rejected, start],
    });
    await sendTransaction(visitor, home, [rejected.pdu, onTop.pdu]);
    await seen('on top');
    await ok(alice, 'POST', `/rooms/${visit.roomId}/kick`, { user_id: bob });
    const soft = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'evading' }, prev: [start] });
    await sendTransaction(visitor, home, [soft.pdu]);
    await say(alice, visit.roomId, 'after');
    const back = await Visit.join(visitor, home, visit.roomId, bob);
    const [head] = back.heads as [RoomEvent];
    const room = part(visit.roomId);
    const ids = idsIn(back, (await get(`/backfill/${room}?v=${part(head.eventId)}&limit=100`)).body['pdus']);
    expect(ids).toContain(onTop.eventId);
    for (const bad of [rejected, soft]) {
      expect(ids).not.toContain(bad.eventId);
      const around = await missing(back, {
        earliest_events: [],
        latest_events: [bad.eventId, head.eventId],
        limit: 50,
      });
      expect(idsIn(back, around.body['events'])).not.toContain(bad.eventId);
    }
    expect((await get(`/event/${part(rejected.eventId)}`)).status).toBe(404);
    expect((await get(`/state_ids/${room}?event_id=${part(rejected.eventId)}`)).status).toBe(404);
    const { body } = await get(`/state_ids/${room}?event_id=${part(head.eventId)}`);
    expect([...(body['pdu_ids'] as string[]), ...(body['auth_chain_ids'] as string[])]).not.toContain(rejected.eventId);
  });

  it('holds what was soft-failed where others build upon it, though no client sees it', async () => {
    const visit = await visitRoom('12');
    const [start] = visit.heads as [RoomEvent];
    const carol = '@carol:third.test';
    const third = await world.played('third.test');
    const other = await Visit.join(third, home, visit.roomId, carol);
    await ok(alice, 'POST', `/rooms/${visit.roomId}/kick`, { user_id: bob });
    const evading = visit.make({ type: 'm.room.message', sender: bob, content: { body: 'evading' }, prev: [start] });
    await sendTransaction(visitor, home, [evading.pdu]);
    const [before] = other.heads as [RoomEvent];
    const content = { body: 'who has not heard of it' };
    const onTop = other.make({ type: 'm.room.message', sender: carol, content, prev: [evading, before] });
    await sendTransaction(third, home, [onTop.pdu]);
    const timeline = async (): Promise<WireEvent[]> =>
      (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${visit.roomId}/messages?dir=b&limit=50`)).chunk;
    await eventually(async () => (await timeline()).some((event) => event.event_id === onTop.eventId));
    expect((await timeline()).map((event) => event.event_id)).not.toContain(evading.eventId);
    const room = part(visit.roomId);
    const path = `/backfill/${room}?v=${part(onTop.eventId)}&limit=100`;
    expect(idsIn(other, (await get(path, third)).body['pdus'])).toContain(evading.eventId);
    const between = await missing(
      other,
      { earliest_events: [before.eventId], latest_events: [onTop.eventId], limit: 50 },
      third,
    );
    expect(idsIn(other, between.body['events'])).toContain(evading.eventId);
    expect((await get(`/event/${part(evading.eventId)}`, third)).status).toBe(200);
  });

  it('is spaces, as far as a server may know of their rooms', async () => {
    const open = await createRoom(alice, { preset: 'public_chat', name: 'open' });
    const closed = await createRoom(alice, { name: 'closed' });
    const shared = await createRoom(alice, { name: 'shared', invite: [] });
    const rule = {
      join_rule: 'restricted',
      allow: ['!a\0:home.test', open].map((roomId) => ({ type: 'm.room_membership', room_id: roomId })),
    };
    const restricted = await createRoom(alice, {
      name: 'restricted',
      initial_state: [{ type: 'm.room.join_rules', content: rule }],
    });
    const space = await createRoom(alice, {
      ...{ preset: 'public_chat', name: 'space', creation_content: { type: 'm.space' } },
      initial_state: [open, closed, shared, restricted, '!far:elsewhere.test'].map((roomId, index) => ({
        ...{ type: 'm.space.child', state_key: roomId },
        content: { via: ['home.test'], ...(index === 0 && { suggested: true }) },
      })),
    });
    const namesIn = (list: unknown): unknown[] => (list as JsonObject[]).map((room) => room['name']).sort();
    const { body } = await get(`/hierarchy/${part(space)}`);
    expect((body['room'] as JsonObject)['children_state']).toHaveLength(5);
    expect(namesIn(body['children'])).toEqual(['open']);
    expect([...(body['inaccessible_children'] as string[])].sort()).toEqual([closed, shared, restricted].sort());
    await Visit.join(visitor, home, open, bob);
    const member = (await get(`/hierarchy/${part(space)}`)).body;
    expect(namesIn(member['children'])).toEqual(['open', 'restricted']);
    expect(namesIn((await get(`/hierarchy/${part(space)}?suggested_only=true`)).body['children'])).toEqual(['open']);
    expect((await get(`/hierarchy/${part(closed)}`)).status).toBe(404);
    expect((await get(`/hierarchy/${part('!far:elsewhere.test')}`)).status).toBe(404);
    // A room tells nothing of itself to a server that may not take part in it.
    const complexity = (): Promise<Answer> =>
      visitor.request(home, 'GET', `/_matrix/federation/unstable/rooms/${part(open)}/complexity`);
    expect((await complexity()).status).toBe(200);
    await setState(alice, open, 'm.room.server_acl', { allow: ['*'], deny: ['visitor.test'] });
    const barred = (await get(`/hierarchy/${part(space)}`)).body;
    expect(namesIn(barred['children'])).toEqual(['restricted']);
    expect([...(barred['inaccessible_children'] as string[])].sort()).toEqual([open, closed, shared].sort());
    expect((await get(`/hierarchy/${part(open)}`)).status).toBe(404);
    expect((await complexity()).status).toBe(404);
  });
});
