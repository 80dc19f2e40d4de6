import { Database } from '@rookery/database';
import { parsePdu, type RoomEvent, roomVersionRules, signEvent, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { stateKeyOf } from '@rookery/state-res';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { setTimeout as delay } from 'node:timers/promises';
import { createRoom, databases, ok, outcome, say, type WireEvent } from '../rooms/rooms-client.js';
import { ElsewhereRoom, type Lie, Refusal } from './elsewhere-room.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { Visit } from './visiting-server.js';

const list = (value: unknown): JsonObject[] => value as JsonObject[];
const without = (value: unknown, type: string): JsonObject[] => list(value).filter((pdu) => pdu['type'] !== type);
const stranger = SigningKey.fromSeed('stranger', new Uint8Array(32).fill(77));
/** Claims to be the key of a played server. */
const forger = SigningKey.fromSeed('played', new Uint8Array(32).fill(78));

describe.each(databases)('joins of rooms elsewhere (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let far: PlayedServer;
  let alice: TestUser;

  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', { database });
    far = await world.played('far.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world?.stop());

  const join = (room: ElsewhereRoom, via = [far.name]) =>
    alice.request<JsonObject>('POST', `/join/${room.roomId}?${via.map((name) => `via=${name}`).join('&')}`, {});
  const nameOf = async (room: ElsewhereRoom): Promise<unknown> =>
    (await ok(alice, 'GET', `/rooms/${room.roomId}/state/m.room.name`))['name'];

  it.each(['1', '2', '6', '10', '11', '12'])(
    'joins a room of version %s and reads what was before',
    async (version) => {
      const room = new ElsewhereRoom(far, version);
      for (let i = 0; i < 5; i++) room.say(`before ${i}`);
      expect((await join(room)).status).toBe(200);
      expect(await nameOf(room)).toBe(`Elsewhere ${version}`);
      const { joined } = await ok<{ joined: Record<string, unknown> }>(
        alice,
        'GET',
        `/rooms/${room.roomId}/joined_members`,
      );
      expect(Object.keys(joined).sort()).toEqual([alice.userId, room.creator].sort());
      await say(alice, room.roomId, 'hello');
      const { chunk } = await ok<{ chunk: WireEvent[] }>(
        alice,
        'GET',
        `/rooms/${room.roomId}/messages?dir=b&limit=100`,
      );
      const bodies = chunk.flatMap((event) => (event.type === 'm.room.message' ? [event.content['body']] : []));
      expect(bodies).toEqual(['hello', 'before 4', 'before 3', 'before 2', 'before 1', 'before 0']);
      expect(chunk.at(-1)?.type).toBe('m.room.create');
    },
  );

  /** Lies after which nothing must be believed: the join fails. */
  const refused: [string, string, (room: ElsewhereRoom) => Lie][] = [
    ['a room version that nobody knows', 'make_join', () => (honest) => ({ ...honest, room_version: 'org.evil' })],
    ['another room version', 'make_join', () => (honest) => ({ ...honest, room_version: '9' })],
    ['an event of another user', 'make_join', (room) => (honest) => change(honest, { state_key: room.creator })],
    ['another sender', 'make_join', (room) => (honest) => change(honest, { sender: room.creator })],
    ['another room', 'make_join', () => (honest) => change(honest, { room_id: '!other:far.test' })],
    ['a ban', 'make_join', () => (honest) => change(honest, { content: { membership: 'ban' } })],
    ['an event without a depth', 'make_join', () => (honest) => change(honest, { depth: 'deep' })],
    ['references that are none', 'make_join', () => (honest) => change(honest, { prev_events: [1, {}] })],
    [
      'hundreds of previous events',
      'make_join',
      () => (honest) => change(honest, { prev_events: Array.from({ length: 500 }, (_, i) => `$e${i}`) }),
    ],
    ['no object', 'make_join', () => () => '[1,2,3]'],
    ['no JSON', 'make_join', () => () => '{"event":'],
    ['megabytes', 'make_join', () => (honest) => ({ ...honest, more: 'x'.repeat(2_000_000) })],
    ['a refusal', 'make_join', () => () => new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'No' })],
    ['no state', 'send_join', () => () => ({})],
    ['lists that are none', 'send_join', () => (honest) => ({ ...honest, state: 'all', auth_chain: 7 })],
    [
      'a state without its create event',
      'send_join',
      () => (honest) => ({ ...honest, state: without(honest['state'], 'm.room.create') }),
    ],
    ['a state without its members', 'send_join', () => (honest) => ({ ...honest, members_omitted: true })],
    [
      'another create event',
      'send_join',
      (room) => (honest) => {
        const content = { room_version: room.version, creator: room.creator, evil: true };
        const create = room.make({ type: 'm.room.create', stateKey: '', content, prev: [], auth: [] });
        return { ...honest, state: [create.pdu, ...without(honest['state'], 'm.room.create')] };
      },
    ],
    [
      'a create event that nobody signed',
      'send_join',
      () => (honest) => ({
        state: list(honest['state']).map((pdu) => (pdu['type'] === 'm.room.create' ? { ...pdu, signatures: {} } : pdu)),
        auth_chain: without(honest['auth_chain'], 'm.room.create'),
      }),
    ],
    [
      'two events for one key',
      'send_join',
      (room) => (honest) => {
        const second = room.make({ type: 'm.room.name', stateKey: '', content: { name: 'Second' } });
        return { ...honest, state: [...list(honest['state']), second.pdu] };
      },
    ],
    [
      'a message as state',
      'send_join',
      (room) => (honest) => {
        const message = room.make({ type: 'm.room.message', content: { body: 'state?' } });
        return { ...honest, state: [...list(honest['state']), message.pdu] };
      },
    ],
    [
      'a join rule that keeps everybody out',
      'send_join',
      (room) => (honest) => {
        const closed = room.make({ type: 'm.room.join_rules', stateKey: '', content: { join_rule: 'invite' } });
        return { ...honest, state: [...without(honest['state'], 'm.room.join_rules'), closed.pdu] };
      },
    ],
    [
      'a state whose auth events are withheld',
      'send_join',
      () => (honest) => ({ state: without(honest['state'], 'm.room.power_levels'), auth_chain: [] }),
    ],
  ];

  it.each(refused)('believes nothing of a server that tells of %s (%s)', async (told, kind, lie) => {
    const room = new ElsewhereRoom(far, '10');
    room.lies.set(kind, lie(room));
    const answer = await join(room);
    const expected = told === 'a refusal' ? [403, 'M_FORBIDDEN'] : [502, 'M_UNKNOWN'];
    expect([answer.status, answer.body['errcode']]).toEqual(expected);
    expect((await alice.request('GET', `/rooms/${room.roomId}/state`)).status).toBe(403);
    room.lies.clear();
    // The lies have left nothing behind that would stand in the way.
    expect((await join(room)).status).toBe(200);
    expect(await nameOf(room)).toBe('Elsewhere 10');
  });

  /** Lies that are left out: the rest stands. */
  const hidden = { type: 'm.room.topic', stateKey: '', content: { topic: 'hidden' } };
  const leftOut: [string, (room: ElsewhereRoom) => readonly Readonly<JsonObject>[]][] = [
    ['that nobody signed', (room) => [room.make({ ...hidden, unsigned: true }).pdu]],
    [
      'that a stranger signed',
      (room) => [signEvent(room.make({ ...hidden, unsigned: true }), room.server.name, stranger).pdu],
    ],
    ['that the rules forbid', (room) => [room.make({ ...hidden, sender: `@nobody:${room.server.name}` }).pdu]],
    ['whose auth events nobody has', (room) => [room.make({ ...hidden, auth: ['$nobody-knows'] }).pdu]],
    ['that is no event', () => [{ type: 'm.room.topic' }, 7 as unknown as JsonObject, { ...nested(2_000) }]],
    ['of another room', (room) => [new ElsewhereRoom(room.server, '10').make({ ...hidden }).pdu]],
  ];

  it.each(leftOut)('leaves out state %s', async (_, make) => {
    const room = new ElsewhereRoom(far, '10');
    const more = make(room);
    room.lies.set('send_join', (honest) => ({ ...honest, state: [...list(honest['state']), ...more] }));
    far.answer = (asked, response) => void room.answer(asked, response);
    expect((await join(room)).status).toBe(200);
    expect(await nameOf(room)).toBe('Elsewhere 10');
    expect((await alice.request('GET', `/rooms/${room.roomId}/state/m.room.topic`)).status).toBe(404);
    await say(alice, room.roomId, 'it works');
  });

  it('redacts state whose content was changed on the way', async () => {
    const room = new ElsewhereRoom(far, '10');
    room.lies.set('send_join', (honest) => ({
      ...honest,
      state: list(honest['state']).map((pdu) =>
        pdu['type'] === 'm.room.name' ? { ...pdu, content: { name: 'Changed' } } : pdu,
      ),
    }));
    expect((await join(room)).status).toBe(200);
    expect(await ok(alice, 'GET', `/rooms/${room.roomId}/state/m.room.name`)).toEqual({});
  });

  it('asks the next server when one is gone, and says what most of them say', async () => {
    const room = new ElsewhereRoom(far, '12');
    expect((await join(room, ['gone.test', 'not a name', 'home.test', far.name])).status).toBe(200);
    const closed = new ElsewhereRoom(far, '12');
    closed.lies.set('make_join', () => new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'Not you' }));
    expect(await join(closed, ['gone.test', far.name])).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN', error: 'Not you' },
    });
    closed.lies.set('make_join', () => new Refusal(401, { errcode: 'M_UNKNOWN_TOKEN', error: 'Log out!' }));
    expect(await join(closed)).toMatchObject({ status: 502, body: { errcode: 'M_UNKNOWN' } });
    expect(await join(closed, ['gone.test'])).toMatchObject({ status: 502 });
  });

  it('waits a bounded time for a server that says nothing', async () => {
    const settings = { federation: { ...(world.settings['federation'] as object), client_timeout: '3s' } };
    const hasty = await world.homeserver('hasty.test', { database, settings });
    const carl = await hasty.registerUser('carl');
    const room = new ElsewhereRoom(far, '12');
    const [mute, slow] = [await world.played('mute.test'), await world.played('slow.test')];
    const enter = (...via: string[]) =>
      carl.request('POST', `/join/${room.roomId}?${via.map((name) => `via=${name}`).join('&')}`, {});
    mute.answer = () => undefined;
    expect((await enter(mute.name)).status).toBe(504);
    // Who was silent a moment ago is asked when all others were.
    const other = new ElsewhereRoom(far, '12');
    const order: string[] = [];
    mute.answer = () => void order.push('mute');
    far.answer = (request, response) => {
      order.push('far');
      void other.answer(request, response);
    };
    expect((await carl.request('POST', `/join/${other.roomId}?via=${mute.name}&via=${far.name}`, {})).status).toBe(200);
    expect(order[0]).toBe('far');
    far.answer = (request, response) => void room.answer(request, response);
    slow.answer = (asked, response) =>
      asked.url.includes('send_join') ? undefined : void room.answer(asked, response);
    expect((await enter(slow.name, far.name)).status).toBe(200);
    expect(await ok(carl, 'GET', `/rooms/${room.roomId}/state/m.room.name`)).toEqual({ name: 'Elsewhere 12' });
  });

  it('joins once, however often somebody asks meanwhile', async () => {
    const room = new ElsewhereRoom(far, '12');
    const answers = await Promise.all(Array.from({ length: 6 }, () => join(room)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200]);
    expect(room.events.filter((event) => event.sender === alice.userId).length).toBe(1);
  });

  it('takes what is said in a room from the moment in which its servers know of the join', async () => {
    const room = new ElsewhereRoom(far, '12');
    let sending: ReturnType<PlayedServer['request']> | undefined;
    room.lies.set('send_join', async (honest) => {
      const content = { origin: far.name, origin_server_ts: Date.now(), pdus: [room.say('welcome').pdu] };
      sending = far.request(home, 'PUT', '/_matrix/federation/v1/send/welcome', content);
      // Its own answer takes longer than that.
      await Promise.race([sending, delay(500)]);
      return honest;
    });
    expect((await join(room)).status).toBe(200);
    expect(await sending).toEqual({ status: 200, body: { pdus: { [room.head.eventId]: {} } } });
    await eventually(async () => {
      const path = `/rooms/${room.roomId}/messages?dir=b&limit=1`;
      const { chunk } = await ok<{ chunk: WireEvent[] }>(alice, 'GET', path);
      return chunk[0]?.content['body'] === 'welcome';
    });
  });

  it('knows who is there from the moment in which servers of the room know of the join', async () => {
    // Nobody of it is known from another room.
    const near = await world.played('near.test');
    const room = new ElsewhereRoom(near, '12');
    room.lies.set('send_join', async (honest) => {
      const push = [{ user_id: room.creator, presence: 'online', status_msg: 'waiting for you', last_active_ago: 5 }];
      const edus = [{ edu_type: 'm.presence', content: { push } }];
      const content = { origin: near.name, origin_server_ts: Date.now(), pdus: [], edus };
      const sending = near.request(home, 'PUT', '/_matrix/federation/v1/send/present', content);
      // Its own answer need not wait for that.
      await Promise.race([sending, delay(500)]);
      return honest;
    });
    expect((await join(room, [near.name])).status).toBe(200);
    await eventually(async () => {
      const { body } = await alice.request<JsonObject>('GET', `/presence/${room.creator}/status`);
      return body['status_msg'] === 'waiting for you';
    });
  });

  it('comes back after a ban that was lifted while nobody was there to hear of it', async () => {
    const room = new ElsewhereRoom(far, '11');
    expect((await join(room)).status).toBe(200);
    const ban = room.add({ type: 'm.room.member', stateKey: alice.userId, content: { membership: 'ban' } });
    const content = { origin: far.name, origin_server_ts: Date.now(), pdus: [ban.pdu] };
    expect((await far.request(home, 'PUT', '/_matrix/federation/v1/send/ban', content)).status).toBe(200);
    const joined = () => ok<{ joined_rooms: string[] }>(alice, 'GET', '/joined_rooms');
    await eventually(async () => !(await joined()).joined_rooms.includes(room.roomId));
    room.add({ type: 'm.room.member', stateKey: alice.userId, content: { membership: 'leave' } });
    room.add({ type: 'm.room.name', stateKey: '', content: { name: 'Renamed meanwhile' } });
    expect((await join(room)).status).toBe(200);
    expect(await nameOf(room)).toBe('Renamed meanwhile');
    const members = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${room.roomId}/members`);
    expect(members.chunk.find((event) => event.state_key === alice.userId)?.content['membership']).toBe('join');
    expect(room.state.get(stateKeyOf('m.room.member', alice.userId))?.content['membership']).toBe('join');
  });

  it('joins a restricted room only with the signature of the server that lets somebody in', async () => {
    const allow = [{ type: 'm.room_membership', room_id: '!club:far.test' }];
    const room = new ElsewhereRoom(far, '10', { join_rule: 'restricted', allow });
    const authorizer = (userId: string): Lie => {
      const content = { membership: 'join', join_authorised_via_users_server: userId };
      const draft = { type: 'm.room.member', stateKey: alice.userId, sender: alice.userId, content, unsigned: true };
      return (honest) => ({ ...honest, event: room.make(draft).pdu });
    };
    room.lies.set('make_join', authorizer(`@carol:other.test`));
    expect((await join(room)).status).toBe(502);
    room.lies.set('make_join', authorizer(room.creator));
    const own = (honest: JsonObject): JsonObject => honest['event'] as JsonObject;
    for (const lie of [
      (honest: JsonObject) => ({ ...honest, event: undefined }),
      (honest: JsonObject) => ({ ...honest, event: { ...own(honest), signatures: {} } }),
      (honest: JsonObject) => {
        const forged = signEvent(parsePdu({ ...own(honest), signatures: {} }, room.rules), far.name, forger);
        return { ...honest, event: forged.pdu };
      },
    ]) {
      room.lies.set('send_join', lie);
      expect((await join(room)).status).toBe(502);
    }
    room.lies.delete('send_join');
    expect((await join(room)).status).toBe(200);
    expect(await ok(alice, 'GET', `/rooms/${room.roomId}/state/m.room.member/${alice.userId}`)).toMatchObject({
      join_authorised_via_users_server: room.creator,
    });
  });

  it('knocks, sees what the room shows, and takes the knock back', async () => {
    const room = new ElsewhereRoom(far, '10', { join_rule: 'knock' });
    const knocked = await alice.request('POST', `/knock/${room.roomId}?via=${far.name}`, { reason: 'let me in' });
    expect(knocked.status).toBe(200);
    const member = () => room.state.get(stateKeyOf('m.room.member', alice.userId))?.content;
    expect(member()).toMatchObject({ membership: 'knock', reason: 'let me in' });
    const sync = await ok<{ rooms: { knock: Record<string, { knock_state: { events: WireEvent[] } }> } }>(
      alice,
      'GET',
      '/sync',
    );
    const shown = sync.rooms.knock[room.roomId]?.knock_state.events.map((event) => event.type) ?? [];
    expect(shown).toEqual(expect.arrayContaining(['m.room.create', 'm.room.name']));
    await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, {});
    expect(member()).toMatchObject({ membership: 'leave' });
  });

  it('is shown by a room that it knocks at what proves itself, where the room has an id that can', async () => {
    const room = new ElsewhereRoom(far, '12', { join_rule: 'knock' });
    const forged = { ...room.state.get(stateKeyOf('m.room.name', ''))?.pdu, content: { name: 'Forged' } };
    const stripped = { type: 'm.room.topic', state_key: '', sender: room.creator, content: { topic: 'Stripped' } };
    room.lies.set('send_knock', ({ knock_room_state: honest }) => ({
      knock_room_state: [...(honest as JsonObject[]).filter(({ type }) => type !== 'm.room.name'), forged, stripped],
    }));
    await ok(alice, 'POST', `/knock/${room.roomId}?via=${far.name}`, {});
    const sync = await ok<{ rooms: { knock: Record<string, { knock_state: { events: WireEvent[] } }> } }>(
      alice,
      'GET',
      '/sync',
    );
    const shown = sync.rooms.knock[room.roomId]?.knock_state.events ?? [];
    expect(shown.map((event) => event.type)).toContain('m.room.create');
    expect(JSON.stringify(shown)).not.toMatch(/Forged|Stripped/);
  });

  const invitesOf = async (user = alice): Promise<string[]> =>
    Object.keys((await ok<{ rooms?: { invite?: object } }>(user, 'GET', '/sync')).rooms?.invite ?? {});
  /** Invites somebody to a room elsewhere, of which its server says that it is of some version. */
  const inviteTo = async (room: ElsewhereRoom, version = room.version, user = alice): Promise<void> => {
    await show(room, room.add(inviteOf(user)), version);
    expect(await invitesOf(user)).toContain(room.roomId);
  };
  const inviteOf = (user: TestUser) => ({
    ...{ type: 'm.room.member', stateKey: user.userId, content: { membership: 'invite' } },
  });
  const show = async (room: ElsewhereRoom, event: RoomEvent, version = room.version): Promise<void> => {
    const [roomId, eventId] = [room.roomId, event.eventId].map(encodeURIComponent);
    const create = room.state.get(stateKeyOf('m.room.create', ''));
    const body = { room_version: version, event: event.pdu, invite_room_state: create ? [create.pdu] : [] };
    const answer = await far.request(home, 'PUT', `/_matrix/federation/v2/invite/${roomId}/${eventId}`, body);
    expect(answer.status).toBe(200);
  };

  it('joins by an invite, though that told a wrong version of the room', async () => {
    const room = new ElsewhereRoom(far, '10', { join_rule: 'invite' });
    await inviteTo(room, '9');
    expect((await join(room)).status).toBe(200);
    expect(await nameOf(room)).toBe('Elsewhere 10');
    expect(await ok(alice, 'GET', `/rooms/${room.roomId}/state/m.room.create`)).toMatchObject({ room_version: '10' });
    const summary = await ok(alice, 'GET', `/_matrix/client/v1/room_summary/${room.roomId}`);
    expect(summary['room_version']).toBe('10');
    await say(alice, room.roomId, 'hello');
  });

  it('rejects an invite where the room is, though one told a wrong version of it', async () => {
    const room = new ElsewhereRoom(far, '10', { join_rule: 'invite' });
    await inviteTo(room, '9');
    await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, { reason: 'busy' });
    const member = room.state.get(stateKeyOf('m.room.member', alice.userId));
    expect(member?.content).toMatchObject({ membership: 'leave', reason: 'busy' });
    expect(await invitesOf()).not.toContain(room.roomId);
  });

  it('believes no invite about the version of a room that it was in', async () => {
    const room = new ElsewhereRoom(far, '10');
    expect((await join(room)).status).toBe(200);
    await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, {});
    const event = room.make({ type: 'm.room.member', stateKey: alice.userId, content: { membership: 'invite' } });
    const [roomId, eventId] = [room.roomId, event.eventId].map(encodeURIComponent);
    const invite = (version: string) =>
      far.request(home, 'PUT', `/_matrix/federation/v2/invite/${roomId}/${eventId}`, {
        ...{ room_version: version, event: event.pdu, invite_room_state: [] },
      });
    expect(await invite('9')).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_PARAM' } });
    expect((await invite('10')).status).toBe(200);
    expect(await invitesOf()).toContain(room.roomId);
  });

  it('rejects an invite, also when no server will hear of it', async () => {
    const room = new ElsewhereRoom(far, '11', { join_rule: 'invite' });
    await inviteTo(room);
    await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, { reason: 'busy' });
    const member = room.state.get(stateKeyOf('m.room.member', alice.userId));
    expect(member?.content).toMatchObject({ membership: 'leave', reason: 'busy' });
    expect(await invitesOf()).not.toContain(room.roomId);
    for (const [kind, lie] of [
      ['make_leave', () => new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'Stay' })],
      ['make_leave', (honest: JsonObject) => change(honest, { content: { membership: 'join' } })],
      ['send_leave', () => new Refusal(400, { errcode: 'M_UNKNOWN', error: 'Ouch' })],
    ] as const) {
      const deaf = new ElsewhereRoom(far, '11', { join_rule: 'invite' });
      await inviteTo(deaf);
      deaf.lies.set(kind, lie);
      await ok(alice, 'POST', `/rooms/${deaf.roomId}/leave`, {});
      expect(await invitesOf()).not.toContain(deaf.roomId);
    }
  });

  it('rejects an invite of which the room has not heard, and needs none of it to let its user in', async () => {
    const [asked, bored] = [await home.registerUser('asked'), await home.registerUser('bored')];
    const lobby = await createRoom(alice, { preset: 'public_chat' });
    await ok(asked, 'POST', `/join/${lobby}`, {});
    const allow = [{ type: 'm.room_membership', room_id: lobby }];
    const room = new ElsewhereRoom(far, '11', { join_rule: 'restricted', allow });
    await inviteTo(room);
    for (const user of [asked, bored]) await show(room, room.make(inviteOf(user)));
    expect((await join(room)).status).toBe(200);
    expect(await invitesOf(bored)).toContain(room.roomId);
    const { next_batch: since } = await ok<{ next_batch: string }>(bored, 'GET', '/sync');
    await ok(bored, 'POST', `/rooms/${room.roomId}/leave`, { reason: 'busy' });
    expect(await invitesOf(bored)).not.toContain(room.roomId);
    const told = await ok<{ rooms: { leave: object } }>(bored, 'GET', `/sync?timeout=0&since=${since}`);
    expect(Object.keys(told.rooms.leave)).toEqual([room.roomId]);
    expect((await bored.request('POST', `/join/${room.roomId}`, {})).status).toBe(403);
    await ok(asked, 'POST', `/join/${room.roomId}`, {});
    expect(await ok(asked, 'GET', `/rooms/${room.roomId}/state/m.room.member/${asked.userId}`)).toMatchObject({
      ...{ membership: 'join', join_authorised_via_users_server: alice.userId },
    });
  });

  it('tells nobody again of an invite, or how it ended, because somebody else joins', async () => {
    const [open, rejected] = [await home.registerUser('open'), await home.registerUser('rejected')];
    const room = new ElsewhereRoom(far, '11');
    const sliding = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0';
    const lists = { all: { ranges: [[0, 9]], timeline_limit: 1, required_state: [] } };
    const slide = (user: TestUser, pos?: string) =>
      ok<{ pos: string; rooms?: object }>(user, 'POST', `${sliding}${pos === undefined ? '' : `&pos=${pos}`}`, {
        lists,
      });
    for (const user of [open, rejected]) await inviteTo(room, room.version, user);
    const { pos } = await slide(open);
    const { pos: before } = await slide(rejected);
    await ok(rejected, 'POST', `/rooms/${room.roomId}/leave`, {});
    const { pos: behind } = await slide(rejected, before);
    const since = new Map<TestUser, string>();
    for (const user of [open, rejected])
      since.set(user, (await ok<{ next_batch: string }>(user, 'GET', '/sync')).next_batch);
    expect((await join(room)).status).toBe(200);
    const told = async (user: TestUser): Promise<unknown> =>
      (await ok<{ rooms?: object }>(user, 'GET', `/sync?timeout=0&since=${since.get(user)}`)).rooms;
    for (const user of [open, rejected]) expect(await told(user)).toBeUndefined();
    expect((await slide(open, pos)).rooms ?? {}).toEqual({});
    expect((await slide(rejected, behind)).rooms ?? {}).toEqual({});
    expect(await invitesOf(open)).toContain(room.roomId);
    // What really changes is told.
    room.add({ type: 'm.room.member', stateKey: open.userId, content: { membership: 'leave' } });
    await far.request(home, 'PUT', '/_matrix/federation/v1/send/retracted', {
      ...{ origin: far.name, origin_server_ts: Date.now(), pdus: [room.head.pdu] },
    });
    await eventually(async () => JSON.stringify(await told(open))?.includes('"leave"'));
  });

  it('takes a rejection for an event that was sent, which may not be sent too often', async () => {
    const [bob, admin] = [await home.registerUser('bob'), await home.registerAdministrator('root')];
    const limit = { messages_per_second: 1, burst_count: 1 };
    await ok(admin, 'POST', `/_synapse/admin/v1/users/${bob.userId}/override_ratelimit`, limit);
    const rooms = Array.from({ length: 6 }, () => new ElsewhereRoom(far, '11', { join_rule: 'invite' }));
    for (const room of rooms) await inviteTo(room, room.version, bob);
    const reject = async ({ roomId }: ElsewhereRoom): Promise<string> => {
      const { status, body } = await bob.request<JsonObject>('POST', `/rooms/${roomId}/leave`, {});
      return `${status} ${String(body['errcode'])}`;
    };
    const answers = await Promise.all(rooms.map(reject));
    expect(new Set(answers)).toEqual(new Set(['200 undefined', '429 M_LIMIT_EXCEEDED']));
    const open = rooms.filter((_, index) => answers[index] !== '200 undefined').map(({ roomId }) => roomId);
    expect((await invitesOf(bob)).sort()).toEqual(open.sort());
  });

  it('resolves an alias of another server and joins by it', async () => {
    const room = new ElsewhereRoom(far, '12');
    const alias = encodeURIComponent(`#hall:${far.name}`);
    expect(await ok(alice, 'GET', `/directory/room/${alias}`)).toEqual({ room_id: room.roomId, servers: [far.name] });
    expect((await alice.request('POST', `/join/${alias}`, {})).status).toBe(200);
    room.lies.set('query', () => ({ room_id: 7, servers: 'many' }));
    expect((await alice.request('GET', `/directory/room/${alias}`)).status).toBe(502);
    const gone = encodeURIComponent('#hall:gone.test');
    expect((await alice.request('GET', `/directory/room/${gone}`)).status).toBe(502);
  });

  it('invites a user of another server only with its signature', async () => {
    const { room_id: roomId } = await ok<{ room_id: string }>(alice, 'POST', '/createRoom', { name: 'Come in' });
    const invite = (user: string) => alice.request<JsonObject>('POST', `/rooms/${roomId}/invite`, { user_id: user });
    const bodies: JsonObject[] = [];
    let back = (event: JsonObject): unknown => ({ event });
    const signedBy = (pdu: JsonObject, key = far.key): unknown => {
      const rules = roomVersionRules(String(bodies.at(-1)?.['room_version']));
      return rules && signEvent(parsePdu(pdu, rules), far.name, key).pdu;
    };
    far.answer = (asked, response) => {
      const body = JSON.parse(asked.body) as JsonObject;
      bodies.push(body);
      response.end(JSON.stringify(back(body['event'] as JsonObject)));
    };
    const dave = `@dave:${far.name}`;
    expect((await invite(dave)).status).toBe(502);
    back = (event) => ({ event: signedBy(event) });
    expect((await invite(dave)).status).toBe(200);
    const state = list(bodies.at(-1)?.['invite_room_state']);
    expect(state.map((pdu) => pdu['type'])).toEqual(expect.arrayContaining(['m.room.create', 'm.room.name']));
    expect(state.every((pdu) => pdu['signatures'] !== undefined)).toBe(true);
    back = (event) => ({ event: signedBy(event, stranger) });
    expect((await invite(`@eve:${far.name}`)).status).toBe(502);
    // In place of the inviter's signature comes as much else as an event can hold.
    back = (event) => ({
      event: signedBy({ ...event, signatures: { [far.name]: { 'ed25519:x': 'A'.repeat(64_000) } } }),
    });
    expect((await invite(`@grace:${far.name}`)).status).toBe(200);
    back = (event) => ({ event: signedBy(event) });
    back = (event) => ({ event: signedBy({ ...event, content: { membership: 'join' } }) });
    expect((await invite(`@eve:${far.name}`)).status).toBe(502);
    expect((await invite('@frank:gone.test')).status).toBe(502);
    await say(alice, roomId, 'still here');
    const visit = await Visit.join(far, home, roomId, dave);
    const kept = visit.state.get(stateKeyOf('m.room.member', `@grace:${far.name}`))?.pdu['signatures'] as JsonObject;
    expect(Object.keys(kept).sort()).toEqual([far.name, 'home.test']);
    expect(Object.keys(kept[far.name] as JsonObject)).toEqual([far.key.keyId]);
  });

  it('keeps out of rooms that are too large, before the join or after it', async () => {
    const settings = { limit_remote_rooms: { enabled: true, complexity: 0.005, complexity_error: 'Too large' } };
    const small = await world.homeserver('small.test', { database, settings });
    const carl = await small.registerUser('carl');
    const room = new ElsewhereRoom(far, '10');
    const enter = () => carl.request<JsonObject>('POST', `/join/${room.roomId}?via=${far.name}`, {});
    const refusal = { status: 400, body: { errcode: 'M_RESOURCE_LIMIT_EXCEEDED', error: 'Too large' } };
    room.lies.set('rooms', () => ({ v1: 7.5 }));
    expect(await enter()).toMatchObject(refusal);
    expect(room.requests).toEqual(['rooms']);
    room.lies.set('rooms', () => ({ v1: 0.001 }));
    expect(await enter()).toMatchObject(refusal);
    expect(room.requests).toContain('send_join');
    expect((await ok(carl, 'GET', '/joined_rooms'))['joined_rooms']).toEqual([]);
  });

  it('joins rooms of as many state events as the settings allow', async () => {
    const settings = { federation: { ...(world.settings['federation'] as object), max_state_events: 100 } };
    const small = await world.homeserver('sparing.test', { database, settings });
    const carl = await small.registerUser('carl');
    const room = new ElsewhereRoom(far, '10');
    for (let n = 0; n < 100; n++) room.add({ type: 'org.example.thing', stateKey: `${n}`, content: { n } });
    const refused = await carl.request('POST', `/join/${room.roomId}?via=${far.name}`, {});
    expect(outcome(refused)).toBe('502 M_UNKNOWN');
    expect((await join(room)).status).toBe(200);
  });

  it('leaves a room that was blocked while another server let somebody in, or heard a knock', async () => {
    const root = await home.registerAdministrator('blocker');
    const blocking = (room: ElsewhereRoom, kind: string): void =>
      void room.lies.set(kind, async (honest) => {
        const blocked = await root.request('PUT', `/_synapse/admin/v1/rooms/${room.roomId}/block`, { block: true });
        expect(blocked.status).toBe(200);
        return honest;
      });
    const membershipIn = (room: ElsewhereRoom): unknown =>
      room.state.get(stateKeyOf('m.room.member', alice.userId))?.content['membership'];
    const blocked = {
      status: 403,
      body: { errcode: 'M_FORBIDDEN', error: 'This room has been blocked on this server' },
    };
    const joinedRooms = async (): Promise<unknown> => (await ok(alice, 'GET', '/joined_rooms'))['joined_rooms'];

    const open = new ElsewhereRoom(far, '10');
    blocking(open, 'send_join');
    expect(await join(open)).toMatchObject(blocked);
    expect(open.requests).toContain('send_join');
    expect(await joinedRooms()).not.toContain(open.roomId);

    const closed = new ElsewhereRoom(far, '10', { join_rule: 'knock' });
    blocking(closed, 'send_knock');
    expect(await alice.request('POST', `/knock/${closed.roomId}?via=${far.name}`, {})).toMatchObject(blocked);
    expect(membershipIn(closed)).toBe('leave');
    const sync = await ok<{ rooms?: { knock?: object } }>(alice, 'GET', '/sync');
    expect(Object.keys(sync.rooms?.knock ?? {})).not.toContain(closed.roomId);
  });

  it('leaves a room whose server let somebody in, or heard a knock, while the account was closed', async () => {
    for (const [kind, rule] of [
      ['send_join', 'public'],
      ['send_knock', 'knock'],
    ] as const) {
      const user = await home.registerUser(`closing-${rule}`, 'password');
      const room = new ElsewhereRoom(far, '10', { join_rule: rule });
      room.lies.set(kind, async (honest) => {
        const password = { type: 'm.login.password', identifier: { type: 'm.id.user', user: user.userId } };
        await ok(user, 'POST', '/account/deactivate', { auth: { ...password, password: 'password' } });
        return honest;
      });
      const way = rule === 'public' ? 'join' : 'knock';
      const late = await user.request('POST', `/${way}/${room.roomId}?via=${far.name}`, {});
      expect(late).toMatchObject({ status: 403, body: { errcode: 'M_USER_DEACTIVATED' } });
      const database = home.server.service(Database);
      const sql = 'SELECT membership FROM local_current_membership WHERE user_id = ?';
      expect(await database.query(sql, [user.userId])).toEqual([{ membership: 'leave' }]);
      // The other one hears of it by a transaction.
      if (rule === 'knock')
        expect(room.state.get(stateKeyOf('m.room.member', user.userId))?.content['membership']).toBe('leave');
    }
  });

  it('asks no server that the settings do not allow', async () => {
    const settings = { federation_domain_whitelist: ['friend.test'] };
    const walled = await world.homeserver('walled.test', { database, settings });
    const carl = await walled.registerUser('carl');
    const room = new ElsewhereRoom(far, '10');
    const { room_id: own } = await ok<{ room_id: string }>(carl, 'POST', '/createRoom', {});
    const alias = encodeURIComponent(`#hall:${far.name}`);
    for (const [method, path, body, expected] of [
      ['POST', `/join/${room.roomId}?via=${far.name}`, {}, [404, 'M_NOT_FOUND']],
      ['POST', `/knock/${room.roomId}?via=${far.name}`, {}, [404, 'M_NOT_FOUND']],
      ['GET', `/directory/room/${alias}`, undefined, [404, 'M_NOT_FOUND']],
      ['GET', `/publicRooms?server=${far.name}`, undefined, [404, 'M_NOT_FOUND']],
      ['POST', `/rooms/${own}/invite`, { user_id: `@dave:${far.name}` }, [403, 'M_FORBIDDEN']],
    ] as const) {
      const answer = await carl.request<JsonObject>(method, path, body);
      expect([path, answer.status, answer.body['errcode']]).toEqual([path, ...expected]);
    }
    expect(room.requests).toEqual([]);
  });

  function change(honest: JsonObject, changes: JsonObject): JsonObject {
    return { ...honest, event: { ...(honest['event'] as JsonObject), ...changes } };
  }
});

/** Deeply nested rubbish. */
function nested(depth: number): JsonObject {
  let value: JsonObject = {};
  for (let i = 0; i < depth; i++) value = { a: value };
  return value;
}
