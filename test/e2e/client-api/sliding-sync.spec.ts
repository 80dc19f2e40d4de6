import { ProfilePropagation } from '@rookery/rooms';
import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly room_id?: string;
  readonly content: Record<string, unknown>;
}

interface Room {
  readonly initial?: boolean;
  readonly unstable_expanded_timeline?: boolean;
  readonly name?: string;
  readonly avatar?: string | null;
  readonly heroes?: { user_id: string; displayname?: string }[];
  readonly joined_count?: number;
  readonly invited_count?: number;
  readonly notification_count: number;
  readonly highlight_count: number;
  readonly bump_stamp?: number;
  readonly is_dm?: boolean;
  readonly required_state?: WireEvent[];
  readonly timeline?: WireEvent[];
  readonly limited?: boolean;
  readonly prev_batch?: string;
  readonly num_live?: number;
  readonly invite_state?: WireEvent[];
}

interface Answer {
  readonly pos: string;
  readonly lists: Record<string, { count: number; ops: { op: string; range: [number, number]; room_ids: string[] }[] }>;
  readonly rooms: Record<string, Room>;
  readonly extensions: {
    to_device?: { next_batch: string; events: WireEvent[] };
    e2ee?: {
      device_one_time_keys_count?: Record<string, number>;
      device_unused_fallback_key_types?: string[];
      device_lists?: { changed: string[]; left: string[] };
    };
    account_data?: { global: { type: string }[]; rooms: Record<string, { type: string; content: unknown }[]> };
    receipts?: { rooms: Record<string, { content: Record<string, unknown> }> };
    typing?: { rooms: Record<string, { content: { user_ids: string[] } }> };
  };
}

interface Options {
  readonly pos?: string | undefined;
  readonly timeout?: number;
}

const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';

let transaction = 0;

const send = async (user: TestUser, roomId: string, body: string): Promise<string> => {
  transaction += 1;
  const answer = await user.request('PUT', `/rooms/${roomId}/send/m.room.message/${transaction}`, {
    msgtype: 'm.text',
    body,
  });
  expect(answer.status).toBe(200);
  return String(answer.body['event_id']);
};

const raw = (user: TestUser, body: object, { pos, timeout = 0 }: Options = {}) => {
  const query = new URLSearchParams({ timeout: String(timeout), ...(pos === undefined ? {} : { pos }) });
  return user.request<Answer & { errcode?: string }>('POST', `${path}?${query.toString()}`, body);
};

const sliding = async (user: TestUser, body: object, options: Options = {}): Promise<Answer> => {
  const { status, body: answer } = await raw(user, body, options);
  expect({ status, answer }).toMatchObject({ status: 200 });
  return answer;
};

const createRoom = async (user: TestUser, options: object = {}): Promise<string> => {
  const { status, body } = await user.request('POST', '/createRoom', { preset: 'private_chat', ...options });
  expect(status).toBe(200);
  return String(body['room_id']);
};

const join = async (user: TestUser, roomId: string): Promise<void> => {
  expect((await user.request('POST', `/rooms/${roomId}/join`, {})).status).toBe(200);
};

const bodies = (room: Room | undefined): unknown[] =>
  (room?.timeline ?? []).filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);
const keys = (events: readonly WireEvent[] | undefined): string[] =>
  (events ?? []).map((event) => `${event.type}|${event.state_key}`).sort();
const idsOf = (answer: Answer, list = 'all'): string[] => answer.lists[list]?.ops.flatMap((op) => op.room_ids) ?? [];

const all = (list: object = {}): object => ({
  lists: { all: { ranges: [[0, 99]], required_state: [], timeline_limit: 10, ...list } },
});

describe.each(['sqlite', 'postgres'] as const)('simplified sliding sync (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let count = 0;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
  });
  afterAll(() => homeserver?.stop());

  // A user of its own for each test: lists are about everything that somebody has.
  const newUser = (): Promise<TestUser> => homeserver.registerUser(`user${(count += 1)}`);
  const shared = async (bob: TestUser, options: object = {}): Promise<string> => {
    const roomId = await createRoom(alice, { invite: [bob.userId], ...options });
    await join(bob, roomId);
    return roomId;
  };

  it('first tells everything of a room, then what is new, then nothing', async () => {
    const bob = await newUser();
    const roomId = await shared(bob, { name: 'First' });
    await send(alice, roomId, 'hello');
    const request = all({
      required_state: [
        ['m.room.create', ''],
        ['m.room.member', '$ME'],
      ],
    });
    const first = await sliding(bob, request);
    expect(first.lists['all']).toEqual({ count: 1, ops: [{ op: 'SYNC', range: [0, 99], room_ids: [roomId] }] });
    const room = first.rooms[roomId];
    expect(room).toMatchObject({ initial: true, name: 'First', joined_count: 2, invited_count: 0, num_live: 0 });
    expect(bodies(room)).toEqual(['hello']);
    expect(room?.timeline?.every((event) => event.room_id === undefined)).toBe(true);
    expect(keys(room?.required_state)).toEqual(['m.room.create|', `m.room.member|${bob.userId}`]);
    expect(room?.bump_stamp).toEqual(expect.any(Number));
    expect(room?.heroes).toBeUndefined();

    const quiet = await sliding(bob, request, { pos: first.pos });
    expect(quiet.rooms).toEqual({});
    expect(idsOf(quiet)).toEqual([roomId]);

    await send(alice, roomId, 'again');
    const news = await sliding(bob, request, { pos: quiet.pos });
    expect(bodies(news.rooms[roomId])).toEqual(['again']);
    expect(news.rooms[roomId]).toMatchObject({ limited: false, num_live: 1, required_state: [] });
    expect(news.rooms[roomId]).not.toHaveProperty('initial');
    expect(news.rooms[roomId]).not.toHaveProperty('name');
    expect(news.rooms[roomId]!.bump_stamp).toBeGreaterThan(room!.bump_stamp!);
    expect((await sliding(bob, request, { pos: news.pos })).rooms).toEqual({});
  });

  it('waits for news and comes at once when there are some', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const { pos } = await sliding(bob, all());
    const startedAt = performance.now();
    const waiting = sliding(bob, all(), { pos, timeout: 20_000 });
    await new Promise((resolve) => setTimeout(resolve, 150));
    await send(alice, roomId, 'wake up');
    const answer = await waiting;
    expect(bodies(answer.rooms[roomId])).toEqual(['wake up']);
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    // A client that changes its lists is answered at once, though nothing happened.
    const changedAt = performance.now();
    const changed = await sliding(bob, all({ ranges: [[0, 4]] }), { pos: answer.pos, timeout: 25_000 });
    expect(changed.lists['all']?.ops[0]?.range).toEqual([0, 4]);
    expect(performance.now() - changedAt).toBeLessThan(10_000);
    const idleAt = performance.now();
    expect((await sliding(bob, all({ ranges: [[0, 4]] }), { pos: changed.pos, timeout: 300 })).rooms).toEqual({});
    expect(performance.now() - idleAt).toBeGreaterThan(250);
  });

  it('answers a repeated position again, and refuses one that it does not know', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const first = await sliding(bob, all());
    const other = await shared(bob);
    await send(alice, roomId, 'lost');
    const lost = await sliding(bob, all(), { pos: first.pos });
    expect(bodies(lost.rooms[roomId])).toEqual(['lost']);
    expect(lost.rooms[other]?.initial).toBe(true);
    const again = await sliding(bob, all(), { pos: first.pos });
    expect(bodies(again.rooms[roomId])).toEqual(['lost']);
    expect(again.rooms[other]?.initial).toBe(true);
    // The answer that was lost leads nowhere any more.
    for (const pos of [lost.pos, '999999999/s1_1', 'nonsense', '1/s', `${'9'.repeat(300)}/s1`]) {
      expect(await raw(bob, all(), { pos })).toMatchObject({ status: 400, body: { errcode: 'M_UNKNOWN_POS' } });
    }
    const next = await sliding(bob, all(), { pos: again.pos });
    expect(next.rooms).toEqual({});
    // Nor does a position of somebody else, or of another connection.
    expect(await raw(alice, all(), { pos: again.pos })).toMatchObject({ body: { errcode: 'M_UNKNOWN_POS' } });
    expect(await raw(bob, { conn_id: 'two', ...all() }, { pos: again.pos })).toMatchObject({
      body: { errcode: 'M_UNKNOWN_POS' },
    });
    const two = await sliding(bob, { conn_id: 'two', ...all() });
    expect(Object.keys(two.rooms).sort()).toEqual([roomId, other].sort());
    // A new connection of the same name takes the place of the old one.
    await sliding(bob, all());
    expect(await raw(bob, all(), { pos: next.pos })).toMatchObject({ body: { errcode: 'M_UNKNOWN_POS' } });
  });

  it('shows a window of a list in the order of activity, and what was missed when the window comes back', async () => {
    const bob = await newUser();
    const rooms: string[] = [];
    for (const name of ['one', 'two', 'three']) rooms.push(await shared(bob, { name }));
    const [one = '', two = '', three = ''] = rooms;
    await send(alice, one, 'up');
    const top = all({ ranges: [[0, 0]] });
    const first = await sliding(bob, top);
    expect(first.lists['all']?.count).toBe(3);
    expect(idsOf(first)).toEqual([one]);
    expect(Object.keys(first.rooms)).toEqual([one]);
    // What is no message does not move a room up.
    await alice.request('PUT', `/rooms/${two}/state/m.room.topic/`, { topic: 'quiet' });
    const still = await sliding(bob, top, { pos: first.pos });
    expect([idsOf(still), Object.keys(still.rooms)]).toEqual([[one], []]);
    await send(alice, three, 'first');
    const moved = await sliding(bob, top, { pos: still.pos });
    expect(idsOf(moved)).toEqual([three]);
    expect(moved.rooms[three]?.initial).toBe(true);
    await send(alice, one, 'missed');
    await send(alice, three, 'second');
    const hidden = await sliding(bob, top, { pos: moved.pos });
    expect(Object.keys(hidden.rooms)).toEqual([three]);
    await send(alice, three, 'third');
    const wide = await sliding(bob, all(), { pos: hidden.pos });
    expect(idsOf(wide)).toEqual([three, one, two]);
    expect(bodies(wide.rooms[one])).toEqual(['missed']);
    expect(wide.rooms[one]).not.toHaveProperty('initial');
    expect(wide.rooms[one]?.num_live).toBe(0);
    expect(wide.rooms[two]?.initial).toBe(true);
    expect(bodies(wide.rooms[three])).toEqual(['third']);
    expect(await sliding(bob, all({ ranges: undefined }), { pos: wide.pos })).toMatchObject({
      lists: { all: { count: 3, ops: [{ range: [0, 2] }] } },
      rooms: {},
    });
  });

  it('says where a gap is, and pagination fills it', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const request = all({ timeline_limit: 3, required_state: [['m.room.topic', '']] });
    const first = await sliding(bob, request);
    const sent: string[] = [];
    for (let n = 0; n < 6; n++) sent.push(await send(alice, roomId, `line ${n}`));
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.topic/`, { topic: 'the gap' });
    for (let n = 6; n < 9; n++) sent.push(await send(alice, roomId, `line ${n}`));
    const room = (await sliding(bob, request, { pos: first.pos })).rooms[roomId];
    expect(bodies(room)).toEqual(['line 6', 'line 7', 'line 8']);
    expect(room).toMatchObject({ limited: true, num_live: 3 });
    expect(keys(room?.required_state)).toEqual(['m.room.topic|']);
    const before = await bob.request<{ chunk: WireEvent[] }>(
      'GET',
      `/rooms/${roomId}/messages?dir=b&limit=7&from=${room?.prev_batch}`,
    );
    const seen = [...before.body.chunk.toReversed(), ...(room?.timeline ?? [])].map((event) => event.event_id);
    expect(seen.filter((id) => sent.includes(id))).toEqual(sent);
  });

  it('sends a longer timeline and further state when a client asks for them', async () => {
    const bob = await newUser();
    const roomId = await shared(bob, { name: 'Wide', topic: 'deep' });
    for (let n = 0; n < 5; n++) await send(alice, roomId, `line ${n}`);
    const small = all({ timeline_limit: 1, required_state: [['m.room.topic', '']] });
    const first = await sliding(bob, small);
    expect(bodies(first.rooms[roomId])).toEqual(['line 4']);
    expect(first.rooms[roomId]?.limited).toBe(true);
    const subscribed = {
      ...small,
      room_subscriptions: { [roomId]: { timeline_limit: 4, required_state: [['m.room.name', '']] } },
    };
    const wide = await sliding(bob, subscribed, { pos: first.pos });
    expect(bodies(wide.rooms[roomId])).toEqual(['line 1', 'line 2', 'line 3', 'line 4']);
    expect(wide.rooms[roomId]?.unstable_expanded_timeline).toBe(true);
    // The topic is there already.
    expect(keys(wide.rooms[roomId]?.required_state)).toEqual(['m.room.name|']);
    expect((await sliding(bob, subscribed, { pos: wide.pos })).rooms).toEqual({});
    const back = await sliding(bob, small, { pos: wide.pos });
    expect(back.rooms[roomId]?.timeline ?? []).toEqual([]);
    const wideAgain = await sliding(bob, subscribed, { pos: back.pos });
    expect(bodies(wideAgain.rooms[roomId])).toEqual(['line 1', 'line 2', 'line 3', 'line 4']);
  });

  it('sends the state of however many types the lists of a room ask for together', async () => {
    const bob = await newUser();
    const roomId = await shared(bob, { topic: 'deep' });
    const list = (name: string): object => {
      const others = Array.from({ length: 400 }, (_, n) => [`org.example.${name}${n}`, '']);
      return { ranges: [[0, 9]], timeline_limit: 1, required_state: [['m.room.topic', ''], ...others] };
    };
    const answer = await sliding(bob, { lists: { a: list('a'), b: list('b'), c: list('c') } });
    expect(keys(answer.rooms[roomId]?.required_state)).toEqual(['m.room.topic|']);
  });

  it('understands wildcards, $ME and $LAZY in required_state', async () => {
    const bob = await newUser();
    const carol = await newUser();
    const dave = await newUser();
    const roomId = await shared(bob, {
      name: 'State',
      topic: 'all of it',
      invite: [bob.userId, carol.userId, dave.userId],
    });
    await join(carol, roomId);
    await join(dave, roomId);
    for (let n = 0; n < 3; n++) await send(alice, roomId, `line ${n}`);
    const stateOf = async (pairs: string[][]): Promise<string[]> =>
      keys((await sliding(bob, all({ timeline_limit: 2, required_state: pairs }))).rooms[roomId]?.required_state);
    const members = [alice, bob, carol, dave].map((user) => `m.room.member|${user.userId}`).sort();
    const everything = await stateOf([['*', '*']]);
    expect(everything).toEqual(expect.arrayContaining([...members, 'm.room.topic|', 'm.room.power_levels|']));
    expect(await stateOf([['m.room.member', '*']])).toEqual(members);
    expect(await stateOf([['m.room.member', '$ME']])).toEqual([`m.room.member|${bob.userId}`]);
    expect(await stateOf([['m.room.member', carol.userId]])).toEqual([`m.room.member|${carol.userId}`]);
    expect(await stateOf([['*', '']])).toEqual(everything.filter((key) => !members.includes(key)));
    // Only Alice speaks in the timeline.
    expect(await stateOf([['m.room.member', '$LAZY']])).toEqual([`m.room.member|${alice.userId}`]);
    const others = everything.filter((key) => !members.includes(key));
    expect(
      await stateOf([
        ['*', '*'],
        ['m.room.member', '$LAZY'],
      ]),
    ).toEqual([...others, `m.room.member|${alice.userId}`].sort());
    // Lazily loaded members come with what they say, once; and again when the answer was lost.
    const lazy = all({ timeline_limit: 2, required_state: [['m.room.member', '$LAZY']] });
    const first = await sliding(bob, lazy);
    await send(carol, roomId, 'hi');
    const lost = await sliding(bob, lazy, { pos: first.pos });
    expect(keys(lost.rooms[roomId]?.required_state)).toEqual([`m.room.member|${carol.userId}`]);
    const again = await sliding(bob, lazy, { pos: first.pos });
    expect(keys(again.rooms[roomId]?.required_state)).toEqual([`m.room.member|${carol.userId}`]);
    await send(carol, roomId, 'hi again');
    await send(alice, roomId, 'hi all');
    const known = await sliding(bob, lazy, { pos: again.pos });
    expect(keys(known.rooms[roomId]?.required_state)).toEqual([]);
  });

  it('a list holds the rooms that its filters let pass', async () => {
    const bob = await newUser();
    const space = await createRoom(bob, { name: 'Space', creation_content: { type: 'm.space' } });
    const plain = await createRoom(bob, { name: 'Plain HALL' });
    const secret = await createRoom(bob, {
      name: 'Secret',
      initial_state: [{ type: 'm.room.encryption', state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } }],
    });
    const direct = await createRoom(bob, { is_direct: true });
    const invited = await createRoom(alice, { name: 'Come', invite: [bob.userId] });
    await bob.request('PUT', `/rooms/${space}/state/m.space.child/${plain}`, { via: ['here'] });
    await bob.request('PUT', `/user/${bob.userId}/account_data/m.direct`, { [alice.userId]: [direct] });
    await bob.request('PUT', `/user/${bob.userId}/rooms/${secret}/tags/m.favourite`, {});
    const filtered = async (filters: object): Promise<string[]> =>
      idsOf(await sliding(bob, all({ filters, timeline_limit: 0 }))).sort();
    expect(await filtered({})).toEqual([space, plain, secret, direct, invited].sort());
    expect(await filtered({ is_dm: true })).toEqual([direct]);
    expect(await filtered({ is_dm: false })).toEqual([space, plain, secret, invited].sort());
    expect(await filtered({ is_encrypted: true })).toEqual([secret]);
    expect(await filtered({ is_encrypted: false })).toEqual([space, plain, direct, invited].sort());
    expect(await filtered({ is_invite: true })).toEqual([invited]);
    expect(await filtered({ is_invite: false, room_types: [null] })).toEqual([plain, secret, direct].sort());
    expect(await filtered({ room_types: ['m.space'] })).toEqual([space]);
    expect(await filtered({ not_room_types: ['m.space'], room_types: ['m.space', null], is_invite: false })).toEqual(
      [plain, secret, direct].sort(),
    );
    expect(await filtered({ spaces: [space] })).toEqual([plain]);
    expect(await filtered({ room_name_like: 'hall' })).toEqual([plain]);
    expect(await filtered({ tags: ['m.favourite'] })).toEqual([secret]);
    expect(await filtered({ not_tags: ['m.favourite'], is_invite: false })).toEqual([space, plain, direct].sort());
    // Filters follow what happens.
    await bob.request('PUT', `/rooms/${plain}/state/m.room.encryption/`, { algorithm: 'm.megolm.v1.aes-sha2' });
    await bob.request('PUT', `/rooms/${plain}/state/m.room.name/`, { name: 'Renamed' });
    await bob.request('PUT', `/rooms/${space}/state/m.space.child/${plain}`, {});
    await bob.request('DELETE', `/user/${bob.userId}/rooms/${secret}/tags/m.favourite`);
    expect(await filtered({ is_encrypted: true })).toEqual([plain, secret].sort());
    expect(await filtered({ room_name_like: 'hall' })).toEqual([]);
    expect(await filtered({ spaces: [space] })).toEqual([]);
    expect(await filtered({ tags: ['m.favourite'] })).toEqual([]);
    const set = async (roomId: string, what: string, content: object): Promise<string> => {
      const { body } = await bob.request<{ event_id: string }>('PUT', `/rooms/${roomId}/state/${what}`, content);
      return body.event_id;
    };
    const shown = [
      [plain, await set(plain, 'm.room.name/', { name: 'Rude' })],
      [space, await set(space, `m.space.child/${plain}`, { via: ['here'] })],
    ] as const;
    expect([await filtered({ room_name_like: 'rude' }), await filtered({ spaces: [space] })]).toEqual([
      [plain],
      [plain],
    ]);
    for (const [roomId, eventId] of shown)
      await bob.request('PUT', `/rooms/${roomId}/redact/${eventId}/${eventId}`, {});
    expect([await filtered({ room_name_like: 'rude' }), await filtered({ spaces: [space] })]).toEqual([[], []]);
    const rooms = (await sliding(bob, all())).rooms;
    expect(rooms[direct]?.is_dm).toBe(true);
    expect(rooms[invited]).toMatchObject({ initial: true });
    expect(rooms[invited]).not.toHaveProperty('timeline');
    expect(rooms[invited]?.invite_state?.map((event) => event.type)).toEqual(
      expect.arrayContaining(['m.room.name', 'm.room.create', 'm.room.member']),
    );
  });

  it('follows invites, joins, leaving and being sent away', async () => {
    const bob = await newUser();
    const request = all({ required_state: [['m.room.member', '$ME']] });
    const start = await sliding(bob, request);
    expect(start).toMatchObject({ lists: { all: { count: 0, ops: [{ room_ids: [] }] } }, rooms: {} });
    const roomId = await createRoom(alice, { name: 'Visit', invite: [bob.userId] });
    const invited = await sliding(bob, request, { pos: start.pos });
    expect(invited.rooms[roomId]).toMatchObject({ initial: true, invite_state: expect.any(Array) });
    expect((await sliding(bob, request, { pos: invited.pos })).rooms).toEqual({});
    await join(bob, roomId);
    const joined = await sliding(bob, request, { pos: invited.pos });
    expect(joined.rooms[roomId]).toMatchObject({ initial: true, name: 'Visit', joined_count: 2 });
    await alice.request('POST', `/rooms/${roomId}/kick`, { user_id: bob.userId, reason: 'out' });
    await send(alice, roomId, 'among ourselves');
    const kicked = await sliding(bob, request, { pos: joined.pos });
    const own = kicked.rooms[roomId]?.required_state?.find((event) => event.state_key === bob.userId);
    expect(own?.content).toMatchObject({ membership: 'leave', reason: 'out' });
    expect(bodies(kicked.rooms[roomId])).toEqual([]);
    expect(idsOf(kicked)).toEqual([roomId]);
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.name`, { name: 'Behind closed doors' });
    const named = (name: string): object => ({ conn_id: name, ...all({ filters: { room_name_like: name } }) });
    expect(idsOf(await sliding(bob, named('closed')))).toEqual([]);
    for (const lazily of [
      [['m.room.member', '$LAZY']],
      [
        ['*', ''],
        ['m.room.member', '$LAZY'],
      ],
    ]) {
      const anew = await sliding(bob, { conn_id: 'another', ...all({ required_state: lazily }) });
      const members = anew.rooms[roomId]?.required_state?.filter((event) => event.type === 'm.room.member');
      expect(keys(members)).toEqual([`m.room.member|${alice.userId}`, `m.room.member|${bob.userId}`].sort());
    }
    expect((await sliding(bob, request, { pos: kicked.pos })).rooms).toEqual({});
    await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: bob.userId });
    await join(bob, roomId);
    const back = await sliding(bob, request, { pos: kicked.pos });
    expect(back.rooms[roomId]?.initial).toBe(true);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    const left = await sliding(bob, request, { pos: back.pos });
    expect(left.lists['all']?.count).toBe(0);
    expect(left.rooms[roomId]?.required_state?.[0]?.content).toMatchObject({ membership: 'leave' });
    await send(alice, roomId, 'gone');
    expect((await sliding(bob, request, { pos: left.pos })).rooms).toEqual({});
    expect((await sliding(bob, request)).rooms).toEqual({});
    // An invite that is refused.
    const fresh = await sliding(bob, request);
    const other = await createRoom(alice, { invite: [bob.userId] });
    const asked = await sliding(bob, request, { pos: fresh.pos });
    expect(asked.rooms[other]?.invite_state).toBeDefined();
    await bob.request('POST', `/rooms/${other}/leave`, {});
    const refused = await sliding(bob, request, { pos: asked.pos });
    expect(refused.lists['all']?.count).toBe(0);
    expect(refused.rooms[other]?.required_state?.[0]?.content).toMatchObject({ membership: 'leave' });
    expect((await sliding(bob, request)).rooms).toEqual({});
  });

  it('tells of bans and their ends, in the window of a list or not', async () => {
    const bob = await newUser();
    const act = async (verb: string, roomId: string): Promise<void> => {
      const { status } = await alice.request('POST', `/rooms/${roomId}/${verb}`, { user_id: bob.userId });
      expect(status).toBe(200);
    };
    const request = all({ required_state: [['m.room.member', '$ME']] });
    for (const gone of ['kicked', 'left']) {
      const roomId = await shared(bob);
      let { pos } = await sliding(bob, request);
      const own = async (asked: object = request): Promise<unknown> => {
        const answer = await sliding(bob, asked, { pos });
        ({ pos } = answer);
        const room = answer.rooms[roomId];
        return room?.required_state?.find((event) => event.state_key === bob.userId)?.content['membership'];
      };
      if (gone === 'kicked') await act('kick', roomId);
      else await bob.request('POST', `/rooms/${roomId}/leave`, {});
      expect(await own()).toBe('leave');
      await act('ban', roomId);
      expect(await own()).toBe('ban');
      expect(await own()).toBeUndefined();
      await act('unban', roomId);
      expect(await own({ lists: {} })).toBe('leave');
      expect(await own()).toBeUndefined();
    }
  });

  it('tells of an invite that was made anew while the room was out of sight', async () => {
    const bob = await newUser();
    const roomId = await createRoom(alice, { invite: [bob.userId] });
    const first = await sliding(bob, all());
    expect(first.rooms[roomId]?.invite_state).toBeDefined();
    const { status } = await alice.request('PUT', `/rooms/${roomId}/state/m.room.member/${bob.userId}`, {
      membership: 'invite',
      reason: 'anew',
    });
    expect(status).toBe(200);
    const away = await sliding(bob, { lists: {} }, { pos: first.pos });
    expect(away.rooms).toEqual({});
    const back = await sliding(bob, all(), { pos: away.pos });
    expect(back.rooms[roomId]?.invite_state?.at(-1)?.content).toMatchObject({ reason: 'anew' });
    expect((await sliding(bob, all(), { pos: back.pos })).rooms).toEqual({});
  });

  it('names heroes where there is no name, and tells when names and avatars change', async () => {
    const bob = await newUser();
    await alice.request('PUT', `/profile/${alice.userId}/displayname`, { displayname: 'Alice in Chains' });
    const roomId = await shared(bob);
    // Readers stop before the first event that is being stored, and the new name goes into all of alice's rooms.
    await homeserver.server.service(ProfilePropagation).settled(alice.userId);
    const first = await eventually(async () => {
      const answer = await sliding(bob, all());
      // Until bob's own join is among it, the room is an invite, which has no heroes.
      return answer.rooms[roomId]?.heroes === undefined ? undefined : answer;
    });
    expect(first.rooms[roomId]?.heroes).toEqual([{ user_id: alice.userId, displayname: 'Alice in Chains' }]);
    expect(first.rooms[roomId]).not.toHaveProperty('name');
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.name/`, { name: 'Named' });
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.avatar/`, { url: 'mxc://example.org/abc' });
    const named = await sliding(bob, all(), { pos: first.pos });
    expect(named.rooms[roomId]).toMatchObject({ name: 'Named', avatar: 'mxc://example.org/abc' });
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.avatar/`, {});
    expect((await sliding(bob, all(), { pos: named.pos })).rooms[roomId]?.avatar).toBeNull();
  });

  it('counts what is unread, and tells when it was read elsewhere', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const first = await sliding(bob, all());
    expect(first.rooms[roomId]).toMatchObject({ notification_count: 0, highlight_count: 0 });
    await send(alice, roomId, 'one');
    const last = await send(alice, roomId, `two for ${bob.userId}`);
    const unread = await sliding(bob, all(), { pos: first.pos });
    expect(unread.rooms[roomId]).toMatchObject({ notification_count: 2 });
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${last}`, {});
    const read = await sliding(bob, all(), { pos: unread.pos });
    expect(read.rooms[roomId]).toMatchObject({ notification_count: 0, highlight_count: 0 });
    expect((await sliding(bob, all(), { pos: read.pos })).rooms).toEqual({});
  });

  it('counts for those, too, who want no timeline', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const request = all({ timeline_limit: 0 });
    const first = await sliding(bob, request);
    await send(alice, roomId, 'one');
    const unread = await sliding(bob, request, { pos: first.pos });
    expect(unread.rooms[roomId]).toMatchObject({ notification_count: 1, timeline: [], limited: true });
    expect((await sliding(bob, request, { pos: unread.pos })).rooms).toEqual({});
  });

  it('tells of account data that was emptied while the extension was off, or for other rooms', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const put = async (where: string, content: object): Promise<void> => {
      const answer = await bob.request('PUT', `/user/${bob.userId}${where}/account_data/org.example`, content);
      expect(answer.status).toBe(200);
    };
    const room = `/rooms/${roomId}`;
    const request = (extension: object): object => ({ ...all(), extensions: { account_data: extension } });
    const on = request({ enabled: true });
    const found = (answer: Answer): object => {
      const { global = [], rooms = {} } = answer.extensions.account_data ?? {};
      const own = global.filter(({ type }) => type === 'org.example');
      return { own: own.map((event) => (event as { content?: unknown }).content), room: rooms[roomId]?.[0]?.content };
    };
    for (const off of [request({ enabled: false }), request({ enabled: true, lists: [], rooms: [] })]) {
      await put('', { a: 1 });
      await put(room, { a: 1 });
      const first = await sliding(bob, on);
      expect(found(first)).toEqual({ own: [{ a: 1 }], room: { a: 1 } });
      await put('', {});
      await put(room, {});
      const away = await sliding(bob, off, { pos: first.pos });
      const later = await sliding(bob, off, { pos: away.pos });
      const back = await sliding(bob, on, { pos: later.pos });
      const own = [away, back].flatMap((answer) => (found(answer) as { own: unknown[] }).own);
      expect({ ...found(back), own }).toEqual({ own: [{}], room: {} });
      // It is there, for whoever begins anew as well.
      expect(found(await sliding(bob, on))).toEqual({ own: [{}], room: {} });
    }
  });

  it('brings account data, receipts and typing, once', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const other = await shared(bob);
    const hello = await send(alice, roomId, 'hello');
    await alice.request('POST', `/rooms/${roomId}/receipt/m.read/${hello}`, {});
    await bob.request('PUT', `/user/${bob.userId}/rooms/${roomId}/tags/u.mine`, { order: 0.5 });
    await bob.request('PUT', `/user/${bob.userId}/account_data/org.example`, { a: 1 });
    const extensions = {
      account_data: { enabled: true },
      receipts: { enabled: true },
      typing: { enabled: true },
    };
    const top = { ...all({ ranges: [[0, 0]] }), extensions };
    const bare = await sliding(bob, all({ ranges: [[0, 0]] }));
    // Switched on later, extensions bring what was not sent before.
    const first = await sliding(bob, top, { pos: bare.pos });
    expect(first.extensions.account_data?.global.map((event) => event.type)).toEqual(
      expect.arrayContaining(['m.push_rules', 'org.example']),
    );
    expect(first.extensions.account_data?.rooms[roomId]?.map((event) => event.type)).toEqual(['m.tag']);
    expect(first.extensions.receipts?.rooms[roomId]?.content).toMatchObject({
      [hello]: { 'm.read': { [alice.userId]: {} } },
    });
    const quiet = await sliding(bob, top, { pos: first.pos });
    expect(quiet.extensions).toEqual({
      account_data: { global: [], rooms: {} },
      receipts: { rooms: {} },
      typing: { rooms: {} },
    });
    const waiting = sliding(bob, top, { pos: quiet.pos, timeout: 10_000 });
    await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 20_000 });
    const typing = await waiting;
    expect(typing.extensions.typing?.rooms).toEqual({
      [roomId]: { type: 'm.typing', content: { user_ids: [alice.userId] } },
    });
    const again = await send(alice, roomId, 'again');
    await alice.request('POST', `/rooms/${roomId}/receipt/m.read/${again}`, {});
    await bob.request('PUT', `/user/${bob.userId}/rooms/${other}/tags/u.other`, {});
    const news = await sliding(bob, top, { pos: typing.pos });
    expect(news.extensions.receipts?.rooms[roomId]?.content).toHaveProperty([again]);
    // The other room was never told of.
    expect(news.extensions.account_data?.rooms).toEqual({});
    await send(alice, other, 'now here');
    const shown = await sliding(bob, top, { pos: news.pos });
    expect(idsOf(shown)).toEqual([other]);
    expect(shown.extensions.account_data?.rooms[other]?.map((event) => event.type)).toEqual(['m.tag']);
    // Out of the window now, and kept up to date all the same.
    await bob.request('PUT', `/user/${bob.userId}/rooms/${roomId}/tags/u.more`, {});
    const hidden = await sliding(bob, top, { pos: shown.pos });
    expect(idsOf(hidden)).toEqual([other]);
    expect(hidden.extensions.account_data?.rooms[roomId]).toHaveLength(1);
  });

  it.each([{}, { lists: ['all'] }])('tells that typing ended out of sight, with %j', async (limits) => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const other = await shared(bob);
    await send(alice, roomId, 'up');
    const top = { ...all({ ranges: [[0, 0]] }), extensions: { typing: { enabled: true, ...limits } } };
    const types = async (typing: boolean): Promise<void> => {
      const body = { typing, timeout: 120_000 };
      expect((await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, body)).status).toBe(200);
    };
    const told = (answer: Answer): unknown => answer.extensions.typing?.rooms[roomId]?.content.user_ids;
    const first = await sliding(bob, top);
    await types(true);
    const began = await sliding(bob, top, { pos: first.pos });
    expect(told(began)).toEqual([alice.userId]);
    await send(alice, other, 'up');
    await types(false);
    const away = await sliding(bob, top, { pos: began.pos });
    expect(idsOf(away)).toEqual([other]);
    await send(alice, roomId, 'up');
    const back = await sliding(bob, top, { pos: away.pos });
    expect(idsOf(back)).toEqual([roomId]);
    // At once, or when the room is seen again where that is all that the client wants.
    const expected = 'lists' in limits ? [undefined, []] : [[], undefined];
    expect([away, back].map(told)).toEqual(expected);
    expect((await sliding(bob, top, { pos: back.pos })).extensions.typing?.rooms).toEqual({});
  });

  it('tells who types, or not any more, when that is switched on', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const request = (enabled: boolean): object => ({ ...all(), extensions: { typing: { enabled } } });
    const types = (typing: boolean) =>
      alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing, timeout: 120_000 });
    const told = (answer: Answer): unknown => answer.extensions.typing?.rooms[roomId]?.content.user_ids;
    const first = await sliding(bob, request(false));
    await types(true);
    const off = await sliding(bob, request(false), { pos: first.pos });
    const on = await sliding(bob, request(true), { pos: off.pos });
    expect([off, on].map(told)).toEqual([undefined, [alice.userId]]);
    await types(false);
    const away = await sliding(bob, request(false), { pos: on.pos });
    const back = await sliding(bob, request(true), { pos: away.pos });
    expect([away, back].map(told)).toEqual([undefined, []]);
  });

  it('brings the receipts of a longer timeline with it', async () => {
    const bob = await newUser();
    const roomId = await shared(bob);
    const read = await send(alice, roomId, 'read by Alice');
    await alice.request('POST', `/rooms/${roomId}/receipt/m.read/${read}`, {});
    const last = await send(bob, roomId, 'not read yet');
    const extensions = { receipts: { enabled: true } };
    const short = { ...all({ timeline_limit: 1 }), extensions };
    const first = await sliding(bob, short);
    expect(first.extensions.receipts?.rooms).toEqual({});
    const carol = await newUser();
    await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: carol.userId });
    await join(carol, roomId);
    await carol.request('POST', `/rooms/${roomId}/receipt/m.read/${last}`, {});
    const room_subscriptions = { [roomId]: { timeline_limit: 20, required_state: [] } };
    const opened = await sliding(bob, { ...short, room_subscriptions }, { pos: first.pos });
    expect(bodies(opened.rooms[roomId])).toEqual(['read by Alice', 'not read yet']);
    expect(opened.extensions.receipts?.rooms[roomId]?.content).toEqual({
      [read]: { 'm.read': { [alice.userId]: { ts: expect.any(Number) } } },
      [last]: { 'm.read': { [carol.userId]: { ts: expect.any(Number) } } },
    });
    const quiet = await sliding(bob, { ...short, room_subscriptions }, { pos: opened.pos });
    expect(quiet.extensions.receipts?.rooms).toEqual({});
  });

  it('delivers to-device messages once, in pages, and tells of device lists and keys', async () => {
    const bob = await newUser();
    await shared(bob);
    const device = bob.deviceId;
    const request = (since?: string): object => ({
      extensions: { to_device: { enabled: true, limit: 2, ...(since ? { since } : {}) }, e2ee: { enabled: true } },
    });
    const first = await sliding(bob, request());
    expect(first.extensions.to_device?.events).toEqual([]);
    expect(first.extensions.e2ee).toMatchObject({
      device_one_time_keys_count: {},
      device_unused_fallback_key_types: [],
    });
    for (let n = 0; n < 3; n++) {
      transaction += 1;
      await alice.request('PUT', `/sendToDevice/m.test/${transaction}`, {
        messages: { [bob.userId]: { [device]: { n } } },
      });
    }
    const page = await sliding(bob, request(first.extensions.to_device?.next_batch), { pos: first.pos });
    expect(page.extensions.to_device?.events.map((event) => event.content['n'])).toEqual([0, 1]);
    const repeated = await sliding(bob, request(first.extensions.to_device?.next_batch), { pos: first.pos });
    expect(repeated.extensions.to_device?.events.map((event) => event.content['n'])).toEqual([0, 1]);
    const rest = await sliding(bob, request(repeated.extensions.to_device?.next_batch), { pos: repeated.pos });
    expect(rest.extensions.to_device?.events.map((event) => event.content['n'])).toEqual([2]);
    const done = await sliding(bob, request(rest.extensions.to_device?.next_batch), { pos: rest.pos });
    expect(done.extensions.to_device?.events).toEqual([]);
    const carol = await newUser();
    await shared(carol);
    const room = await createRoom(bob, { invite: [carol.userId] });
    await join(carol, room);
    const lists = await sliding(bob, request(done.extensions.to_device?.next_batch), { pos: done.pos });
    expect(lists.extensions.e2ee?.device_lists?.changed).toContain(carol.userId);
  });

  it('tells every event once while many are speaking, though answers get lost', async () => {
    const bob = await newUser();
    const rooms = await Promise.all([1, 2, 3].map(() => shared(bob)));
    const sent = new Map<string, string[]>(rooms.map((roomId) => [roomId, []]));
    const heard = new Map<string, string[]>(rooms.map((roomId) => [roomId, []]));
    const hear = (answer: Answer): void => {
      for (const [roomId, room] of Object.entries(answer.rooms)) {
        const messages = (room.timeline ?? []).filter((event) => event.type === 'm.room.message');
        expect(room.limited).not.toBe(true);
        heard.get(roomId)?.push(...messages.map((event) => event.event_id));
      }
    };
    const window = (last: number): object => all({ ranges: [[0, last]], timeline_limit: 200 });
    let { pos } = await sliding(bob, window(2));
    let speaking = true;
    const speakers = Promise.all(
      rooms.map(async (roomId, index) => {
        for (let n = 0; n < 25; n++) sent.get(roomId)?.push(await send(index === 0 ? bob : alice, roomId, `line ${n}`));
      }),
    ).then(() => {
      speaking = false;
    });
    for (let round = 0; speaking; round++) {
      const answer = await sliding(bob, window(round % 3), { pos, timeout: 50 });
      // Every third answer is lost: the client asks again from where it was.
      if (round % 3 === 2) continue;
      hear(answer);
      pos = answer.pos;
    }
    await speakers;
    for (let round = 0; round < 3; round++) {
      const answer = await sliding(bob, window(2), { pos });
      hear(answer);
      pos = answer.pos;
    }
    for (const roomId of rooms) expect(heard.get(roomId)).toEqual(sent.get(roomId));
  });

  it('goes on after a restart', async () => {
    const bob = await newUser();
    const roomId = await shared(bob, { name: 'Durable' });
    const other = await shared(bob, { name: 'Missed' });
    const request = {
      ...all({ required_state: [['m.room.topic', '']] }),
      extensions: { account_data: { enabled: true }, typing: { enabled: true } },
    };
    const first = await sliding(bob, request);
    expect(Object.keys(first.rooms).sort()).toEqual([roomId, other].sort());
    await send(alice, other, 'missed');
    await send(alice, roomId, 'before');
    const before = await sliding(bob, { ...request, ...all({ ranges: [[0, 0]] }) }, { pos: first.pos });
    expect(Object.keys(before.rooms)).toEqual([roomId]);
    await homeserver.restart();
    // The lost answer's position and the one before it.
    expect(bodies((await sliding(bob, request, { pos: first.pos })).rooms[roomId])).toEqual(['before']);
    const again = await sliding(bob, { ...request, ...all({ ranges: [[0, 0]] }) }, { pos: first.pos });
    await homeserver.restart();
    const after = await sliding(bob, request, { pos: again.pos });
    expect(bodies(after.rooms[other])).toEqual(['missed']);
    expect(after.rooms[other]).not.toHaveProperty('initial');
    expect(after.rooms[roomId]?.timeline ?? []).toEqual([]);
    expect(after.extensions.account_data?.global).toEqual([]);
    expect(after.extensions.typing?.rooms).toEqual({});
    await send(alice, roomId, 'after');
    expect(bodies((await sliding(bob, request, { pos: after.pos })).rooms[roomId])).toEqual(['after']);
  });

  it('does not count what a lost answer told, over a restart as well', async () => {
    const bob = await newUser();
    const first = await sliding(bob, all());
    const low = await shared(bob);
    const top = await shared(bob);
    const lost = await sliding(bob, all(), { pos: first.pos });
    expect(Object.keys(lost.rooms).sort()).toEqual([low, top].sort());
    const narrow = await sliding(bob, all({ ranges: [[0, 0]] }), { pos: first.pos });
    expect(Object.keys(narrow.rooms)).toEqual([top]);
    await homeserver.restart();
    const wide = await sliding(bob, all(), { pos: narrow.pos });
    expect(Object.keys(wide.rooms)).toEqual([low]);
    expect(wide.rooms[low]?.initial).toBe(true);
  });

  it('keeps extensions to the lists and rooms that they are for', async () => {
    const bob = await newUser();
    const inList = await shared(bob, { name: 'listed' });
    const other = await shared(bob, { name: 'subscribed' });
    const request = (account: object, last = 0): object => ({
      lists: {
        one: { ranges: [[0, last]], filters: { room_name_like: 'listed' }, timeline_limit: 1, required_state: [] },
      },
      room_subscriptions: { [other]: { timeline_limit: 1, required_state: [] } },
      extensions: { account_data: { enabled: true, ...account } },
    });
    const tag = (roomId: string, name: string) =>
      bob.request('PUT', `/user/${bob.userId}/rooms/${roomId}/tags/${name}`, {});
    const told = (answer: Answer): string[] => Object.keys(answer.extensions.account_data?.rooms ?? {}).sort();
    await tag(inList, 'u.a');
    await tag(other, 'u.a');
    const both = await sliding(bob, request({}));
    expect(told(both)).toEqual([inList, other].sort());
    await tag(inList, 'u.b');
    await tag(other, 'u.b');
    const lists = await sliding(bob, request({ lists: ['one'], rooms: [] }), { pos: both.pos });
    expect(told(lists)).toEqual([inList]);
    // What was held back comes when the extension is for the room again.
    const rooms = await sliding(bob, request({ lists: [], rooms: [other] }), { pos: lists.pos });
    expect(told(rooms)).toEqual([other]);
    const tags = rooms.extensions.account_data?.rooms[other]?.[0]?.content;
    expect(tags).toEqual({ tags: { 'u.a': {}, 'u.b': {} } });
    expect(told(await sliding(bob, request({}), { pos: rooms.pos }))).toEqual([]);
  });

  it('refuses what is too much, and what has the wrong shape', async () => {
    const list = { timeline_limit: 1, required_state: [] };
    const refused = async (body: object): Promise<void> => {
      const { status, body: answer } = await raw(alice, body);
      expect({ status, errcode: answer.errcode }).toEqual({
        status: 400,
        errcode: expect.stringMatching(/^M_(INVALID_PARAM|BAD_JSON)$/),
      });
    };
    await refused({ lists: Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`l${n}`, list])) });
    await refused({ lists: { ['x'.repeat(65)]: list } });
    await refused({ lists: { a: { ...list, timeline_limit: 1001 } } });
    await refused({ lists: { a: { required_state: [] } } });
    await refused({ lists: { a: { ...list, ranges: [[5, 4]] } } });
    await refused({ lists: { a: { ...list, ranges: [[-1, 4]] } } });
    await refused({ lists: { a: { ...list, required_state: [['m.room.name']] } } });
    await refused({ lists: [] });
    await refused({ room_subscriptions: { '!a:b': { timeline_limit: 'many' } } });
    await refused({ extensions: { to_device: { enabled: true, since: 'x' } } });
    // What does not exist, or is none of the user's business, is passed over.
    const { status, body } = await raw(alice, { room_subscriptions: { '!nowhere:here': list, x: list } });
    expect({ status, rooms: body.rooms }).toEqual({ status: 200, rooms: {} });
  });
});
