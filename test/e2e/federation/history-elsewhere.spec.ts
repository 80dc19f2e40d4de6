import { type RoomEvent, signEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { shownMetric } from '../../support/shown-metric.js';
import { databases, ok, say, type WireEvent } from '../rooms/rooms-client.js';
import { ElsewhereRoom, pduOf, Refusal } from './elsewhere-room.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction } from './visiting-server.js';

interface Page {
  readonly chunk: WireEvent[];
  readonly end?: string;
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join: Record<
      string,
      {
        readonly state: { readonly events: WireEvent[] };
        readonly timeline: { readonly events: WireEvent[]; readonly limited: boolean; readonly prev_batch: string };
      }
    >;
  };
}

describe.each(databases)('history of rooms elsewhere (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let far: PlayedServer;
  let alice: TestUser;

  beforeAll(async () => {
    world = await FederationWorld.create();
    const resources = [{ names: ['client', 'federation', 'metrics'] }];
    const listeners = [{ port: await freePort(), bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    const settings = { max_event_delay_duration: '1h', enable_metrics: true, listeners };
    home = await world.homeserver('home.test', { database, settings });
    far = await world.played('far.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world?.stop());

  const join = (room: ElsewhereRoom) => ok(alice, 'POST', `/join/${room.roomId}?via=${far.name}`, {});
  const page = (room: ElsewhereRoom, query = ''): Promise<Page> =>
    ok(alice, 'GET', `/rooms/${room.roomId}/messages?dir=b${query.includes('limit=') ? '' : '&limit=30'}${query}`);
  const bodiesOf = ({ chunk }: Page): unknown[] =>
    chunk.flatMap((event) => (event.type === 'm.room.message' ? [event.content['body']] : []));

  /** Everything back to the beginning, by pages. */
  const readAll = async (room: ElsewhereRoom, query = ''): Promise<unknown[]> => {
    const bodies: unknown[] = [];
    let current = await page(room, query);
    for (let pages = 0; pages < 50; pages++) {
      bodies.push(...bodiesOf(current));
      if (current.end === undefined) return bodies;
      current = await page(room, `${query}&from=${current.end}`);
    }
    throw new Error('the history has no end');
  };

  /** Sends events as the far server does. */
  const push = (...events: RoomEvent[]) => sendTransaction(far, home, events.map(pduOf));

  const seen = (room: ElsewhereRoom, body: string, limitMs?: number): Promise<unknown> =>
    eventually(async () => bodiesOf(await page(room)).includes(body), limitMs);

  it.each(['1', '6', '12'])(
    'reads 250 messages from before the join, in order and once each (version %s)',
    async (version) => {
      const room = new ElsewhereRoom(far, version);
      const said = Array.from({ length: 250 }, (_, i) => `message ${i}`);
      for (const body of said) room.say(body);
      await join(room);
      expect(await readAll(room)).toEqual(said.reverse());
      expect(room.requests.filter((kind) => kind === 'backfill').length).toBeLessThan(12);
      // Only before the join, which changed it, the state is not that of what follows.
      expect(room.requests.filter((kind) => kind === 'state_ids')).toHaveLength(1);
      for (const part of ['before', 'after']) {
        const name = `synapse_federation_backfill_processing_${part}_time_seconds`;
        expect(await shownMetric(home.baseUrl, `${name}_count`)).toBeGreaterThan(0);
        expect(await shownMetric(home.baseUrl, `${name}_sum`)).toBeGreaterThan(0);
      }
    },
  );

  it.each([
    ['large pages', '&limit=200'],
    ['a filter that little passes', `&filter=${encodeURIComponent('{"contains_url":true}')}`],
  ])('reads on where one request cannot fetch everything: %s', async (_, query) => {
    const room = new ElsewhereRoom(far, '10');
    const said = Array.from({ length: 450 }, (__, i) => `picture ${i}`);
    for (const [i, body] of said.entries()) {
      const isPicture = i % 90 === 0;
      room.add({
        type: 'm.room.message',
        content: { body, ...((isPicture || query.includes('limit')) && { url: 'mxc://a/b' }) },
      });
    }
    await join(room);
    const wanted = said.filter((__, i) => i % 90 === 0 || query.includes('limit'));
    expect(await readAll(room, query)).toEqual(wanted.reverse());
  });

  it('lets a reader go on when the only other server is there again', async () => {
    const faint = await world.played('faint.test');
    const room = new ElsewhereRoom(faint, '10');
    const said = Array.from({ length: 20 }, (_, i) => `old ${i}`);
    for (const body of said) room.say(body);
    await ok(alice, 'POST', `/join/${room.roomId}?via=${faint.name}`, {});
    room.lies.set('backfill', () => new Refusal(503, { errcode: 'M_UNKNOWN', error: 'Down' }));
    const first = await page(room);
    expect(first.chunk.map((event) => event.type)).toEqual(['m.room.member']);
    expect(first.end).toBeDefined();
    // Nobody gives more now: clients are not to ask without end.
    const second = await page(room, `&from=${first.end}`);
    expect(second).not.toHaveProperty('end');
    expect(second.chunk).toEqual([]);
    room.lies.delete('backfill');
    // Who sends something is there.
    expect((await sendTransaction(faint, home, [pduOf(room.say('here I am'))])).status).toBe(200);
    await seen(room, 'here I am');
    expect(bodiesOf(await page(room, `&from=${first.end}`))).toEqual(said.reverse());
  });

  it('takes what was before the join for history, and not for news that current state would refuse', async () => {
    const room = new ElsewhereRoom(far, '11');
    const users = { [room.creator]: 100, [alice.userId]: 100 };
    const dave = `@dave:${far.name}`;
    room.add({ type: 'm.room.power_levels', stateKey: '', content: { users, users_default: 0 } });
    room.add({ type: 'm.room.member', stateKey: dave, sender: dave, content: { membership: 'join' } });
    room.add({ type: 'm.room.message', sender: dave, content: { body: 'I was here' } });
    const forked = room.say('old');
    const tip = room.say('older than the join');
    await join(room);
    const { next_batch: since } = await ok<Sync>(alice, 'GET', '/sync');
    // Only here is he banned: as long as the others do not know, his old events are none of the current state's business.
    await ok(alice, 'POST', `/rooms/${room.roomId}/ban`, { user_id: dave });
    room.say('new 1');
    expect((await push(room.say('new 2'))).status).toBe(200);
    await seen(room, 'new 1');
    for (const [body, prev] of [
      ['beside the join', tip],
      ['beside an old one', forked],
    ] as const) {
      const late = room.make({ type: 'm.room.message', content: { body }, prev: [prev] });
      room.known.set(late.eventId, late);
      expect((await push(late)).status).toBe(200);
      await seen(room, body);
    }
    const filter = encodeURIComponent('{"room":{"timeline":{"limit":50}}}');
    const { rooms } = await ok<Sync>(alice, 'GET', `/sync?since=${since}&filter=${filter}`);
    const told = rooms?.join[room.roomId]?.timeline.events ?? [];
    const old = ['I was here', 'old', 'older than the join'];
    expect(told.filter(({ content }) => old.includes(String(content['body'])))).toEqual([]);
    expect(told.filter(({ type }) => type === 'm.room.create' || type === 'm.room.power_levels')).toEqual([]);
    const all = await readAll(room);
    expect(all).toEqual(expect.arrayContaining([...old, 'new 1', 'new 2', 'beside the join', 'beside an old one']));
    expect(new Set(all).size).toBe(all.length);
  });

  it('shows what was sent right before its server could not be reached, as soon as that is there again', async () => {
    const faint = await world.played('fading.test');
    const room = new ElsewhereRoom(faint, '11');
    await ok(alice, 'POST', `/join/${room.roomId}?via=${faint.name}`, {});
    const kinds = ['get_missing_events', 'event', 'event_auth', 'state_ids', 'backfill'];
    for (const kind of kinds) room.lies.set(kind, () => new Refusal(503, { errcode: 'M_UNKNOWN', error: 'Down' }));
    room.say('before the last');
    expect((await sendTransaction(faint, home, [pduOf(room.say('the last'))])).status).toBe(200);
    await eventually(() => room.requests.includes('get_missing_events'));
    for (const kind of kinds) room.lies.delete(kind);
    // It says nothing more in this room.
    await eventually(async () => {
      expect((await sendTransaction(faint, home, [])).status).toBe(200);
      const bodies = bodiesOf(await page(room));
      return ['before the last', 'the last'].every((body) => bodies.includes(body));
    });
  });

  it('goes on behind a gap that nobody fills', async () => {
    const room = new ElsewhereRoom(far, '10');
    room.say('before');
    await join(room);
    expect(await readAll(room)).toEqual(['before']);
    const head = room.head;
    room.add({ type: 'm.room.message', content: { body: 'withheld' }, prev: [head] });
    for (const kind of ['get_missing_events', 'backfill', 'event']) {
      room.lies.set(kind, () => new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'No' }));
    }
    expect((await push(room.say('after'))).status).toBe(200);
    await seen(room, 'after');
    const first = await page(room);
    expect(bodiesOf(first)).toEqual(['after']);
    expect(bodiesOf(await page(room, `&from=${first.end}`))).toEqual(['before']);
  });

  it('reads history with forks, and state as it was', async () => {
    const room = new ElsewhereRoom(far, '10');
    const base = room.say('base');
    const left = room.say('left');
    const right = room.add({ type: 'm.room.message', content: { body: 'right' }, prev: [base] });
    room.add({ type: 'm.room.name', stateKey: '', content: { name: 'Later' }, prev: [left, right] });
    room.say('after');
    await join(room);
    const all = await readAll(room);
    expect(all[0]).toBe('after');
    expect(all.slice(1, 3).sort()).toEqual(['left', 'right']);
    expect(all[3]).toBe('base');
    const context = await ok<{ state: WireEvent[] }>(
      alice,
      'GET',
      `/rooms/${room.roomId}/context/${encodeURIComponent(base.eventId)}?limit=0`,
    );
    expect(context.state.find((event) => event.type === 'm.room.name')?.content['name']).toBe('Elsewhere 10');
  });

  it('misses nothing on the way back from a timeline that begins with a late fork', async () => {
    const room = new ElsewhereRoom(far, '11');
    await join(room);
    const { next_batch: since } = await ok<Sync>(alice, 'GET', '/sync');
    const send = (body: string) =>
      ok(alice, 'PUT', `/rooms/${room.roomId}/send/m.room.message/${body}`, { msgtype: 'm.text', body });
    const late = room.make({ type: 'm.room.message', content: { body: 'late' } });
    for (const body of ['one', 'two', 'three', 'four']) await send(body);
    expect((await push(late)).status).toBe(200);
    await seen(room, 'late');
    for (const body of ['five', 'six', 'seven']) await send(body);
    const before = ['four', 'three', 'two', 'one'];

    const filter = encodeURIComponent('{"room":{"timeline":{"limit":4}}}');
    const { rooms } = await ok<Sync>(alice, 'GET', `/sync?since=${since}&filter=${filter}`);
    const { timeline } = rooms?.join[room.roomId] ?? {};
    expect(timeline?.events.map((event) => event.content['body'])).toEqual(['late', 'five', 'six', 'seven']);
    expect(bodiesOf(await page(room, `&from=${timeline?.prev_batch}&limit=4`))).toEqual(before);

    const { body: slid } = await alice.request<{
      rooms: Record<string, { timeline: WireEvent[]; prev_batch: string }>;
    }>('POST', '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync', {
      room_subscriptions: { [room.roomId]: { timeline_limit: 4, required_state: [] } },
    });
    const window = slid.rooms[room.roomId];
    expect(window?.timeline.map((event) => event.content['body'])).toEqual(['late', 'five', 'six', 'seven']);
    expect(bodiesOf(await page(room, `&from=${window?.prev_batch}&limit=4`))).toEqual(before);
  });

  it('tells who was in the room in front of all that is known of it', async () => {
    const room = new ElsewhereRoom(far, '11');
    await join(room);
    const { rooms } = await ok<Sync>(alice, 'GET', '/sync');
    const { timeline } = rooms?.join[room.roomId] ?? {};
    expect(timeline?.events.map((event) => event.state_key)).toEqual([alice.userId]);
    const { chunk } = await ok<Page>(alice, 'GET', `/rooms/${room.roomId}/members?at=${timeline?.prev_batch}`);
    expect(chunk.map((event) => event.state_key)).toEqual([room.creator]);
  });

  it('tells it to whoever came first, and not to who came later where history is for those who were there', async () => {
    const bob = await home.registerUser('bob');
    for (const visibility of ['shared', 'joined']) {
      const room = new ElsewhereRoom(far, '11');
      room.add({
        ...{ type: 'm.room.history_visibility', stateKey: '' },
        content: { history_visibility: visibility },
      });
      await join(room);
      const { rooms } = await ok<Sync>(alice, 'GET', '/sync');
      const path = `/rooms/${room.roomId}/members?at=${rooms?.join[room.roomId]?.timeline.prev_batch}`;
      await ok(bob, 'POST', `/join/${room.roomId}`, {});
      const { chunk } = await ok<Page>(alice, 'GET', path);
      expect(chunk.map((event) => event.state_key)).toEqual([room.creator]);
      expect((await bob.request('GET', path)).status).toBe(visibility === 'shared' ? 200 : 403);
    }
  });

  it('takes nothing into the past that the room does not name', async () => {
    const room = new ElsewhereRoom(far, '10');
    for (let i = 0; i < 5; i++) room.say(`true ${i}`);
    const [, , , , first] = room.events;
    if (!first) throw new Error('no event');
    const made = room.make({ type: 'm.room.message', content: { body: 'made up' }, prev: [first] });
    room.lies.set('backfill', (honest) => ({
      pdus: [made.pdu, ...(honest['pdus'] as object[]), { rubbish: true }, 7, ...(honest['pdus'] as object[])],
    }));
    await join(room);
    expect(await readAll(room)).toEqual(['true 4', 'true 3', 'true 2', 'true 1', 'true 0']);
  });

  it('asks again by and by only for what nobody gave, and serves what is there', async () => {
    const room = new ElsewhereRoom(far, '10');
    room.say('withheld');
    await join(room);
    for (const lie of [() => ({ pdus: [] }), () => new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'No' })]) {
      room.lies.set('backfill', lie);
      expect(bodiesOf(await page(room))).toEqual([]);
    }
    // The first failure was noted: nobody was asked a second time.
    expect(room.requests.filter((kind) => kind === 'backfill').length).toBe(1);
  });

  it('goes on where a server gave rubbish about the state of the past', async () => {
    const room = new ElsewhereRoom(far, '11');
    for (let i = 0; i < 3; i++) room.say(`old ${i}`);
    await join(room);
    // An answer that begins in the middle: the state there must be asked for.
    room.lies.set('backfill', (honest) => ({ pdus: (honest['pdus'] as object[]).slice(0, 2) }));
    room.lies.set('state_ids', () => ({ pdu_ids: ['$nothing', 7], auth_chain_ids: 'all' }));
    expect(bodiesOf(await page(room))).toEqual([]);
    expect((await alice.request('GET', `/rooms/${room.roomId}/state/m.room.name`)).status).toBe(200);
  });

  it('fills the gap of an outage, and has the state of today', async () => {
    const room = new ElsewhereRoom(far, '10');
    await join(room);
    const said = Array.from({ length: 120 }, (_, i) => `missed ${i}`);
    for (const [i, body] of said.entries()) {
      if (i === 60) room.add({ type: 'm.room.name', stateKey: '', content: { name: 'Renamed' } });
      room.say(body);
    }
    const last = room.say('back again');
    expect((await push(last)).status).toBe(200);
    await seen(room, 'back again');
    expect((await readAll(room)).slice(0, 121)).toEqual(['back again', ...said.reverse()]);
    expect(await ok(alice, 'GET', `/rooms/${room.roomId}/state/m.room.name`)).toEqual({ name: 'Renamed' });
  });

  it('takes the state from the server where the gap is too wide, and the events when somebody reads them', async () => {
    const room = new ElsewhereRoom(far, '12');
    await join(room);
    const { next_batch: since } = await ok<Sync>(alice, 'GET', '/sync');
    for (let i = 0; i < 10; i++) room.say(`missed ${i}`);
    room.add({ type: 'm.room.topic', stateKey: '', content: { topic: 'set meanwhile' } });
    const last = room.say('back again');
    room.lies.set('get_missing_events', () => ({ events: [] }));
    expect((await push(last)).status).toBe(200);
    await seen(room, 'back again');
    expect(await ok(alice, 'GET', `/rooms/${room.roomId}/state/m.room.topic`)).toEqual({ topic: 'set meanwhile' });
    // A sync says that something lies before what it shows, also after a restart.
    await home.restart();
    const { rooms } = await ok<Sync>(alice, 'GET', `/sync?since=${since}`);
    const { timeline, state } = rooms?.join[room.roomId] ?? {};
    expect(timeline?.events.map((event) => event.content['body'])).toEqual(['back again']);
    expect(timeline?.limited).toBe(true);
    expect(state?.events.map((event) => event.type)).toEqual(['m.room.topic']);
    const missed = await page(room, `&from=${timeline?.prev_batch}`);
    expect(bodiesOf(missed)).toEqual(Array.from({ length: 10 }, (_, i) => `missed ${9 - i}`));
    expect((await readAll(room)).slice(0, 11)).toEqual([
      'back again',
      ...Array.from({ length: 10 }, (_, i) => `missed ${9 - i}`),
    ]);
  });

  it('lets the past stand in the way of no state that is to be set later', async () => {
    const room = new ElsewhereRoom(far, '11');
    const levels = { users: { [room.creator]: 100, [alice.userId]: 100 } };
    room.add({ type: 'm.room.power_levels', stateKey: '', content: levels });
    room.add({ type: 'org.example.seat', stateKey: 'mine', content: { taken: 'long ago' } });
    for (let i = 0; i < 10; i++) room.say(`message ${i}`);
    await join(room);
    const msc4140 = 'org.matrix.msc4140';
    const path = `/rooms/${room.roomId}/state/org.example.seat/mine?${msc4140}.delay=600000`;
    const { delay_id: delayId } = await ok<{ delay_id: string }>(alice, 'PUT', path, { taken: false });
    expect(await readAll(room)).toHaveLength(10);
    const waiting = `/_matrix/client/unstable/${msc4140}/delayed_events`;
    const ids = async (): Promise<string[]> =>
      (await ok<{ delayed_events: { delay_id: string }[] }>(alice, 'GET', waiting)).delayed_events.map(
        ({ delay_id: id }) => id,
      );
    expect(await ids()).toEqual([delayId]);
    // What somebody sets now does.
    expect(
      (await push(room.add({ type: 'org.example.seat', stateKey: 'mine', content: { taken: 'now' } }))).status,
    ).toBe(200);
    await eventually(async () => (await ids()).length === 0);
  });

  it('counts replies that come with the past to an event of our own', async () => {
    const room = new ElsewhereRoom(far, '11');
    await join(room);
    const root = await say(alice, room.roomId, 'the root');
    const shown = async (): Promise<unknown> =>
      (await ok<WireEvent>(alice, 'GET', `/rooms/${room.roomId}/event/${root}`)).unsigned?.['m.relations'];
    expect(await shown()).toBeUndefined();
    const relation = { rel_type: 'm.thread', event_id: root };
    const reply = room.add({ type: 'm.room.message', content: { body: 'a reply', 'm.relates_to': relation } });
    for (let i = 0; i < 10; i++) room.say(`missed ${i}`);
    room.lies.set('get_missing_events', () => ({ events: [] }));
    expect((await push(room.say('back again'))).status).toBe(200);
    await seen(room, 'a reply');
    expect(await shown()).toMatchObject({ 'm.thread': { count: 1, latest_event: { event_id: reply.eventId } } });
  });

  it('asks other servers of the room for what one withholds', async () => {
    const room = new ElsewhereRoom(far, '10');
    const third = await world.played('third.test');
    const dan = `@dan:${third.name}`;
    const content = { membership: 'join' };
    const joining = room.make({ type: 'm.room.member', stateKey: dan, sender: dan, content, unsigned: true });
    room.take(signEvent(joining, third.name, third.key));
    await join(room);
    const head = room.head;
    const levels = room.add({
      ...{ type: 'm.room.power_levels', stateKey: '' },
      content: { users: { [room.creator]: 100 }, invite: 50 },
    });
    const message = room.make({ type: 'm.room.message', content: { body: 'it rests upon levels' }, prev: [head] });
    expect(message.authEventIds).toContain(levels.eventId);
    for (const kind of ['event', 'get_missing_events', 'state_ids', 'state', 'backfill']) {
      room.lies.set(kind, () => new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'No' }));
    }
    const given: string[] = [];
    third.answer = (asked, response) => {
      const id = decodeURIComponent(asked.url.split('/event/')[1] ?? '');
      const event = room.known.get(id);
      if (!event) return void response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
      given.push(id);
      response.end(JSON.stringify({ pdus: [event.pdu] }));
    };
    expect((await push(message)).status).toBe(200);
    await seen(room, 'it rests upon levels');
    expect(given).toEqual([levels.eventId]);
  });

  it('gives up on chains without end, and holds up nobody meanwhile', async () => {
    const room = new ElsewhereRoom(far, '10');
    await join(room);
    let last = room.head;
    for (let i = 0; i < 700; i++) {
      const auth = [...last.authEventIds.slice(0, 2), last.eventId];
      last = room.make({ type: 'm.room.topic', stateKey: '', content: { topic: `${i}` }, auth });
      room.known.set(last.eventId, last);
    }
    const auth = [...room.head.authEventIds.slice(0, 2), last.eventId];
    const chained = room.make({ type: 'm.room.message', content: { body: 'at the end of a chain' }, auth });
    for (let i = 0; i < 400; i++) room.say(`deep ${i}`);
    expect((await push(chained, room.say('normal'))).status).toBe(200);
    // Hundreds of requests come before.
    await seen(room, 'normal', 200_000);
    expect(bodiesOf(await page(room))).not.toContain('at the end of a chain');
    const count = (kind: string): number => room.requests.filter((each) => each === kind).length;
    expect(count('get_missing_events')).toBeLessThanOrEqual(11);
    expect(count('event')).toBeLessThanOrEqual(600);
  });

  it('finds an event by time on another server, and shows what is around it', async () => {
    const room = new ElsewhereRoom(far, '10');
    const events = Array.from({ length: 20 }, (_, i) => room.say(`at ${i}`));
    await join(room);
    const wanted = events[7]!;
    const find = (ts: number, dir: string) =>
      alice.request<JsonObject>(
        'GET',
        `/_matrix/client/v1/rooms/${room.roomId}/timestamp_to_event?ts=${ts}&dir=${dir}`,
      );
    expect((await find(wanted.originServerTs, 'b')).body).toEqual({
      event_id: wanted.eventId,
      origin_server_ts: wanted.originServerTs,
    });
    const context = await ok<{ event: WireEvent; events_before: WireEvent[] }>(
      alice,
      'GET',
      `/rooms/${room.roomId}/context/${encodeURIComponent(wanted.eventId)}`,
    );
    expect(context.event.content['body']).toBe('at 7');
    room.lies.set('timestamp_to_event', () => ({ event_id: '$made-up', origin_server_ts: 5 }));
    expect((await find(events[2]!.originServerTs, 'b')).status).toBe(404);
  });

  it('tells of no event elsewhere that its reader may not see', async () => {
    const room = new ElsewhereRoom(far, '10');
    room.add({ type: 'm.room.history_visibility', stateKey: '', content: { history_visibility: 'joined' } });
    const events = Array.from({ length: 5 }, (_, n) => room.say(`before ${n}`));
    await join(room);
    const wanted = events[2]!;
    const find = (dir: string) =>
      alice.request<JsonObject>(
        'GET',
        `/_matrix/client/v1/rooms/${room.roomId}/timestamp_to_event?ts=${wanted.originServerTs}&dir=${dir}`,
      );
    expect((await find('b')).status).toBe(404);
    expect(room.requests).toContain('timestamp_to_event');
    expect((await find('f')).body['event_id']).not.toBe(wanted.eventId);
  });

  it('walks through a space elsewhere, and hides what its rooms hide', async () => {
    const space = new ElsewhereRoom(far, '10');
    const childOf = (roomId: string, name: string, more: object = {}): JsonObject => ({
      ...{ room_id: roomId, name, num_joined_members: 3, world_readable: false, guest_can_join: false, ...more },
    });
    const { room_id: local } = await ok<{ room_id: string }>(alice, 'POST', '/createRoom', {
      creation_content: { type: 'm.space' },
    });
    await ok(alice, 'PUT', `/rooms/${local}/state/m.space.child/${space.roomId}`, { via: [far.name] });
    const entry = (roomId: string): JsonObject => ({
      ...{ type: 'm.space.child', state_key: roomId, sender: space.creator, origin_server_ts: 1 },
      content: { via: [far.name] },
    });
    const [open, closed, secret] = ['!open:far.test', '!closed:far.test', '!secret:far.test'] as const;
    const [ours, odd] = ['!ours:far.test', '!odd:far.test'] as const;
    space.lies.set('hierarchy', (_, asked) => {
      if (!asked.url.includes(encodeURIComponent(space.roomId))) {
        return new Refusal(404, { errcode: 'M_NOT_FOUND', error: 'No' });
      }
      return {
        room: {
          ...childOf(space.roomId, 'Space', { room_type: 'm.space', join_rule: 'public' }),
          children_state: [...['!a\0:far.test', open, closed, secret, ours, odd].map(entry), { type: 'rubbish' }],
        },
        children: [
          childOf(open, 'Open', { join_rule: 'public' }),
          childOf(closed, 'Closed', { join_rule: 'invite' }),
          childOf(ours, 'Ours', { join_rule: 'restricted', allowed_room_ids: ['\0', '!\0:far.test', 7, local] }),
          childOf(odd, 'Odd', { join_rule: 'restricted', allowed_room_ids: ['\0', '!\0:far.test'] }),
        ],
        inaccessible_children: [secret],
      };
    });
    const walk = () => ok<{ rooms: { name?: string }[] }>(alice, 'GET', `/_matrix/client/v1/rooms/${local}/hierarchy`);
    expect((await walk()).rooms.map((room) => room.name)).toEqual([undefined, 'Space', 'Open', 'Ours']);
    // Nobody is asked for what was just said to be hidden.
    expect(space.requests.filter((kind) => kind === 'hierarchy').length).toBe(1);
    const summary = (roomId: string) =>
      alice.request<JsonObject>('GET', `/_matrix/client/v1/room_summary/${roomId}?via=${far.name}`);
    expect((await summary(open)).body).toMatchObject({ room_id: open, name: 'Open' });
    expect((await summary(ours)).body).toMatchObject({ room_id: ours, allowed_room_ids: [local] });
    for (const hidden of [closed, odd]) expect((await summary(hidden)).status).toBe(404);
  });

  it('shows rooms of a space elsewhere as soon as that server does, and believes it for a while', async () => {
    const { room_id: local } = await ok<{ room_id: string }>(alice, 'POST', '/createRoom', {
      creation_content: { type: 'm.space' },
    });
    const [space, direct, inside] = ['!space:far.test', '!direct:far.test', '!inside:far.test'] as const;
    for (const roomId of [space, direct])
      await ok(alice, 'PUT', `/rooms/${local}/state/m.space.child/${roomId}`, { via: [far.name] });
    let isOpen = false;
    const asked: string[] = [];
    const roomOf = (roomId: string, more: object = {}): object => ({
      ...{ room_id: roomId, num_joined_members: 3, world_readable: false, guest_can_join: false, join_rule: 'public' },
      ...{ children_state: [], ...more },
    });
    far.answer = ({ url }, response) => {
      const roomId = decodeURIComponent(/\/hierarchy\/([^?]*)/.exec(url)?.[1] ?? '');
      // Transactions come here as well, whenever they like.
      if (roomId !== '') asked.push(roomId);
      const entry = { type: 'm.space.child', state_key: inside, sender: '@a:far.test', origin_server_ts: 1 };
      const children_state = [{ ...entry, content: { via: [far.name] } }];
      if (roomId === space)
        response.end(
          JSON.stringify({
            room: roomOf(space, { room_type: 'm.space', children_state }),
            children: isOpen ? [roomOf(inside)] : [],
            inaccessible_children: isOpen ? [] : [inside],
          }),
        );
      else if (roomId === direct && isOpen)
        response.end(JSON.stringify({ room: roomOf(direct), children: [], inaccessible_children: [] }));
      else response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
    };
    const walk = async (): Promise<string[]> =>
      (
        await ok<{ rooms: { room_id: string }[] }>(alice, 'GET', `/_matrix/client/v1/rooms/${local}/hierarchy`)
      ).rooms.map((room) => room.room_id);
    expect(await walk()).toEqual([local, space]);
    isOpen = true;
    expect(await walk()).toContain(direct);
    expect(
      (
        await eventually(async () => {
          const rooms = await walk();
          return rooms.includes(inside) && rooms;
        })
      ).sort(),
    ).toEqual([local, space, direct, inside].sort());
    asked.length = 0;
    await walk();
    expect(asked).toEqual([]);
  });

  it("lists another server's rooms, whatever it says", async () => {
    far.answer = (asked, response) => {
      const rooms = [{ room_id: '!a:far.test', num_joined_members: 'many', name: 7 }, 'rubbish', { name: 'no id' }];
      if (!asked.url.includes('publicRooms')) return void response.writeHead(404).end('{}');
      response.end(JSON.stringify({ chunk: rooms, next_batch: 'more', total_room_count_estimate: -1 }));
    };
    const listed = { room_id: '!a:far.test', num_joined_members: 0, world_readable: false, guest_can_join: false };
    expect(await ok(alice, 'GET', `/publicRooms?server=${far.name}`)).toEqual({ chunk: [listed], next_batch: 'more' });
    const filter = { generic_search_term: 'x' };
    expect(await ok(alice, 'POST', `/publicRooms?server=${far.name}`, { filter, limit: 5 })).toMatchObject({
      chunk: [listed],
    });
    // Transactions may come along: what is sent again because nobody took it before.
    const wanted = far.asked.findLast(({ url }) => url.includes('publicRooms'));
    expect(JSON.parse(wanted?.body ?? '')).toEqual({ filter, limit: 5 });
    expect((await alice.request('GET', '/publicRooms?server=gone.test')).status).toBe(502);
  });

  it.each(['', '&limit=0', '&limit=5000'])(
    "leads to all of another server's rooms, a page at a time%s",
    async (limit) => {
      const all = Array.from({ length: 1_100 }, (_, i) => ({ room_id: `!r${i}:far.test`, num_joined_members: 1 }));
      far.answer = ({ url }, response) => {
        if (!url.includes('publicRooms')) return void response.writeHead(404).end('{}');
        const { searchParams } = new URL(url, 'https://far.test');
        const begin = Number(searchParams.get('since') ?? 0);
        const end = begin + Number(searchParams.get('limit') ?? all.length);
        response.end(
          JSON.stringify({ chunk: all.slice(begin, end), ...(end < all.length && { next_batch: `${end}` }) }),
        );
      };
      const told: string[] = [];
      let since: string | undefined = '';
      for (let pages = 0; pages < 5 && since !== undefined; pages++) {
        const path: string = `/publicRooms?server=${far.name}${limit}&since=${since}`;
        const page: { chunk: { room_id: string }[]; next_batch?: string } = await ok(alice, 'GET', path);
        told.push(...page.chunk.map((room) => room.room_id));
        since = page.next_batch;
      }
      expect(told).toEqual(all.map((room) => room.room_id));
    },
  );
});
