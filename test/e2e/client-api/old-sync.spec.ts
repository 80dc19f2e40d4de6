import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

interface WireEvent {
  readonly event_id: string;
  readonly room_id: string;
  readonly type: string;
  readonly content: Record<string, unknown>;
}

interface News {
  readonly start: string;
  readonly end: string;
  readonly chunk: WireEvent[];
}

interface Initial {
  readonly end: string;
  readonly rooms: {
    readonly room_id: string;
    readonly membership: string;
    readonly invite?: WireEvent;
    readonly messages?: { readonly start: string; readonly end: string; readonly chunk: WireEvent[] };
    readonly state?: WireEvent[];
    readonly account_data?: { readonly type: string }[];
  }[];
  readonly account_data: { readonly type: string }[];
}

let transaction = 0;

const send = async (user: TestUser, roomId: string, body: string): Promise<string> => {
  transaction += 1;
  const path = `/rooms/${roomId}/send/m.room.message/${transaction}`;
  return String((await user.request('PUT', path, { msgtype: 'm.text', body })).body['event_id']);
};
const createRoom = async (user: TestUser, options: object): Promise<string> =>
  String((await user.request('POST', '/createRoom', { preset: 'private_chat', ...options })).body['room_id']);
const bodies = (events: readonly WireEvent[] | undefined): unknown[] =>
  (events ?? []).filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);

/** Without what is no event of a room's timeline. */
const eventsOnly = (events: readonly WireEvent[]): WireEvent[] =>
  events.filter((event) => (event as Partial<WireEvent>).event_id !== undefined);

describe.each(['sqlite', 'postgres'] as const)('what clients used before /sync (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  it('tells of rooms that are behind the user how they ended', async () => {
    const carol = await homeserver.registerUser('carol_goes');
    const make = () => createRoom(alice, { invite: [carol.userId] });
    const [joined, left, banned, unwanted] = [await make(), await make(), await make(), await make()];
    for (const roomId of [joined, left, banned]) await carol.request('POST', `/rooms/${roomId}/join`, {});
    await carol.request('POST', `/rooms/${left}/leave`, {});
    for (const roomId of [banned, unwanted])
      expect((await alice.request('POST', `/rooms/${roomId}/ban`, { user_id: carol.userId })).status).toBe(200);
    const { body } = await carol.request<Initial>('GET', '/initialSync?archived=true');
    expect(Object.fromEntries(body.rooms.map((room) => [room.room_id, room.membership]))).toEqual({
      [joined]: 'join',
      [left]: 'leave',
      [banned]: 'ban',
      [unwanted]: 'ban',
    });
    const { body: present } = await carol.request<Initial>('GET', '/initialSync');
    expect(present.rooms.map((room) => room.room_id)).toEqual([joined]);
  });

  it('tells everything, and then what is new', async () => {
    const roomId = await createRoom(alice, { name: 'Old', invite: [bob.userId] });
    const invited = await createRoom(alice, { name: 'Invited', invite: [bob.userId] });
    const left = await createRoom(bob, { name: 'Left' });
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    await bob.request('POST', `/rooms/${left}/leave`, {});
    await bob.request('PUT', `/user/${bob.userId}/rooms/${roomId}/tags/u.mine`, {});
    for (let n = 0; n < 3; n++) await send(alice, roomId, `line ${n}`);
    const { status, body: initial } = await bob.request<Initial>('GET', '/initialSync?limit=2');
    expect(status).toBe(200);
    const byId = new Map(initial.rooms.map((room) => [room.room_id, room]));
    expect([...byId.keys()].sort()).toEqual([roomId, invited].sort());
    expect(byId.get(invited)).toMatchObject({
      membership: 'invite',
      invite: { room_id: invited, type: 'm.room.member' },
    });
    const room = byId.get(roomId);
    expect(room?.membership).toBe('join');
    expect(bodies(room?.messages?.chunk)).toEqual(['line 1', 'line 2']);
    expect(room?.messages?.chunk.every((event) => event.room_id === roomId)).toBe(true);
    expect(room?.state?.map((event) => event.type)).toEqual(expect.arrayContaining(['m.room.create', 'm.room.name']));
    expect(room?.account_data).toEqual([expect.objectContaining({ type: 'm.tag' })]);
    expect(initial.account_data.map((event) => event.type)).toContain('m.push_rules');
    const older = await bob.request<News>(
      'GET',
      `/rooms/${roomId}/messages?dir=b&limit=1&from=${room?.messages?.start}`,
    );
    expect(bodies(older.body.chunk)).toEqual(['line 0']);
    const archived = await bob.request<Initial>('GET', '/initialSync?archived=true');
    expect(archived.body.rooms.find((each) => each.room_id === left)?.membership).toBe('leave');

    const quiet = await bob.request<News>('GET', `/events?from=${initial.end}`);
    expect(eventsOnly(quiet.body.chunk)).toEqual([]);
    // Somebody's presence may come before.
    const hear = async (): Promise<News> => {
      for (let from = quiet.body.end; ;) {
        const { body } = await bob.request<News>('GET', `/events?from=${from}&timeout=10000`);
        if (eventsOnly(body.chunk).length > 0) return body;
        from = body.end;
      }
    };
    const waiting = hear();
    await new Promise((resolve) => setTimeout(resolve, 100));
    const eventId = await send(alice, roomId, 'news');
    const news = await waiting;
    expect(eventsOnly(news.chunk)).toEqual([expect.objectContaining({ event_id: eventId, room_id: roomId })]);
    expect(eventsOnly((await bob.request<News>('GET', `/events?from=${news.end}`)).body.chunk)).toEqual([]);
    expect((await bob.request('GET', '/events?from=nonsense')).status).toBe(400);
    expect((await bob.request('GET', `/events/${eventId}`)).body).toMatchObject({ event_id: eventId, room_id: roomId });
    const carol = await homeserver.registerUser('carol');
    for (const id of [eventId, '$nothing']) {
      expect(await carol.request('GET', `/events/${id}`)).toMatchObject({
        status: 404,
        body: { errcode: 'M_NOT_FOUND' },
      });
    }
  });

  it('tells who is there, types and has read what, and account data', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    const { body: before } = await bob.request<Initial>('GET', '/initialSync?limit=0');
    expect(before.rooms.find((room) => room.room_id === roomId)?.messages?.chunk).toEqual([]);
    const eventId = await send(alice, roomId, 'read this');
    await alice.request('POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    await alice.request('PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await alice.request('PUT', `/presence/${alice.userId}/status`, { presence: 'online', status_msg: 'Here' });
    await bob.request('PUT', `/user/${bob.userId}/rooms/${roomId}/tags/u.read`, {});
    await bob.request('PUT', `/user/${bob.userId}/account_data/org.example.own`, { n: 1 });
    const told: WireEvent[] = [];
    const wanted = ['m.presence', 'm.receipt', 'm.room.message', 'm.tag', 'm.typing', 'org.example.own'];
    const types = (): string[] => [...new Set(told.map((event) => event.type))].sort();
    // Presence is told a little later than it is set.
    for (let from = before.end; types().join() !== wanted.join();) {
      const { body } = await bob.request<News>('GET', `/events?from=${from}&timeout=5000`);
      told.push(...body.chunk);
      from = body.end;
    }
    const inRoom = told.filter((event) => ['m.receipt', 'm.tag', 'm.typing'].includes(event.type));
    expect(new Set(inRoom.map((event) => event.room_id))).toEqual(new Set([roomId]));

    const all = (await bob.request<Record<string, WireEvent[]>>('GET', '/initialSync')).body;
    const one = (await bob.request<Record<string, WireEvent[]>>('GET', `/rooms/${roomId}/initialSync?limit=0`)).body;
    expect(one).toMatchObject({ room_id: roomId, membership: 'join', messages: { chunk: [] } });
    expect(one['account_data']).toEqual([expect.objectContaining({ type: 'm.tag' })]);
    for (const answer of [all, one]) {
      expect(answer['receipts']).toContainEqual(
        expect.objectContaining({
          type: 'm.receipt',
          room_id: roomId,
          content: expect.objectContaining({ [eventId]: expect.anything() as unknown }) as unknown,
        }),
      );
      expect(answer['presence']).toContainEqual(expect.objectContaining({ type: 'm.presence', sender: alice.userId }));
    }
  });

  it('leaves to-device messages to /sync', async () => {
    const before = await bob.request<{ next_batch: string }>('GET', '/sync');
    transaction += 1;
    await alice.request('PUT', `/sendToDevice/m.test/${transaction}`, {
      messages: { [bob.userId]: { '*': { n: 1 } } },
    });
    const { body: initial } = await bob.request<Initial>('GET', '/initialSync');
    await bob.request('GET', `/events?from=${initial.end}`);
    const after = await bob.request<{ to_device?: { events: unknown[] } }>(
      'GET',
      `/sync?since=${before.body.next_batch}`,
    );
    expect(after.body.to_device?.events).toHaveLength(1);
  });

  it('lets people watch a room that anybody may read', async () => {
    const open = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [
        { type: 'm.room.history_visibility', state_key: '', content: { history_visibility: 'world_readable' } },
      ],
    });
    const closed = await createRoom(alice, {});
    const peek = await bob.request<News>('GET', `/events?room_id=${open}`);
    expect(peek.body.chunk).toEqual([]);
    const waiting = bob.request<News>('GET', `/events?room_id=${open}&from=${peek.body.end}&timeout=10000`);
    await new Promise((resolve) => setTimeout(resolve, 100));
    await send(alice, closed, 'secret');
    await send(alice, open, 'for all');
    const seen = (await waiting).body;
    expect(bodies(seen.chunk)).toEqual(['for all']);
    const startedAt = performance.now();
    const idle = await bob.request<News>('GET', `/events?room_id=${open}&from=${seen.end}&timeout=200`);
    expect(idle.body.chunk).toEqual([]);
    expect(performance.now() - startedAt).toBeGreaterThan(150);
    expect(await bob.request('GET', `/events?room_id=${closed}`)).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
    // What becomes private is not shown any more.
    await alice.request('PUT', `/rooms/${open}/state/m.room.history_visibility/`, { history_visibility: 'joined' });
    await send(alice, open, 'among ourselves');
    const after = await bob.request<News>('GET', `/events?room_id=${open}&from=${seen.end}`);
    expect(after.status).toBe(403);
  });

  it('tells all that came of a room that somebody watches, a page at a time', async () => {
    const open = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [
        { type: 'm.room.history_visibility', state_key: '', content: { history_visibility: 'world_readable' } },
      ],
    });
    const start = (await bob.request<News>('GET', `/events?room_id=${open}`)).body.end;
    const said: string[] = [];
    for (let n = 0; n < 105; n++) said.push(await send(alice, open, `line ${n}`));
    const pages: string[][] = [];
    for (let from = start; pages.at(-1)?.length !== 0;) {
      const { body } = await bob.request<News>('GET', `/events?room_id=${open}&from=${from}`);
      pages.push(body.chunk.map((event) => event.event_id));
      from = body.end;
    }
    expect(pages).toEqual([said.slice(0, 100), said.slice(100), []]);
  });

  it('tells all that came into any room, a page at a time and in order, and who invites', async () => {
    const [busy, quiet] = [await createRoom(alice, { preset: 'public_chat' }), await createRoom(alice, {})];
    const gone = await createRoom(alice, { preset: 'public_chat' });
    await alice.request('POST', `/rooms/${quiet}/invite`, { user_id: bob.userId });
    for (const roomId of [busy, quiet, gone]) await bob.request('POST', `/rooms/${roomId}/join`, {});
    const { end } = (await bob.request<Initial>('GET', '/initialSync?limit=0')).body;
    const said: string[] = [];
    for (let n = 0; n < 230; n++) {
      if (n === 10) said.push(await send(alice, gone, 'until you leave'));
      said.push(await send(alice, n % 50 === 0 ? quiet : busy, `line ${n}`));
    }
    await bob.request('POST', `/rooms/${gone}/leave`, {});
    await send(alice, gone, 'without you');
    const invited = await createRoom(alice, { invite: [bob.userId] });
    said.push(await send(alice, busy, 'the last'));
    const told: WireEvent[] = [];
    const sizes: number[] = [];
    for (let from = end; sizes.at(-1) !== 0;) {
      const { body } = await bob.request<News>('GET', `/events?from=${from}`);
      const some = eventsOnly(body.chunk);
      told.push(...some);
      sizes.push(some.length);
      from = body.end;
    }
    const messages = told.filter((event) => event.type === 'm.room.message');
    expect(messages.map((event) => event.event_id)).toEqual(said);
    const own = told.filter((event) => event.type === 'm.room.member');
    expect(own.map((event) => [event.room_id, event.content['membership']])).toEqual([
      [gone, 'leave'],
      [invited, 'invite'],
    ]);
    expect(sizes.length).toBeGreaterThan(2);
    expect(Math.max(...sizes)).toBeLessThan(120);
  });
});
