import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly content: Record<string, unknown>;
  readonly unsigned?: Record<string, unknown>;
}

interface Room {
  readonly timeline: { readonly events: WireEvent[]; readonly limited: boolean; readonly prev_batch: string };
  readonly state?: { readonly events: WireEvent[] };
  readonly 'org.matrix.msc4222.state_after'?: { readonly events: WireEvent[] };
  readonly state_after?: { readonly events: WireEvent[] };
  readonly account_data: { readonly events: { type: string; content: unknown }[] };
  readonly summary: Record<string, unknown>;
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<string, Room>;
    readonly leave?: Record<string, Room>;
    readonly invite?: Record<string, { invite_state: { events: WireEvent[] } }>;
    readonly knock?: Record<string, unknown>;
  };
  readonly account_data?: { readonly events: { type: string; content: unknown }[] };
}

/** An answer without news: only where the client stands, and what its device has left. */
const nothing = {
  next_batch: expect.any(String),
  device_one_time_keys_count: { signed_curve25519: 0 },
  device_unused_fallback_key_types: [],
};

let transaction = 0;

const send = async (user: TestUser, roomId: string, body: string, type = 'm.room.message'): Promise<string> => {
  transaction += 1;
  const { status, body: answer } = await user.request('PUT', `/rooms/${roomId}/send/${type}/${transaction}`, {
    msgtype: 'm.text',
    body,
  });
  expect(status).toBe(200);
  return String(answer['event_id']);
};

const sync = async (user: TestUser, query: Record<string, string | object> = {}): Promise<Sync> => {
  const params = new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  );
  const { status, body } = await user.request<Sync>('GET', `/sync?${params.toString()}`);
  expect({ status, body }).toMatchObject({ status: 200 });
  return body;
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
  (room?.timeline.events ?? [])
    .filter((event) => event.type === 'm.room.message')
    .map((event) => event.content['body']);
const keys = (events: readonly WireEvent[] | undefined): string[] =>
  (events ?? []).map((event) => `${event.type}|${event.state_key}`).sort();

describe.each(['sqlite', 'postgres'] as const)('/sync (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: { 'presence.enabled': false },
    });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  const shared = async (options: object = {}): Promise<string> => {
    const roomId = await createRoom(alice, { invite: [bob.userId], ...options });
    await join(bob, roomId);
    return roomId;
  };

  it('first tells everything, then what is new, then nothing', async () => {
    const roomId = await shared({ name: 'First' });
    const hello = await send(alice, roomId, 'hello');
    const first = await sync(bob);
    const room = first.rooms?.join?.[roomId];
    expect(bodies(room)).toEqual(['hello']);
    expect(room?.timeline.events.at(-1)?.event_id).toBe(hello);
    // State and timeline together are the current state, each entry once.
    const all = [...(room?.state?.events ?? []), ...(room?.timeline.events ?? [])];
    expect(keys(all.filter((event) => event.state_key !== undefined))).toEqual(
      expect.arrayContaining([
        'm.room.create|',
        `m.room.member|${alice.userId}`,
        `m.room.member|${bob.userId}`,
        'm.room.name|',
      ]),
    );
    expect(first.account_data?.events.map((event) => event.type)).toContain('m.push_rules');

    const quiet = await sync(bob, { since: first.next_batch });
    expect(quiet).toEqual(nothing);

    await send(alice, roomId, 'again');
    const news = await sync(bob, { since: quiet.next_batch });
    expect(Object.keys(news.rooms?.join ?? {})).toEqual([roomId]);
    expect(bodies(news.rooms?.join?.[roomId])).toEqual(['again']);
    expect(news.rooms?.join?.[roomId]?.timeline.limited).toBe(false);
    expect(news.rooms?.join?.[roomId]?.state?.events).toEqual([]);
    expect(await sync(bob, { since: news.next_batch })).toEqual(nothing);
    // An old token still gives what came after it.
    expect(bodies((await sync(bob, { since: first.next_batch })).rooms?.join?.[roomId])).toEqual(['again']);
  });

  it('tells of many rooms in every section, each once, first and whenever all is asked for', async () => {
    const many = await homeserver.registerUser('many');
    const mine: string[] = [];
    for (let n = 0; n < 35; n++) {
      mine.push(await createRoom(many, { name: `Room ${n}` }));
      await send(many, mine.at(-1)!, `in ${n}`);
    }
    const left = mine.splice(20, 2);
    for (const roomId of left) expect((await many.request('POST', `/rooms/${roomId}/leave`, {})).status).toBe(200);
    const invites = [
      await createRoom(alice, { invite: [many.userId] }),
      await createRoom(bob, { invite: [many.userId] }),
    ];
    const filter = { room: { include_leave: true, state: { lazy_load_members: true } } };
    const first = await sync(many, { filter });
    for (const all of [first, await sync(many, { filter, since: first.next_batch, full_state: 'true' })]) {
      expect(Object.keys(all.rooms?.join ?? {}).sort()).toEqual(mine.toSorted());
      for (const roomId of mine)
        expect(all.rooms?.join?.[roomId]?.summary).toMatchObject({ 'm.joined_member_count': 1 });
    }
    expect(Object.keys(first.rooms?.invite ?? {}).sort()).toEqual(invites.toSorted());
    expect(Object.keys(first.rooms?.leave ?? {}).sort()).toEqual(left.toSorted());
    expect(mine.map((roomId) => bodies(first.rooms?.join?.[roomId])[0])).toEqual(
      Array.from({ length: 35 }, (_, n) => `in ${n}`).toSpliced(20, 2),
    );
    expect(await sync(many, { filter, since: first.next_batch })).toEqual(nothing);
  });

  it('waits for news and comes at once when there are some', async () => {
    const roomId = await shared();
    const { next_batch: since } = await sync(bob);
    const startedAt = performance.now();
    const waiting = sync(bob, { since, timeout: '20000' });
    await new Promise((resolve) => setTimeout(resolve, 150));
    await send(alice, roomId, 'wake up');
    expect(bodies((await waiting).rooms?.join?.[roomId])).toEqual(['wake up']);
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    const { next_batch: later } = await sync(bob);
    expect(await sync(bob, { since: later, timeout: '200' })).toEqual(nothing);
  });

  it('says where a gap is, and pagination fills it', async () => {
    const roomId = await shared();
    const { next_batch: since } = await sync(bob);
    const sent: string[] = [];
    for (let n = 0; n < 12; n++) sent.push(await send(alice, roomId, `line ${n}`));
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.topic/`, { topic: 'the gap' });
    for (let n = 12; n < 15; n++) sent.push(await send(alice, roomId, `line ${n}`));
    const filter = { room: { timeline: { limit: 3 } } };
    const room = (await sync(bob, { since, filter })).rooms?.join?.[roomId];
    expect(bodies(room)).toEqual(['line 12', 'line 13', 'line 14']);
    expect(room?.timeline.limited).toBe(true);
    expect(keys(room?.state?.events)).toEqual(['m.room.topic|']);
    const before = await bob.request<{ chunk: WireEvent[] }>(
      'GET',
      `/rooms/${roomId}/messages?dir=b&limit=20&from=${room?.timeline.prev_batch}&to=${since}`,
    );
    const seen = [...before.body.chunk.toReversed(), ...(room?.timeline.events ?? [])].map((event) => event.event_id);
    expect(seen.filter((id) => sent.includes(id))).toEqual(sent);
    expect(new Set(seen).size).toBe(seen.length);
  });

  it('points behind the last event where none was asked for', async () => {
    const roomId = await shared();
    const last = await send(alice, roomId, 'the last line');
    const room = (await sync(bob, { filter: { room: { timeline: { limit: 0 } } } })).rooms?.join?.[roomId];
    expect(room?.timeline.events).toEqual([]);
    const before = await bob.request<{ chunk: WireEvent[] }>(
      'GET',
      `/rooms/${roomId}/messages?dir=b&limit=1&from=${room?.timeline.prev_batch}`,
    );
    expect(before.body.chunk.map((event) => event.event_id)).toEqual([last]);
  });

  it('tells of invites with what can be known before, of joins with everything, of leaving with the end', async () => {
    const { next_batch: before } = await sync(bob);
    const roomId = await createRoom(alice, { name: 'Visitors', invite: [bob.userId] });
    const invited = await sync(bob, { since: before });
    const invite = invited.rooms?.invite?.[roomId]?.invite_state.events;
    expect(keys(invite)).toEqual(
      expect.arrayContaining(['m.room.name|', `m.room.member|${bob.userId}`, 'm.room.create|']),
    );
    expect(invited.rooms?.join?.[roomId]).toBeUndefined();

    await join(bob, roomId);
    const joined = await sync(bob, { since: invited.next_batch });
    const room = joined.rooms?.join?.[roomId];
    expect(joined.rooms?.invite?.[roomId]).toBeUndefined();
    expect(keys([...(room?.state?.events ?? []), ...(room?.timeline.events ?? [])])).toEqual(
      expect.arrayContaining(['m.room.create|', 'm.room.power_levels|', `m.room.member|${alice.userId}`]),
    );
    expect(room?.summary).toMatchObject({ 'm.joined_member_count': 2, 'm.invited_member_count': 0 });

    await send(alice, roomId, 'before the end');
    expect((await alice.request('POST', `/rooms/${roomId}/kick`, { user_id: bob.userId, reason: 'done' })).status).toBe(
      200,
    );
    await send(alice, roomId, 'after the end');
    const left = await sync(bob, { since: joined.next_batch });
    expect(left.rooms?.join?.[roomId]).toBeUndefined();
    expect(bodies(left.rooms?.leave?.[roomId])).toEqual(['before the end']);
    expect(left.rooms?.leave?.[roomId]?.timeline.events.at(-1)).toMatchObject({
      type: 'm.room.member',
      content: { membership: 'leave' },
    });
    expect((await sync(bob)).rooms?.leave?.[roomId]).toBeUndefined();
    const again = await sync(bob, { filter: { room: { include_leave: true } } });
    expect(bodies(again.rooms?.leave?.[roomId])).toEqual(['before the end']);
    expect((await bob.request('POST', `/rooms/${roomId}/forget`, {})).status).toBe(200);
    const forgotten = await sync(bob, { filter: { room: { include_leave: true } } });
    expect(forgotten.rooms?.leave?.[roomId]).toBeUndefined();
  });

  it('tells that a room is gone, also when another device has forgotten it at once', async () => {
    const roomId = await shared({});
    const { next_batch: since } = await sync(bob);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    await bob.request('POST', `/rooms/${roomId}/forget`, {});
    expect(Object.keys((await sync(bob, { since })).rooms?.leave ?? {})).toEqual([roomId]);
    expect((await sync(bob)).rooms?.leave?.[roomId]).toBeUndefined();
    const again = await alice.request('POST', '/createRoom', { invite: [bob.userId] });
    const inviteId = String(again.body['room_id']);
    const { next_batch: invited } = await sync(bob);
    await bob.request('POST', `/rooms/${inviteId}/leave`, {});
    await bob.request('POST', `/rooms/${inviteId}/forget`, {});
    expect(Object.keys((await sync(bob, { since: invited })).rooms?.leave ?? {})).toEqual([inviteId]);
  });

  it('says that there is a gap where somebody left and came back between two syncs', async () => {
    const roomId = await shared({ preset: 'public_chat' });
    const { next_batch: since } = await sync(bob);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    const room = (await sync(bob, { since, filter: '{"room":{"timeline":{"limit":50}}}' })).rooms?.join?.[roomId];
    expect(room?.timeline.limited).toBe(true);
  });

  it('drops invites of people who are ignored', async () => {
    const carol = await homeserver.registerUser('carol');
    await carol.request('PUT', `/user/${carol.userId}/account_data/m.ignored_user_list`, {
      ignored_users: { [alice.userId]: {} },
    });
    const { next_batch: since } = await sync(carol);
    const roomId = await createRoom(alice, { invite: [carol.userId] });
    expect((await sync(carol, { since })).rooms?.invite?.[roomId]).toBeUndefined();
    expect((await sync(carol)).rooms?.invite?.[roomId]).toBeUndefined();
  });

  it('loads members lazily, and each once per device', async () => {
    // It has a name, so that nobody need be known to call it by.
    const roomId = await shared({ name: 'A room' });
    const dave = await homeserver.registerUser('dave');
    await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: dave.userId });
    await join(dave, roomId);
    await send(alice, roomId, 'one');
    const filter = { room: { state: { lazy_load_members: true }, timeline: { limit: 1 } } };
    const first = await sync(bob, { filter });
    const members = (room: Room | undefined): string[] =>
      keys(room?.state?.events).filter((key) => key.startsWith('m.room.member|'));
    expect(members(first.rooms?.join?.[roomId])).toEqual(
      [`m.room.member|${alice.userId}`, `m.room.member|${bob.userId}`].sort(),
    );
    await send(alice, roomId, 'two');
    const second = await sync(bob, { filter, since: first.next_batch });
    expect(members(second.rooms?.join?.[roomId])).toEqual([]);
    await send(dave, roomId, 'three');
    // An answer that gets lost brings nothing.
    await sync(bob, { filter, since: second.next_batch });
    const third = await sync(bob, { filter, since: second.next_batch });
    expect(members(third.rooms?.join?.[roomId])).toEqual([`m.room.member|${dave.userId}`]);
    const redundant = {
      room: { state: { lazy_load_members: true, include_redundant_members: true }, timeline: { limit: 1 } },
    };
    await send(dave, roomId, 'four');
    const fourth = await sync(bob, { filter: redundant, since: third.next_batch });
    expect(members(fourth.rooms?.join?.[roomId])).toEqual([`m.room.member|${dave.userId}`]);
  });

  it('gives the state after the timeline to those who ask for it', async () => {
    const roomId = await shared({ name: 'old name' });
    const { next_batch: since } = await sync(bob);
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.name/`, { name: 'new name' });
    const room = (await sync(bob, { since, use_state_after: 'true' })).rooms?.join?.[roomId];
    expect(room?.state).toBeUndefined();
    expect(room?.state_after?.events.map((event) => event.content['name'])).toEqual(['new name']);
    const whole = (await sync(bob, { use_state_after: 'true' })).rooms?.join?.[roomId];
    expect(whole?.state_after?.events.find((event) => event.type === 'm.room.name')?.content).toEqual({
      name: 'new name',
    });
    const former = (await sync(bob, { since, 'org.matrix.msc4222.use_state_after': 'true' })).rooms?.join?.[roomId];
    expect(former?.state).toBeUndefined();
    expect(former?.state_after).toBeUndefined();
    expect(former?.['org.matrix.msc4222.state_after']?.events.map((event) => event.content['name'])).toEqual([
      'new name',
    ]);
    const plain = (await sync(bob)).rooms?.join?.[roomId];
    const names = [...(plain?.state?.events ?? []), ...(plain?.timeline.events ?? [])].filter(
      (event) => event.type === 'm.room.name',
    );
    expect(names.at(-1)?.content).toEqual({ name: 'new name' });
  });

  it('applies filters, stored or in line', async () => {
    const one = await shared();
    const two = await shared();
    await send(alice, one, 'text one');
    await send(alice, two, 'text two');
    await send(alice, two, 'other', 'org.example.other');
    const rooms = async (filter: object): Promise<Record<string, Room>> =>
      (await sync(bob, { filter })).rooms?.join ?? {};
    expect(Object.keys(await rooms({ room: { rooms: [one] } }))).toEqual([one]);
    expect(Object.keys(await rooms({ room: { not_rooms: [one] } }))).not.toContain(one);
    const typed = (await rooms({ room: { timeline: { types: ['org.example.*'] } } }))[two];
    expect(typed?.timeline.events.map((event) => event.type)).toEqual(['org.example.other']);
    const senders = (await rooms({ room: { timeline: { not_senders: [alice.userId] } } }))[two];
    expect(bodies(senders)).toEqual([]);
    const stateless = (await rooms({ room: { state: { types: [] } } }))[two];
    expect(stateless?.state?.events).toEqual([]);
    const { body } = await bob.request('POST', `/user/${bob.userId}/filter`, { room: { rooms: [two] } });
    expect(Object.keys((await sync(bob, { filter: String(body['filter_id']) })).rooms?.join ?? {})).toEqual([two]);
    const bad = await bob.request('GET', `/sync?filter=${encodeURIComponent('{"room":5}')}`);
    expect(bad).toMatchObject({ status: 400, body: { errcode: 'M_BAD_JSON' } });
    expect(await bob.request('GET', '/sync?filter=999')).toMatchObject({ status: 404 });
    expect(await bob.request('GET', '/sync?since=nonsense')).toMatchObject({
      status: 400,
      body: { errcode: 'M_INVALID_PARAM' },
    });
  });

  it('tells of account data, and shows transaction ids to the sending device only', async () => {
    const roomId = await shared();
    const { next_batch: since } = await sync(alice);
    await alice.request('PUT', `/user/${alice.userId}/account_data/org.example`, { a: 1 });
    await alice.request('PUT', `/user/${alice.userId}/rooms/${roomId}/account_data/org.example.room`, { b: 2 });
    await alice.request('PUT', `/user/${alice.userId}/rooms/${roomId}/tags/m.favourite`, { order: 0.5 });
    const news = await sync(alice, { since });
    expect(news.account_data?.events).toEqual([{ type: 'org.example', content: { a: 1 } }]);
    expect(news.rooms?.join?.[roomId]?.account_data.events).toEqual(
      expect.arrayContaining([
        { type: 'org.example.room', content: { b: 2 } },
        { type: 'm.tag', content: { tags: { 'm.favourite': { order: 0.5 } } } },
      ]),
    );
    await send(alice, roomId, 'mine');
    const own = (await sync(alice, { since: news.next_batch })).rooms?.join?.[roomId]?.timeline.events[0];
    expect(own?.unsigned).toHaveProperty('transaction_id');
    const others = (await sync(bob)).rooms?.join?.[roomId]?.timeline.events.at(-1);
    expect(others?.content['body']).toBe('mine');
    expect(others?.unsigned).not.toHaveProperty('transaction_id');
  });

  it('tells of much account data as of little', async () => {
    const carol = await homeserver.registerUser('carol_keeps_much');
    const rooms = [await createRoom(carol), await createRoom(carol)];
    const { next_batch: since } = await sync(carol);
    const put = async (path: string, content: object): Promise<void> => {
      const { status } = await carol.request('PUT', `/user/${carol.userId}/${path}`, content);
      expect(status).toBe(200);
    };
    const content = (n: number): object => ({ n, text: 'ü'.repeat(70_000) });
    for (let n = 0; n < 4; n++) {
      await put(`account_data/org.large.${n}`, content(n));
      await put(`rooms/${rooms[n % 2]}/account_data/org.large.${n}`, content(n));
    }
    await put('account_data/org.small', { small: true });
    const large = (...which: number[]): object[] => which.map((n) => ({ type: `org.large.${n}`, content: content(n) }));
    const small = { type: 'org.small', content: { small: true } };
    const own = (answer: Sync): object[] =>
      (answer.account_data?.events ?? []).filter(({ type }) => type !== 'm.push_rules');
    const ofRooms = (answer: Sync): unknown[] =>
      rooms.map((roomId) => answer.rooms?.join?.[roomId]?.account_data.events);
    const queries: Record<string, string>[] = [{}, { since }, { since, full_state: 'true' }];
    for (const query of queries) {
      const answer = await sync(carol, query);
      expect(own(answer)).toEqual([...large(0, 1, 2, 3), small]);
      expect(ofRooms(answer)).toEqual([large(0, 2), large(1, 3)]);
    }
    const only = { types: ['org.large.0', 'org.large.1', '*.small'] };
    const some = await sync(carol, { since, filter: { account_data: only, room: { account_data: only } } });
    expect([own(some), ...ofRooms(some)]).toEqual([[...large(0, 1), small], large(0), large(1)]);
    const none = { not_types: ['*'] };
    expect(await sync(carol, { since, filter: { account_data: none, room: { account_data: none } } })).toEqual(nothing);
    const withUrl = await sync(carol, { since, filter: { account_data: { contains_url: true } } });
    expect(own(withUrl)).toEqual([]);
    const sliding = await carol.request(
      'POST',
      '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0',
      {
        lists: { all: { ranges: [[0, 5]], timeline_limit: 0, required_state: [] } },
        extensions: { account_data: { enabled: true } },
      },
    );
    const { account_data: extension } = sliding.body['extensions'] as {
      account_data: { global: { type: string }[]; rooms: Record<string, unknown> };
    };
    expect(extension.global.filter(({ type }) => type !== 'm.push_rules')).toEqual([...large(0, 1, 2, 3), small]);
    expect(rooms.map((roomId) => extension.rooms[roomId])).toEqual([large(0, 2), large(1, 3)]);
  });

  it('filters account data of rooms like that of the account', async () => {
    const carol = await homeserver.registerUser('carol_keeps_urls');
    const { next_batch: since } = await sync(carol);
    const rooms = [await createRoom(carol), await createRoom(carol)];
    const contents = { 'org.plain': { n: 1 }, 'org.url': { url: 'mxc://x/y' } };
    for (const [type, content] of Object.entries(contents))
      for (const where of ['', ...rooms.map((roomId) => `/rooms/${roomId}`)])
        await carol.request('PUT', `/user/${carol.userId}${where}/account_data/${type}`, content);
    const { next_batch: later } = await sync(carol);
    await carol.request('PUT', `/user/${carol.userId}/rooms/${rooms[0]}/account_data/org.plain`, { n: 2 });
    const told = async (wanted: object, query: Record<string, string> = {}): Promise<unknown[]> => {
      const answer = await sync(carol, { ...query, filter: { account_data: wanted, room: { account_data: wanted } } });
      return [answer, ...rooms.map((roomId) => answer.rooms?.join?.[roomId])].map((part) =>
        part?.account_data?.events.map(({ type }) => type).filter((type) => type !== 'm.push_rules'),
      );
    };
    const [both, one] = [['org.plain', 'org.url'], ['org.url']];
    const queries: Record<string, string>[] = [{}, { since }, { since: later, full_state: 'true' }];
    for (const query of queries) {
      for (const wanted of [{ senders: [alice.userId] }, { not_senders: [carol.userId] }, { rel_types: ['m.thread'] }])
        expect(await told(wanted, query)).toEqual([undefined, [], []]);
      expect(await told({ contains_url: true }, query)).toEqual([one, one, one]);
      expect(await told({ senders: [carol.userId] }, query)).toEqual([both, both.toReversed(), both]);
    }
    expect(await told({ contains_url: true }, { since: later })).toEqual([undefined, undefined, undefined]);
    expect(await told({ contains_url: false }, { since: later })).toEqual([undefined, ['org.plain'], undefined]);
  });

  it('hides what was said before a join where history says so', async () => {
    const roomId = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [{ type: 'm.room.history_visibility', state_key: '', content: { history_visibility: 'joined' } }],
    });
    await send(alice, roomId, 'secret');
    await join(bob, roomId);
    await send(alice, roomId, 'open');
    expect(bodies((await sync(bob)).rooms?.join?.[roomId])).toEqual(['open']);
  });

  it('goes on with old tokens after a restart', async () => {
    const roomId = await shared();
    const { next_batch: since } = await sync(bob);
    await send(alice, roomId, 'before the restart');
    await homeserver.restart();
    await send(alice, roomId, 'after the restart');
    const news = await sync(bob, { since });
    expect(bodies(news.rooms?.join?.[roomId])).toEqual(['before the restart', 'after the restart']);
    expect(await sync(bob, { since: news.next_batch })).toEqual(nothing);
  });
});
