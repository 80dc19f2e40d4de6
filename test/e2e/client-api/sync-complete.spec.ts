import { RoomHooks } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import type { TestHomeserver, TestUser } from '@rookery/testing';
import { nobodyHelps, TwoServers, yan, zoe } from '../federation/two-servers.js';
import {
  act,
  createRoom,
  databases,
  join,
  leave,
  ok,
  say,
  setState,
  startHomeserver,
  type WireEvent,
} from '../rooms/rooms-client.js';

interface Room {
  readonly state?: { readonly events: WireEvent[] };
  readonly timeline: { readonly events: WireEvent[]; readonly limited: boolean; readonly prev_batch: string };
  readonly summary?: Readonly<Record<string, unknown>>;
  readonly ephemeral?: { readonly events: { readonly content: object }[] };
  readonly account_data?: { readonly events: { type: string; content: object }[] };
}

type ReceiptsOf = Record<string, Record<string, { thread_id?: string }>>;

interface Sync {
  readonly next_batch: string;
  readonly rooms?: { readonly join?: Record<string, Room>; readonly leave?: Record<string, Room> };
  readonly device_lists?: { readonly changed?: string[]; readonly left?: string[] };
  readonly account_data?: { readonly events: { type: string; content: object }[] };
  readonly to_device?: { readonly events: { content: { n: number } }[] };
}

interface Sliding {
  readonly pos: string;
  readonly lists: Record<string, { readonly count: number }>;
  readonly rooms: Record<string, { required_state?: WireEvent[]; timeline?: WireEvent[]; limited?: boolean }>;
}

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
const lazy = { room: { state: { lazy_load_members: true }, timeline: { limit: 5 } } };

const sync = (user: TestUser, options: { since?: string; filter?: object } = {}): Promise<Sync> => {
  const since = options.since === undefined ? '' : `&since=${options.since}`;
  const filter = encodeURIComponent(JSON.stringify(options.filter ?? {}));
  return ok(user, 'GET', `/sync?timeout=0&filter=${filter}${since}`);
};
/** Everything that a room's answer tells of state, the timeline's included. */
const told = (room: Room | undefined): string[] =>
  [...(room?.state?.events ?? []), ...(room?.timeline.events ?? [])]
    .filter((event) => event.state_key !== undefined)
    .map((event) => `${event.type}|${event.state_key}`);
const members = (room: Room | undefined): Record<string, unknown> =>
  Object.fromEntries(
    (room?.state?.events ?? [])
      .filter((event) => event.type === 'm.room.member')
      .map((event) => [event.state_key, event.content['membership']]),
  );

describe.each(databases)('a sync leaves nothing out (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, {});
    [alice, bob, carol] = (await Promise.all(
      ['alice', 'bob', 'carol'].map((name) => homeserver.registerUser(name)),
    )) as [TestUser, TestUser, TestUser];
  });
  afterAll(() => homeserver?.stop());

  it.each(['joined', 'invited'])('gives current state where history is for those who are %s', async (visibility) => {
    const roomId = await createRoom(alice, {
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: visibility } }],
    });
    await setState(alice, roomId, 'm.room.name', { name: 'A name' });
    await setState(alice, roomId, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' });
    await act(alice, 'invite', roomId, carol);
    await join(carol, roomId);
    const { next_batch: since } = await sync(bob);
    await act(alice, 'invite', roomId, bob);
    await join(bob, roomId);
    const state = await ok<WireEvent[]>(bob, 'GET', `/rooms/${roomId}/state`);
    const wanted = state.map((event) => `${event.type}|${event.state_key}`).sort();
    for (const answer of [await sync(bob), await sync(bob, { since })])
      expect([...new Set(told(answer.rooms?.join?.[roomId]))].sort()).toEqual(wanted);
  });

  it('begins a timeline behind what hidden changes have made untrue', async () => {
    const roomId = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    await join(bob, roomId);
    await setState(alice, roomId, 'm.room.name', { name: 'seen' });
    await leave(bob, roomId);
    const hidden = await setState(alice, roomId, 'm.room.name', { name: 'not seen' });
    await join(bob, roomId);
    const room = (await sync(bob)).rooms?.join?.[roomId];
    const names = [...(room?.state?.events ?? []), ...(room?.timeline.events ?? [])].filter(
      (event) => event.type === 'm.room.name',
    );
    expect(names.map((event) => event.event_id)).toEqual([hidden]);
    expect(room?.timeline.limited).toBe(true);
  });

  it('tells who came and went in a gap, members loaded lazily or not', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', name: 'Lazy' });
    await join(bob, roomId);
    await join(carol, roomId);
    const dave = await homeserver.registerUser(`dave-${database}`);
    const list = { ranges: [[0, 50]], timeline_limit: 5, required_state: [['m.room.member', '$LAZY']] };
    const slide = (pos?: string): Promise<Sliding> =>
      ok(bob, 'POST', `${slidingPath}?timeout=0${pos === undefined ? '' : `&pos=${pos}`}`, { lists: { all: list } });
    await say(carol, roomId, 'Here I am');
    const { next_batch: since } = await sync(bob, { filter: lazy });
    const { pos } = await slide();
    await leave(carol, roomId);
    await join(dave, roomId);
    for (let i = 0; i < 8; i++) await say(alice, roomId, `message ${i}`);
    const answer = await sync(bob, { since, filter: lazy });
    const room = answer.rooms?.join?.[roomId];
    expect(room?.timeline.limited).toBe(true);
    expect(members(room)).toMatchObject({ [carol.userId]: 'leave', [dave.userId]: 'join' });
    expect(answer.device_lists?.changed).toContain(dave.userId);
    const required = (await slide(pos)).rooms[roomId]?.required_state ?? [];
    expect(required.map((event) => [event.state_key, event.content['membership']])).toEqual(
      expect.arrayContaining([
        [carol.userId, 'leave'],
        [dave.userId, 'join'],
      ]),
    );
  });

  it.each(['', '&full_state=true'])('tells what was said before a leave that is stored already (%s)', async (more) => {
    const [kate, roomId, other] = [
      await homeserver.registerUser(`kate-${database}${more.length}`),
      await createRoom(alice, { preset: 'public_chat' }),
      await createRoom(alice),
    ];
    await join(kate, roomId);
    const { next_batch: since } = await sync(kate);
    await say(alice, roomId, 'before the leave');
    // No reader gets further than to where this is being stored.
    const held = Promise.withResolvers<void>();
    const isHeld = Promise.withResolvers<void>();
    const hasLeft = Promise.withResolvers<void>();
    homeserver.server.service(RoomHooks).subscribe({
      prepare: async (batch) => {
        if (batch.roomId !== other) return;
        isHeld.resolve();
        await held.promise;
      },
      afterCommit: ({ moves }) => {
        if (moves.some(({ userId, membership }) => userId === kate.userId && membership === 'leave')) hasLeft.resolve();
      },
    });
    const sent = [say(alice, other, 'held')];
    await isHeld.promise;
    const left = leave(kate, roomId);
    await hasLeft.promise;
    const first = await ok<Sync>(kate, 'GET', `/sync?timeout=0&since=${since}${more}`);
    held.resolve();
    await Promise.all([...sent, left]);
    const bodies = (first.rooms?.join?.[roomId]?.timeline.events ?? []).map((event) => event.content['body']);
    expect(bodies).toEqual(['before the leave']);
    const second = await sync(kate, { since: first.next_batch });
    expect(Object.keys(second.rooms?.leave ?? {})).toEqual([roomId]);
  });

  it('names in device_lists who left in a gap, and who was invited', async () => {
    const [erin, frank] = [
      await homeserver.registerUser(`erin-${database}`),
      await homeserver.registerUser(`frank-${database}`),
    ];
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    await join(erin, roomId);
    const { next_batch: since } = await sync(bob, { filter: lazy });
    await leave(erin, roomId);
    await act(alice, 'invite', roomId, frank);
    for (let i = 0; i < 8; i++) await say(alice, roomId, `message ${i}`);
    const { next_batch: invited, device_lists: lists } = await sync(bob, { since, filter: lazy });
    expect(lists?.left).toEqual([erin.userId]);
    expect(lists?.changed).toContain(frank.userId);
    await leave(frank, roomId);
    expect((await sync(bob, { since: invited })).device_lists?.left).toEqual([frank.userId]);
  });

  it('names in device_lists who is invited and has another device: what is said meanwhile is for that, too', async () => {
    const gwen = await homeserver.registerUser(`gwen-${database}`);
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    await act(alice, 'invite', roomId, gwen);
    const { next_batch: since } = await sync(bob);
    await ok(gwen, 'POST', '/keys/upload', {
      device_keys: {
        ...{ user_id: gwen.userId, device_id: gwen.deviceId, algorithms: [], signatures: {} },
        keys: { [`ed25519:${gwen.deviceId}`]: 'a2V5' },
      },
    });
    const news = await sync(bob, { since });
    expect(news.device_lists?.changed).toEqual([gwen.userId]);
    const { changed } = await ok<{ changed: string[] }>(
      bob,
      'GET',
      `/keys/changes?from=${since}&to=${news.next_batch}`,
    );
    expect(changed).toEqual([gwen.userId]);
    await ok(gwen, 'PUT', `/devices/${gwen.deviceId}`, { display_name: 'Phone' });
    expect((await sync(bob, { since: news.next_batch })).device_lists?.changed).toEqual([gwen.userId]);
  });

  it('tells of a gap, also where all that follows is hidden', async () => {
    const [grace, henry] = [
      await homeserver.registerUser(`grace-${database}`),
      await homeserver.registerUser(`henry-${database}`),
    ];
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    for (const user of [grace, henry]) await join(user, roomId);
    await ok(henry, 'PUT', `/user/${henry.userId}/account_data/m.ignored_user_list`, {
      ignored_users: { [grace.userId]: {} },
    });
    const list = { ranges: [[0, 50]], timeline_limit: 1, required_state: [] };
    const slide = (query: string): Promise<Sliding> =>
      ok(henry, 'POST', `${slidingPath}?timeout=0${query}`, { lists: { all: list } });
    const { pos } = await slide('');
    const { next_batch: since } = await sync(henry);
    await say(alice, roomId, 'to be seen');
    // More than are looked at for one that can be seen.
    for (let i = 0; i < 8; i++) await say(grace, roomId, `not to be seen ${i}`);
    const { limited, timeline } = (await slide(`&pos=${pos}`)).rooms[roomId] ?? {};
    expect({ limited, timeline }).toEqual({ limited: true, timeline: [] });
    const room = (await sync(henry, { since, filter: { room: { timeline: { limit: 1 } } } })).rooms?.join?.[roomId];
    expect(room?.timeline).toMatchObject({ limited: true, events: [] });
  });

  it('brings both receipts of a user who has read the root of a thread there and in the main timeline', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const root = await say(alice, roomId, 'root');
    const { next_batch: since } = await sync(alice);
    for (const thread of ['main', root])
      await ok(bob, 'POST', `/rooms/${roomId}/receipt/m.read/${root}`, { thread_id: thread });
    for (const options of [{ since }, {}]) {
      const ephemeral = (await sync(alice, options)).rooms?.join?.[roomId]?.ephemeral?.events ?? [];
      const threads = ephemeral.map(
        ({ content }) => (content as Record<string, ReceiptsOf>)[root]?.['m.read']?.[bob.userId]?.thread_id,
      );
      expect(threads.toSorted()).toEqual([root, 'main'].toSorted());
    }
  });

  it('says where a timeline begins of which nothing is left', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    await join(carol, roomId);
    await setState(alice, roomId, 'm.room.power_levels', { users: { [bob.userId]: 100 } });
    const { next_batch: since } = await sync(carol);
    const said = await say(alice, roomId, 'to be seen');
    await setState(alice, roomId, 'm.room.topic', { topic: 'of Alice' });
    await setState(bob, roomId, 'm.room.topic', { topic: 'of Bob' });
    const timeline = { not_senders: [bob.userId] };
    const room = (await sync(carol, { since, filter: { room: { timeline } } })).rooms?.join?.[roomId];
    expect(room?.state?.events.map((event) => event.content)).toEqual([{ topic: 'of Bob' }]);
    expect(room?.timeline).toMatchObject({ limited: true, events: [] });
    const from = room?.timeline.prev_batch ?? '';
    const path = `/rooms/${roomId}/messages?dir=b&limit=2&from=${from}&filter=${JSON.stringify(timeline)}`;
    const { chunk } = await ok<{ chunk: WireEvent[] }>(carol, 'GET', path);
    expect(chunk.map((event) => event.event_id).at(-1)).toBe(said);
  });

  it('gives the members who speak at the end of a room that was left', async () => {
    const [ida, jack] = [
      await homeserver.registerUser(`ida-${database}`),
      await homeserver.registerUser(`jack-${database}`),
    ];
    const roomId = await createRoom(alice, { preset: 'public_chat', name: 'Left' });
    for (const user of [ida, jack]) await join(user, roomId);
    for (let i = 0; i < 6; i++) await say(jack, roomId, `message ${i}`);
    const { next_batch: since } = await sync(jack, { filter: lazy });
    await say(ida, roomId, 'The last word');
    await ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: jack.userId });
    const room = (await sync(jack, { since, filter: lazy })).rooms?.leave?.[roomId];
    expect(room?.timeline.events.map((event) => event.sender)).toEqual([ida.userId, alice.userId]);
    expect(members(room)).toEqual({ [ida.userId]: 'join', [alice.userId]: 'join' });
  });

  it('gives the member events of those by whom a room is called', async () => {
    const roomId = await createRoom(alice, { invite: [bob.userId, carol.userId] });
    await join(bob, roomId);
    const limited = { room: { state: { lazy_load_members: true }, timeline: { limit: 1 } } };
    const first = await sync(bob, { filter: limited });
    const room = first.rooms?.join?.[roomId];
    expect(room?.summary?.['m.heroes']).toEqual([alice.userId, carol.userId]);
    expect(members(room)).toMatchObject({ [alice.userId]: 'join', [carol.userId]: 'invite' });
    await say(alice, roomId, 'nothing new about members');
    const second = (await sync(bob, { since: first.next_batch, filter: limited })).rooms?.join?.[roomId];
    expect(second?.summary ?? {}).toEqual({});
    expect(members(second)).toEqual({});
  });

  it('sends a summary where it changed, and only there', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', name: 'Named' });
    await join(bob, roomId);
    let { next_batch: since } = await sync(bob);
    const summary = async (): Promise<unknown> => {
      const answer = await sync(bob, { since });
      since = answer.next_batch;
      return answer.rooms?.join?.[roomId]?.summary ?? {};
    };
    await setState(alice, roomId, 'm.room.member', { membership: 'join', displayname: 'Alice!' }, alice.userId);
    expect(await summary()).toEqual({});
    await setState(alice, roomId, 'm.room.name', { name: 'Another name' });
    expect(await summary()).toEqual({});
    await setState(alice, roomId, 'm.room.name', { name: '' });
    expect(await summary()).toMatchObject({ 'm.heroes': [alice.userId] });
    await join(carol, roomId);
    expect(await summary()).toMatchObject({ 'm.heroes': [alice.userId, carol.userId], 'm.joined_member_count': 3 });
  });

  it('says what the reader was to the room at each event', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await say(alice, roomId, 'before');
    await act(alice, 'invite', roomId, bob);
    await join(bob, roomId);
    const { next_batch: since } = await sync(bob);
    const told = (room: Room | undefined): unknown[] =>
      (room?.timeline.events ?? []).map((event) => [event.type, event.unsigned?.['membership']]);
    const initial = told((await sync(bob)).rooms?.join?.[roomId]);
    expect(initial).toContainEqual(['m.room.message', 'leave']);
    expect(initial.slice(-2)).toEqual([
      ['m.room.member', 'invite'],
      ['m.room.member', 'join'],
    ]);
    await leave(bob, roomId);
    expect(told((await sync(bob, { since })).rooms?.leave?.[roomId])).toEqual([['m.room.member', 'leave']]);
  });

  it('says how an invite or a knock ended, and nothing else of the room', async () => {
    const roomId = await createRoom(alice, {
      initial_state: [{ type: 'm.room.join_rules', content: { join_rule: 'knock' } }],
    });
    await act(alice, 'invite', roomId, bob);
    await ok(carol, 'POST', `/knock/${roomId}`, {});
    const [{ next_batch: invited }, { next_batch: knocked }] = await Promise.all([sync(bob), sync(carol)]);
    await setState(alice, roomId, 'm.room.name', { name: 'A secret' });
    await ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: bob.userId, reason: 'a mistake' });
    await ok(carol, 'POST', `/rooms/${roomId}/leave`, { reason: 'no answer' });
    const endings = async (user: TestUser, since: string | undefined): Promise<unknown> => {
      const filter = { room: { include_leave: true } };
      const room = (await sync(user, since === undefined ? { filter } : { since })).rooms?.leave?.[roomId];
      return [...(room?.state?.events ?? []), ...(room?.timeline.events ?? [])].map(({ sender, type, content }) => ({
        sender,
        type,
        reason: content['reason'],
      }));
    };
    for (const since of [invited, undefined])
      expect(await endings(bob, since)).toEqual([{ sender: alice.userId, type: 'm.room.member', reason: 'a mistake' }]);
    for (const since of [knocked, undefined])
      expect(await endings(carol, since)).toEqual([
        { sender: carol.userId, type: 'm.room.member', reason: 'no answer' },
      ]);
    const list = { ranges: [[0, 50]], timeline_limit: 5, required_state: [['*', '*']] };
    const sliding = await ok<Sliding>(bob, 'POST', `${slidingPath}?timeout=0`, { lists: { all: list } });
    const types = [...(sliding.rooms[roomId]?.required_state ?? []), ...(sliding.rooms[roomId]?.timeline ?? [])];
    expect(new Set(types.map((event) => event.state_key))).toEqual(new Set([bob.userId]));
  });

  it('tells those who begin anew of account data that is empty', async () => {
    const type = `org.example.${database}`;
    const roomId = await createRoom(bob);
    const paths = [
      `/user/${bob.userId}/account_data/${type}`,
      `/user/${bob.userId}/rooms/${roomId}/account_data/${type}`,
    ];
    for (const path of paths) await ok(bob, 'PUT', path, {});
    for (const path of paths) expect(await ok(bob, 'GET', path)).toEqual({});
    const empty = { type, content: {} };
    const whole = await sync(bob);
    expect(whole.account_data?.events).toContainEqual(empty);
    expect(whole.rooms?.join?.[roomId]?.account_data?.events).toEqual([empty]);
    const { account_data: first } = await ok<{ account_data: object[] }>(bob, 'GET', `/rooms/${roomId}/initialSync`);
    expect(first).toEqual([empty]);
  });

  it('takes a token from the future as one of now, and deletes no message because of it', async () => {
    const send = (n: number): Promise<unknown> =>
      ok(alice, 'PUT', `/sendToDevice/org.example.note/${database}${n}`, {
        messages: { [carol.userId]: { [carol.deviceId]: { n } } },
      });
    const { next_batch: before } = await sync(carol);
    await send(1);
    const future = `s${Array.from({ length: 10 }, () => '900000000').join('_')}`;
    const first = await sync(carol, { since: future });
    const positions = (token: string): number[] => token.slice(1).split('_').map(Number);
    expect(Math.max(...positions(first.next_batch))).toBeLessThan(900_000_000);
    const messages = ({ to_device: toDevice }: Sync): number[] =>
      (toDevice?.events ?? []).map((each) => each.content.n);
    expect(messages(first)).toEqual([1]);
    // Also where the position of to-device messages alone could be true.
    const mixed = `s900000000_${positions(first.next_batch).slice(1).join('_')}`;
    expect(messages(await sync(carol, { since: mixed }))).toEqual([1]);
    expect(messages(await sync(carol, { since: before }))).toEqual([1]);
    expect(messages(await sync(carol, { since: first.next_batch }))).toEqual([]);
    await send(2);
    const slide = (since: string) =>
      ok<{ extensions: { to_device: { events: { content: { n: number } }[] } } }>(
        carol,
        'POST',
        `${slidingPath}?timeout=0`,
        { lists: {}, extensions: { to_device: { enabled: true, since } } },
      );
    expect((await slide('900000000')).extensions.to_device.events.map((each) => each.content.n)).toEqual([2]);
    expect(messages(await sync(carol, { since: first.next_batch }))).toEqual([2]);
    const roomId = await createRoom(carol);
    await say(carol, roomId, 'still heard');
    expect((await sync(carol, { since: first.next_batch })).rooms?.join?.[roomId]).toBeDefined();
    for (const path of [`/events?from=${future}&timeout=0`, `/events?from=${future}&timeout=0&room_id=${roomId}`]) {
      const { end } = await ok<{ end: string }>(carol, 'GET', path);
      expect(Math.max(...positions(end))).toBeLessThan(900_000_000);
    }
    expect((await carol.request('POST', `${slidingPath}?pos=1/${future}`, { lists: {} })).status).toBe(400);
  });

  it('lists a room by the name that it has, also where state resolution gave it another without an event', async () => {
    const servers = await TwoServers.start(database);
    try {
      const { alice: owner, inside } = servers;
      inside.useMissingEvents(nobodyHelps);
      const users = { [owner.userId]: 100, [yan]: 100, [zoe]: 50 };
      const { roomId, server, state, head } = await servers.shared('11', {
        name: 'of Alice',
        power_level_content_override: { users },
      });
      const named = async (name: string): Promise<number | undefined> => {
        const list = { timeline_limit: 1, required_state: [], filters: { room_name_like: name } };
        const { lists } = await ok<Sliding>(owner, 'POST', `${slidingPath}?timeout=0`, { lists: { list } });
        return lists['list']?.count;
      };
      const name = { type: 'm.room.name', stateKey: '', sender: zoe, content: { name: 'of Zoe' } };
      expect(await servers.receive(server.make(name, [head], state))).toBe('accepted');
      expect([await named('alice'), await named('zoe')]).toEqual([0, 1]);
      // Of a server that had not heard of the name: zoe may not give rooms names any more.
      const content = { ...state.get(stateKeyOf('m.room.power_levels', ''))?.content, users: { ...users, [zoe]: 0 } };
      const levels = { type: 'm.room.power_levels', stateKey: '', sender: yan, content };
      expect(await servers.receive(server.make(levels, [head], state))).toBe('accepted');
      expect(await ok(owner, 'GET', `/rooms/${roomId}/state/m.room.name`)).toEqual({ name: 'of Alice' });
      expect([await named('alice'), await named('zoe')]).toEqual([1, 0]);
    } finally {
      await servers.homeserver.stop();
    }
  });

  it('tells of what is missing, also where nothing behind it passes the filter', async () => {
    const servers = await TwoServers.start(database);
    try {
      const { alice: owner, inside } = servers;
      const { roomId, server, state, head } = await servers.shared('11');
      const stateBefore = { state: [...state.values()], authChain: [...state.values()] };
      inside.useMissingEvents({ ...nobodyHelps, stateBefore: () => Promise.resolve(stateBefore) });
      const { next_batch: since } = await sync(owner);
      const before = await say(owner, roomId, 'before the gap');
      const missing = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'missing' } }, [head], state);
      const last = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'last' } }, [missing], state);
      expect(await servers.receive(last)).toBe('accepted');
      const timelineOf = async (timeline: object): Promise<Room['timeline'] | undefined> =>
        (await sync(owner, { since, filter: { room: { timeline } } })).rooms?.join?.[roomId]?.timeline;
      expect((await timelineOf({}))?.events.map((event) => event.event_id)).toEqual([last.eventId]);
      for (const filter of [{ senders: [owner.userId] }, { types: ['org.example'] }]) {
        const shown = await timelineOf(filter);
        expect(shown).toMatchObject({ limited: true, events: [] });
        const path = `/rooms/${roomId}/messages?dir=b&limit=50&from=${shown?.prev_batch}`;
        const { chunk } = await ok<{ chunk: WireEvent[] }>(owner, 'GET', path);
        expect(chunk.map((event) => event.event_id)).toContain(before);
        expect(chunk.map((event) => event.event_id)).not.toContain(last.eventId);
      }
    } finally {
      await servers.homeserver.stop();
    }
  });

  it('shows a member what a server sent that had not heard of the member', async () => {
    const servers = await TwoServers.start(database);
    try {
      const { alice: owner, homeserver: here, inside } = servers;
      inside.useMissingEvents(nobodyHelps);
      const { roomId, server, state, head } = await servers.shared('11');
      const reader = await here.registerUser('reader');
      await join(reader, roomId);
      const { next_batch: since } = await sync(reader);
      const fork = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'from afar' } }, [head], state);
      expect(await servers.receive(fork)).toBe('accepted');
      const last = await say(owner, roomId, 'after it');
      const ids = (events: readonly WireEvent[] = []): string[] => events.map((event) => event.event_id);
      expect(ids((await sync(reader, { since })).rooms?.join?.[roomId]?.timeline.events)).toEqual([fork.eventId, last]);
      const page = await ok<{ chunk: WireEvent[] }>(reader, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
      expect(ids(page.chunk)).toContain(fork.eventId);
      expect((await reader.request('GET', `/rooms/${roomId}/event/${fork.eventId}`)).status).toBe(200);
      // Whoever has left is shown what came until then.
      await leave(reader, roomId);
      const late = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'late' } }, [fork], state);
      expect(await servers.receive(late)).toBe('accepted');
      expect((await reader.request('GET', `/rooms/${roomId}/event/${fork.eventId}`)).status).toBe(200);
      expect((await reader.request('GET', `/rooms/${roomId}/event/${late.eventId}`)).status).toBe(404);
    } finally {
      await servers.homeserver.stop();
    }
  });
});
