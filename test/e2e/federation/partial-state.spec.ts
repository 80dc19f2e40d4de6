import type { JsonObject } from '@rookery/matrix-types';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { stateKeyOf } from '@rookery/state-res';
import { databases, ok, say } from '../rooms/rooms-client.js';
import { ElsewhereRoom, Refusal } from './elsewhere-room.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction } from './visiting-server.js';

type Rooms = { rooms?: { join?: Record<string, { state: { events: JsonObject[] } }> } };

const lazy = encodeURIComponent(JSON.stringify({ room: { state: { lazy_load_members: true } } }));
const isOther = (room: ElsewhereRoom, pdu: JsonObject): boolean =>
  pdu['type'] === 'm.room.member' &&
  pdu['state_key'] !== room.creator &&
  !String(pdu['state_key']).endsWith(':home.test');

const places = [
  ...databases.map((database) => [database, 1, false] as const),
  ['postgres', 2, false],
  ...databases.map((database) => [database, 1, true] as const),
  ['postgres', 2, true],
] as const;
const name = 'rooms of which not all members are known (%s, processes: %i, state apart: %s)';

describe.each(places)(name, (database, processes, stateApart) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let far: PlayedServer;
  let alice: TestUser;

  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', { database, stateApart, ...(processes > 1 && { processes }) });
    far = await world.played('far.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world?.stop());

  /** A room with a few members, of which the answer to a join names one; the rest of its state comes once `release` is called. */
  const crowded = (
    server = far,
  ): { room: ElsewhereRoom; members: string[]; release: () => void; asked: () => number } => {
    const room = new ElsewhereRoom(server, '11');
    const members = ['bob', 'dave', 'erin'].map((name) => `@${name}:${server.name}`);
    for (const sender of members)
      room.add({ type: 'm.room.member', stateKey: sender, sender, content: { membership: 'join' } });
    room.lies.set('send_join', (honest) => ({
      ...honest,
      state: (honest['state'] as JsonObject[]).filter((pdu) => !isOther(room, pdu)),
      members_omitted: true,
      servers_in_room: [server.name],
    }));
    let release = (): void => {};
    let asked = 0;
    const released = new Promise<void>((resolve) => (release = resolve));
    room.lies.set('state_ids', async (honest) => {
      asked++;
      await released;
      return honest;
    });
    return { room, members, release, asked: () => asked };
  };
  const join = (room: ElsewhereRoom): Promise<unknown> => ok(alice, 'POST', `/join/${room.roomId}?via=${far.name}`, {});

  it('can be used at once, and their members be read when all are there', async () => {
    const { room, members, release, asked } = crowded();
    const { next_batch: since } = await ok<{ next_batch: string }>(alice, 'GET', '/sync?timeout=0');
    const told: JsonObject[] = [];
    room.lies.set('send', (_, asked) => {
      told.push(...((JSON.parse(asked.body) as { pdus?: JsonObject[] }).pdus ?? []));
      return { pdus: {} };
    });
    await join(room);
    await say(alice, room.roomId, 'at once');
    await eventually(() => told.some(({ content }) => (content as JsonObject)['body'] === 'at once'));
    await eventually(() => asked() > 0);
    expect((await ok<Rooms>(alice, 'GET', `/sync?timeout=0&filter=${lazy}`)).rooms?.join).toHaveProperty([room.roomId]);
    expect((await ok<Rooms>(alice, 'GET', '/sync?timeout=0')).rooms?.join ?? {}).not.toHaveProperty([room.roomId]);
    let isRead = false;
    const reading = ok<{ joined: object }>(alice, 'GET', `/rooms/${room.roomId}/joined_members`).finally(
      () => (isRead = true),
    );
    await say(alice, room.roomId, 'still');
    expect(isRead).toBe(false);
    release();
    const everybody = [alice.userId, room.creator, ...members].sort();
    expect(Object.keys((await reading).joined).sort()).toEqual(everybody);
    const synced = await ok<Rooms>(alice, 'GET', `/sync?timeout=0&since=${since}`);
    const state = synced.rooms?.join?.[room.roomId]?.state.events ?? [];
    expect(state.flatMap((event) => (event['type'] === 'm.room.member' ? [event['state_key']] : [])).sort()).toEqual(
      expect.arrayContaining([room.creator, ...members].sort()),
    );
  });

  it('tell at once who has read what, though it was said before and is not here', async () => {
    const { room, members, release } = crowded();
    await join(room);
    const before = `$${'b'.repeat(43)}`;
    const readBy = (userId: string, eventId: string): JsonObject => ({
      [room.roomId]: { 'm.read': { [userId]: { event_ids: [eventId], data: { ts: 5 } } } },
    });
    const receipts = [readBy(members[0]!, before), readBy(members[1]!, '__proto__'), readBy(members[2]!, 'no\0id')];
    await sendTransaction(
      far,
      home,
      [],
      receipts.map((content) => ({ edu_type: 'm.receipt', content })),
    );
    type Ephemeral = { rooms?: { join?: Record<string, { ephemeral: { events: JsonObject[] } }> } };
    const told = await eventually(async () => {
      const synced = await ok<Ephemeral>(alice, 'GET', `/sync?timeout=0&filter=${lazy}`);
      const events = synced.rooms?.join?.[room.roomId]?.ephemeral.events ?? [];
      return events.find(({ type }) => type === 'm.receipt')?.['content'] as JsonObject | undefined;
    });
    expect(Object.entries(told)).toEqual([
      [before, { 'm.read': { [members[0]!]: { ts: 5 } } }],
      ['__proto__', { 'm.read': { [members[1]!]: { ts: 5 } } }],
    ]);
    release();
    await ok(alice, 'GET', `/rooms/${room.roomId}/joined_members`);
  });

  it('are told to be there as soon as they are known', async () => {
    // Nobody of it is known from another room.
    const near = await world.played('beside.test');
    const { room, members, release } = crowded(near);
    await ok(alice, 'POST', `/join/${room.roomId}?via=${near.name}`, {});
    const there = members[1]!;
    const push = [{ user_id: there, presence: 'online', status_msg: 'here all the time', last_active_ago: 5 }];
    await sendTransaction(near, home, [], [{ edu_type: 'm.presence', content: { push } }]);
    release();
    await ok(alice, 'GET', `/rooms/${room.roomId}/joined_members`);
    type Presences = { presence?: { events: { sender: string; content: JsonObject }[] } };
    await eventually(async () => {
      const { presence } = await ok<Presences>(alice, 'GET', '/sync?timeout=0');
      return presence?.events.some(
        ({ sender, content }) => sender === there && content['status_msg'] === 'here all the time',
      );
    });
  });

  /** A larger room whose server leaves nobody out of its answer to a join. */
  const told = (version: string): { room: ElsewhereRoom; everybody: string[] } => {
    const room = new ElsewhereRoom(far, version);
    const members = Array.from({ length: 260 }, (_, n) => `@member${n}:far.test`);
    for (const sender of members)
      room.add({ type: 'm.room.member', stateKey: sender, sender, content: { membership: 'join' } });
    return { room, everybody: [alice.userId, room.creator, ...members].sort() };
  };
  const joinedIn = async (room: ElsewhereRoom): Promise<string[]> => {
    const { joined } = await ok<{ joined: object }>(alice, 'GET', `/rooms/${room.roomId}/joined_members`);
    return Object.keys(joined).sort();
  };

  it.each(['11', '12'])(
    'are known from the answer to the join where it leaves nobody out, version %s',
    async (version) => {
      const { room, everybody } = told(version);
      const { next_batch: since } = await ok<{ next_batch: string }>(alice, 'GET', '/sync?timeout=0');
      await join(room);
      await say(alice, room.roomId, 'at once');
      expect(await joinedIn(room)).toEqual(everybody);
      // Nothing was asked for once more.
      expect(room.requests.filter((kind) => kind.startsWith('state'))).toEqual([]);
      const synced = await ok<Rooms>(alice, 'GET', `/sync?timeout=0&since=${since}`);
      const state = synced.rooms?.join?.[room.roomId]?.state.events ?? [];
      const seen = state.flatMap((event) => (event['type'] === 'm.room.member' ? [String(event['state_key'])] : []));
      expect(new Set([...seen, alice.userId])).toEqual(new Set(everybody));
    },
  );

  it('are asked for where the answer to the join turns out to be wrong', async () => {
    const { room, everybody } = told('11');
    room.lies.set('send_join', (honest) => {
      const sender = '@member7:far.test';
      const content = { membership: 'leave' };
      const second = room.make({ type: 'm.room.member', stateKey: sender, sender, content });
      return { ...honest, state: [...(honest['state'] as JsonObject[]), second.pdu] };
    });
    await join(room);
    await say(alice, room.roomId, 'at once');
    expect(await joinedIn(room)).toEqual(everybody);
    expect(room.requests).toContain('state_ids');
  });

  it('are left out of the answer to a join where they do not prove themselves', async () => {
    const { room, everybody } = told('12');
    const isForged = (pdu: JsonObject): boolean => pdu['state_key'] === '@member7:far.test';
    room.lies.set('send_join', (honest) => ({
      ...honest,
      state: (honest['state'] as JsonObject[]).map((pdu) => (isForged(pdu) ? { ...pdu, signatures: {} } : pdu)),
    }));
    await join(room);
    expect(await joinedIn(room)).toEqual(everybody.filter((userId) => userId !== '@member7:far.test'));
  });

  it('make who acts upon somebody that is not known wait, until they are', async () => {
    const { room, members, release, asked } = crowded();
    const [bob = '', dave = '', erin = ''] = members;
    room.add({
      type: 'm.room.power_levels',
      stateKey: '',
      content: { users: { [room.creator]: 100, [alice.userId]: 100 } },
    });
    await join(room);
    await eventually(() => asked() > 0);
    const path = `/rooms/${room.roomId}`;
    let isAnyDone = false;
    const attempts = [
      alice.request('POST', `${path}/kick`, { user_id: bob }),
      alice.request('POST', `${path}/ban`, { user_id: dave }),
      // Who is in the room cannot be invited to it, and who is not banned cannot be unbanned.
      alice.request('POST', `${path}/invite`, { user_id: erin }),
      alice.request('POST', `${path}/unban`, { user_id: erin }),
      ok<{ replacement_room: string }>(alice, 'POST', `${path}/upgrade`, { new_version: '11' }),
    ] as const;
    for (const attempt of attempts) void attempt.finally(() => (isAnyDone = true));
    await say(alice, room.roomId, 'meanwhile');
    expect(isAnyDone).toBe(false);
    release();
    const [kick, ban, invite, unban, { replacement_room: replacement }] = await Promise.all(attempts);
    expect([kick, ban, invite, unban].map(({ status }) => status)).toEqual([200, 200, 403, 403]);
    const membership = async (roomId: string, userId: string): Promise<unknown> =>
      (await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${userId}`)).body['membership'];
    expect(await membership(room.roomId, bob)).toBe('leave');
    expect(await membership(room.roomId, dave)).toBe('ban');
    expect((await alice.request('GET', `/rooms/${replacement}/state/m.room.create/`)).status).toBe(200);
  });

  it('are joined by others of the server through one that knows who is banned', async () => {
    const { room, asked, release } = crowded();
    const [second, banned] = await Promise.all(
      ['second', 'banned'].map((name) => home.registerUser(`${name}${database}`)),
    );
    room.lies.set('make_join', (honest, { url }) =>
      url.includes(encodeURIComponent(banned!.userId))
        ? new Refusal(403, { errcode: 'M_FORBIDDEN', error: 'banned' })
        : honest,
    );
    await join(room);
    await eventually(() => asked() > 0);
    const tries = [second!, banned!].map((user) => user.request('POST', `/join/${room.roomId}?via=${far.name}`, {}));
    expect((await Promise.all(tries)).map(({ status }) => status)).toEqual([200, 403]);
    await say(second!, room.roomId, 'in before all are known');
    release();
    const { joined } = await ok<{ joined: object }>(alice, 'GET', `/rooms/${room.roomId}/joined_members`);
    expect(Object.keys(joined)).toContain(second!.userId);
    expect(Object.keys(joined)).not.toContain(banned!.userId);
  });

  it('come to clients of sliding sync that want all members when all are known, to others at once', async () => {
    const { room, members, release, asked } = crowded();
    const [bob = ''] = members;
    const user = await home.registerUser(`sliding${database}`);
    type Sliding = { pos: string; rooms: Record<string, { required_state: JsonObject[]; joined_count?: number }> };
    const sliding = (connId: string, state: readonly string[][], pos?: string): Promise<Sliding> =>
      ok(
        user,
        'POST',
        `/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=${pos ? 10_000 : 0}${pos ? `&pos=${encodeURIComponent(pos)}` : ''}`,
        { conn_id: connId, lists: { all: { ranges: [[0, 99]], required_state: state, timeline_limit: 10 } } },
      );
    const lazily = [
      ['m.room.create', ''],
      ['m.room.member', '$LAZY'],
    ];
    const wholly = [['*', '*']];
    const membersIn = (answer: Sliding): unknown[] =>
      (answer.rooms[room.roomId]?.required_state ?? [])
        .flatMap((event) => (event['type'] === 'm.room.member' ? [event['state_key']] : []))
        .sort();
    await ok(user, 'POST', `/join/${room.roomId}?via=${far.name}`, {});
    await eventually(() => asked() > 0);
    const said = room.make({
      type: 'm.room.message',
      sender: bob,
      content: { msgtype: 'm.text', body: 'hello' },
      auth: [...room.state.values()]
        .filter(({ type, stateKey }) => ['m.room.create', 'm.room.power_levels'].includes(type) || stateKey === bob)
        .map(({ eventId }) => eventId),
    });
    await far.request(home, 'PUT', `/_matrix/federation/v1/send/${Date.now()}`, {
      origin: far.name,
      origin_server_ts: Date.now(),
      pdus: [said.pdu],
    });
    await eventually(
      async () =>
        (await user.request('GET', `/rooms/${room.roomId}/event/${encodeURIComponent(said.eventId)}`)).status === 200,
    );
    const lazy = await sliding('lazy', lazily);
    expect(membersIn(lazy)).toEqual([bob, user.userId].sort());
    const whole = await sliding('whole', wholly);
    expect(whole.rooms).not.toHaveProperty([room.roomId]);
    release();
    const [lazyAfter, wholeAfter] = await Promise.all([
      sliding('lazy', lazily, lazy.pos),
      sliding('whole', wholly, whole.pos),
    ]);
    expect(membersIn(wholeAfter)).toEqual([user.userId, room.creator, ...members].sort());
    expect(membersIn(lazyAfter)).toEqual([]);
    expect(lazyAfter.rooms[room.roomId]?.joined_count).toBe(members.length + 2);
  });

  it('let others in, and tell their state, a moment later', async () => {
    const { room, release, asked } = crowded();
    await join(room);
    await eventually(() => asked() > 0);
    const via = await world.played('third.test');
    const eventId = await say(alice, room.roomId, 'asked for');
    const make = `/_matrix/federation/v1/make_join/${encodeURIComponent(room.roomId)}/%40tom%3Athird.test?ver=11`;
    const ids = `/_matrix/federation/v1/state_ids/${encodeURIComponent(room.roomId)}?event_id=${encodeURIComponent(eventId)}`;
    const ask = async (): Promise<number[]> => {
      const answers = await Promise.all([via.request(home, 'GET', make), far.request(home, 'GET', ids)]);
      return answers.map(({ status }) => status);
    };
    const askedAtMs = performance.now();
    const waiting = ask();
    // Both wait for what this answers.
    await say(alice, room.roomId, 'meanwhile');
    release();
    const statuses = await waiting;
    // Who has waited for five seconds is to ask again.
    if (performance.now() - askedAtMs > 5_000) await eventually(async () => (await ask()).every((one) => one === 200));
    else expect(statuses).toEqual([200, 200]);
  });

  it('are judged once more when all is known', async () => {
    const { room, members, release } = crowded();
    const [bob = '', dave = ''] = members;
    const joined = [...room.state.values()].find(({ stateKey }) => stateKey === bob)!;
    room.add({ type: 'm.room.member', stateKey: bob, sender: bob, content: { membership: 'leave' } });
    await join(room);
    const authOf = (sender: string): string[] =>
      [...room.state.values()]
        .filter(
          ({ type, stateKey }) => type === 'm.room.create' || type === 'm.room.power_levels' || stateKey === sender,
        )
        .map(({ eventId }) => eventId);
    // Somebody who has left says something as if they had not; nobody here can tell yet.
    const wrong = room.make({
      type: 'm.room.message',
      sender: bob,
      content: { msgtype: 'm.text', body: 'still here' },
      auth: [...authOf('nobody'), joined.eventId],
    });
    const right = room.make({
      type: 'm.room.message',
      sender: dave,
      content: { msgtype: 'm.text', body: 'hello' },
      auth: authOf(dave),
    });
    await far.request(home, 'PUT', `/_matrix/federation/v1/send/${Date.now()}`, {
      origin: far.name,
      origin_server_ts: Date.now(),
      pdus: [wrong.pdu, right.pdu],
    });
    const statusOf = async ({ eventId }: { eventId: string }): Promise<number> =>
      (await alice.request('GET', `/rooms/${room.roomId}/event/${encodeURIComponent(eventId)}`)).status;
    await eventually(async () => (await statusOf(right)) === 200);
    expect(await statusOf(wrong)).toBe(200);
    release();
    await ok(alice, 'GET', `/rooms/${room.roomId}/members`);
    expect([await statusOf(wrong), await statusOf(right)]).toEqual([404, 200]);
  });

  const transact = (pdus: readonly JsonObject[]): Promise<unknown> =>
    far.request(home, 'PUT', `/_matrix/federation/v1/send/${Date.now()}`, {
      origin: far.name,
      origin_server_ts: Date.now(),
      pdus,
    });
  const statusOf = async (room: ElsewhereRoom, eventId: string): Promise<number> =>
    (await alice.request('GET', `/rooms/${room.roomId}/event/${encodeURIComponent(eventId)}`)).status;
  /** The auth events of what somebody says, as they were when this is asked for. */
  const authOf = (room: ElsewhereRoom, ...users: string[]): string[] =>
    [...room.state.values()]
      .filter(({ type, stateKey = '' }) => /create|power_levels/.test(type) || users.includes(stateKey))
      .map(({ eventId }) => eventId);

  it('have a moment later what else there is much of and decides about nothing', async () => {
    const { room, release, asked } = crowded();
    const thing = 'org.example.thing';
    for (let n = 0; n < 720; n++) room.add({ type: thing, stateKey: `${n}`, content: { n } });
    type Thing = { readonly type: string; readonly state_key: string; readonly content: JsonObject };
    const thingsIn = (synced: Rooms): Thing[] => {
      const events = (synced.rooms?.join?.[room.roomId]?.state.events ?? []) as unknown as Thing[];
      return events.filter(({ type }) => type === thing);
    };
    const { next_batch: since } = await ok<{ next_batch: string }>(alice, 'GET', '/sync?timeout=0');
    await join(room);
    await eventually(() => asked() > 0);
    await say(alice, room.roomId, 'at once');
    const before = await ok<Rooms & { next_batch: string }>(alice, 'GET', `/sync?timeout=0&filter=${lazy}`);
    expect(thingsIn(before)).toHaveLength(500);
    // One of those that are not here is changed meanwhile.
    const changed = room.add({ type: thing, stateKey: '710', content: { n: 'changed' } });
    await transact([changed.pdu]);
    await eventually(async () => (await statusOf(room, changed.eventId)) === 200);
    let isRead = false;
    const reading = ok<JsonObject>(alice, 'GET', `/rooms/${room.roomId}/state/${thing}/715`).finally(
      () => (isRead = true),
    );
    await say(alice, room.roomId, 'still');
    expect(isRead).toBe(false);
    release();
    expect(await reading).toEqual({ n: 715 });
    const state = (await ok<Thing[]>(alice, 'GET', `/rooms/${room.roomId}/state`)).filter(({ type }) => type === thing);
    expect(state).toHaveLength(720);
    expect(state.filter(({ state_key: key, content }) => content['n'] !== Number(key))).toEqual([
      expect.objectContaining({ state_key: '710', content: { n: 'changed' } }),
    ]);
    // Clients hear of them: those that have the room already, and those that waited for all of it.
    const after = await ok<Rooms>(alice, 'GET', `/sync?timeout=0&since=${before.next_batch}&filter=${lazy}`);
    const heard = new Set([...thingsIn(before), ...thingsIn(after)].map(({ state_key: key }) => key));
    expect(heard.size).toBeGreaterThanOrEqual(719);
    const whole = await ok<Rooms>(alice, 'GET', `/sync?timeout=0&since=${since}`);
    expect(new Set(thingsIn(whole).map(({ state_key: key }) => key)).size).toBeGreaterThanOrEqual(719);
    // It replaces one that was not here when it came.
    const path = `/rooms/${room.roomId}/event/${encodeURIComponent(changed.eventId)}`;
    const { unsigned } = await ok<{ unsigned?: JsonObject }>(alice, 'GET', path);
    const former = room.before.get(changed.eventId)!.get(stateKeyOf(thing, '710'))!;
    expect(unsigned?.['replaces_state']).toBe(former.eventId);
  });

  it.each([false, true])(
    'are judged once more also when they were left and joined again meanwhile (with something said between: %s)',
    async (isSaid) => {
      const { room, members, release, asked } = crowded();
      const [bob = '', dave = ''] = members;
      const authOfBob = authOf(room, bob);
      room.add({ type: 'm.room.member', stateKey: bob, sender: bob, content: { membership: 'leave' } });
      await join(room);
      const content = { msgtype: 'm.text', body: 'still here' };
      const wrong = room.make({ type: 'm.room.message', sender: bob, content, auth: authOfBob });
      const right = room.make({ type: 'm.room.message', sender: dave, content, auth: authOf(room, dave) });
      await transact([wrong.pdu, right.pdu]);
      await eventually(async () => (await statusOf(room, right.eventId)) === 200);
      expect(await statusOf(room, wrong.eventId)).toBe(200);
      await eventually(() => asked() > 0);
      await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, {});
      if (isSaid) room.say('while she was away');
      await join(room);
      // Where all is here that the second join follows upon, what is fetched for the first is enough.
      if (isSaid) await eventually(() => asked() > 1);
      await say(alice, room.roomId, 'again');
      release();
      const all = [alice.userId, room.creator, ...members.slice(1)].sort();
      expect(await joinedIn(room)).toEqual(all);
      expect([await statusOf(room, wrong.eventId), await statusOf(room, right.eventId)]).toEqual([404, 200]);
      if (!isSaid) expect(asked()).toBe(1);
      await say(alice, room.roomId, 'and whole');
    },
  );

  it('are joined by others through another server after all of this one have left them', async () => {
    const { room, members, release, asked } = crowded();
    room.lies.set('send', () => ({ pdus: {} }));
    await join(room);
    await eventually(() => asked() > 0);
    await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, {});
    const bea = await home.registerUser(`bea${Date.now()}`);
    await ok(bea, 'POST', `/join/${room.roomId}?via=${far.name}`, {});
    expect(room.requests.filter((kind) => kind === 'send_join')).toHaveLength(2);
    await say(bea, room.roomId, 'at once');
    release();
    const { joined } = await ok<{ joined: object }>(bea, 'GET', `/rooms/${room.roomId}/joined_members`);
    expect(Object.keys(joined).sort()).toEqual([bea.userId, room.creator, ...members].sort());
    expect(asked()).toBe(1);
  });

  it('tell servers of the devices of who joins when it is known which servers these are', async () => {
    // One that has not refused anything, and does not.
    const near = await world.played('near.test');
    const { room, release } = crowded(near);
    room.lies.set('send', () => ({ pdus: {} }));
    const told = (): boolean =>
      near.asked.some(({ body }) => body.includes(alice.userId) && body.includes('m.device_list_update'));
    await ok(alice, 'POST', `/join/${room.roomId}?via=${near.name}`);
    // Longer than it takes where they are known.
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect(told()).toBe(false);
    release();
    await ok(alice, 'GET', `/rooms/${room.roomId}/members`);
    await eventually(told);
  });

  it.each([false, true])(
    'are joined anew through others after nobody but who left was known (given up: %s)',
    async (isGivenUp) => {
      const { room, release, asked } = crowded();
      const isMember = ({ type }: JsonObject): boolean => type === 'm.room.member';
      room.lies.set('send_join', (honest) => ({
        ...honest,
        state: (honest['state'] as JsonObject[]).filter((pdu) => !isMember(pdu)),
        // What this server has made itself it knows.
        auth_chain: [
          ...(honest['auth_chain'] as JsonObject[]),
          ...(honest['state'] as JsonObject[]).filter(isMember),
        ].filter(({ state_key: user }) => user !== alice.userId),
        members_omitted: true,
        servers_in_room: [far.name],
      }));
      const joins = (): number =>
        far.asked.filter(({ url }) => url.includes('send_join') && url.includes(encodeURIComponent(room.roomId)))
          .length;
      await join(room);
      await ok(alice, 'POST', `/rooms/${room.roomId}/leave`, {});
      if (isGivenUp) {
        release();
        await eventually(() => asked() > 0);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
      await join(room);
      expect(joins()).toBe(2);
      release();
    },
  );

  it('let who was sent away wrongly leave by themselves, and nobody speak who was banned', async () => {
    const { room, members, release } = crowded();
    const [bob = '', dave = '', erin = ''] = members;
    room.add({ type: 'm.room.power_levels', stateKey: '', content: { users: { [room.creator]: 100, [erin]: 50 } } });
    const [authOfBob, authOfDave, kicking] = [authOf(room, bob), authOf(room, dave), authOf(room, erin)];
    room.add({ type: 'm.room.member', stateKey: erin, sender: erin, content: { membership: 'leave' } });
    await join(room);
    const gone = { type: 'm.room.member', content: { membership: 'leave' } };
    // Who has left already sends away who had every right to be there.
    const kick = room.make({ ...gone, stateKey: dave, sender: erin, auth: kicking });
    const leave = room.make({ ...gone, stateKey: dave, sender: dave, auth: authOfDave, prev: [kick] });
    const banned = { type: 'm.room.member', stateKey: bob, content: { membership: 'ban' } };
    const ban = room.make({ ...banned, prev: [leave] });
    const text = { msgtype: 'm.text', body: 'still here' };
    const wrong = room.make({ type: 'm.room.message', sender: bob, content: text, auth: authOfBob, prev: [ban] });
    const last = room.make({ type: 'm.room.message', content: text, prev: [ban] });
    const all = [kick, leave, ban, wrong, last];
    await transact(all.map(({ pdu }) => pdu));
    await eventually(async () => (await statusOf(room, last.eventId)) === 200);
    const statuses = (): Promise<number[]> => Promise.all(all.map(({ eventId }) => statusOf(room, eventId)));
    expect(await statuses()).toEqual([200, 200, 200, 404, 200]);
    release();
    await ok(alice, 'GET', `/rooms/${room.roomId}/members`);
    expect(await statuses()).toEqual([404, 200, 200, 404, 200]);
    const path = `/rooms/${room.roomId}/state/m.room.member/${dave}`;
    expect((await ok(alice, 'GET', path))['membership']).toBe('leave');
  });

  it('show what events relate to and redact as it counts once all is known', async () => {
    const { room, members, release } = crowded();
    const [, dave = '', erin = ''] = members;
    const users = { [room.creator]: 100, [erin]: 50 };
    room.add({ type: 'm.room.power_levels', stateKey: '', content: { users } });
    const authOfErin = authOf(room, erin);
    const kicking = authOf(room, erin, dave);
    const authOfDave = authOf(room, dave);
    room.add({ type: 'm.room.member', stateKey: erin, sender: erin, content: { membership: 'leave' } });
    await join(room);
    const text = (body: string): JsonObject => ({ msgtype: 'm.text', body });
    let prev = room.head;
    const next = (draft: Parameters<ElsewhereRoom['make']>[0]): JsonObject & { event_id: string } => {
      prev = room.make({ ...draft, prev: [prev] });
      return { ...prev.pdu, event_id: prev.eventId };
    };
    const reply = (to: string): JsonObject => ({
      ...text('in the thread'),
      'm.relates_to': { rel_type: 'm.thread', event_id: to },
    });
    const type = 'm.room.message';
    // Who is sent away does not come back by what they say of themselves.
    const closed = next({ type: 'm.room.join_rules', stateKey: '', content: { join_rule: 'invite' } });
    const root = next({ type, content: text('root') });
    const kept = next({ type, content: text('kept') });
    // Somebody who has left goes on as if they had not, and sends away who had every right to be there.
    const wrongReply = next({ type, sender: erin, content: reply(root.event_id), auth: authOfErin });
    const redaction = next({
      type: 'm.room.redaction',
      sender: erin,
      content: { redacts: kept.event_id },
      auth: authOfErin,
    });
    const leave = { membership: 'leave' };
    const kick = next({ type: 'm.room.member', stateKey: dave, sender: erin, content: leave, auth: kicking });
    const rightReply = next({ type, sender: dave, content: reply(root.event_id), auth: authOfDave });
    const last = next({ type, content: text('last') });
    const pdus = [closed, root, kept, wrongReply, redaction, kick, rightReply, last];
    await transact(pdus.map(({ event_id: _, ...pdu }) => pdu));
    await eventually(async () => (await statusOf(room, last.event_id)) === 200);
    const seen = async (): Promise<unknown> => {
      const path = `/rooms/${room.roomId}`;
      const replies = await ok<{ chunk: JsonObject[] }>(
        alice,
        'GET',
        `/_matrix/client/v1${path}/relations/${encodeURIComponent(root.event_id)}/m.thread`,
      );
      const { chunk } = await ok<{ chunk: JsonObject[] }>(alice, 'GET', `/_matrix/client/v1${path}/threads`);
      const { content } = await ok(alice, 'GET', `${path}/event/${encodeURIComponent(kept.event_id)}`);
      const [{ unsigned } = {}] = chunk as {
        unsigned?: { 'm.relations': Record<string, { latest_event: JsonObject }> };
      }[];
      return {
        replies: replies.chunk.map(({ event_id: id }) => id),
        latest: unsigned?.['m.relations']['m.thread']?.latest_event['event_id'],
        kept: content,
      };
    };
    expect(await seen()).toEqual({ replies: [wrongReply.event_id], latest: wrongReply.event_id, kept: {} });
    release();
    await ok(alice, 'GET', `/rooms/${room.roomId}/members`);
    expect(await seen()).toEqual({ replies: [rightReply.event_id], latest: rightReply.event_id, kept: text('kept') });
  });
});
