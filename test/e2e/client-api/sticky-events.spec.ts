import { Database } from '@rookery/database';
import { createTestHomeserver, FakeClock, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

const unstable = '/_matrix/client/unstable';
const extension = 'org.matrix.msc4354.sticky_events';

interface Wire {
  readonly event_id: string;
  readonly msc4354_sticky?: { readonly duration_ms: number };
  readonly unsigned?: { readonly msc4354_sticky_duration_ttl_ms?: number };
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<
      string,
      { readonly timeline: { readonly events: Wire[] }; readonly msc4354_sticky?: { readonly events: Wire[] } }
    >;
  };
}

interface Sliding {
  readonly pos: string;
  readonly rooms: Record<string, { readonly timeline?: Wire[] }>;
  readonly extensions: {
    readonly [extension]?: { readonly next_batch: string; readonly rooms: Record<string, { events: Wire[] }> };
  };
}

const ids = (events: readonly Wire[] | undefined): string[] => (events ?? []).map((event) => event.event_id);

describe.each(['sqlite', 'postgres'] as const)('sticky events (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let transaction = 0;

  const send = async (user: TestUser, stickyMs?: number, type = 'm.room.message'): Promise<string> => {
    const sticky = stickyMs === undefined ? '' : `?org.matrix.msc4354.sticky_duration_ms=${stickyMs}`;
    const path = `/rooms/${roomId}/send/${type}/${(transaction += 1)}${sticky}`;
    const { status, body } = await user.request('PUT', path, { msgtype: 'm.text', body: 'hello' });
    expect(status).toBe(200);
    return String(body['event_id']);
  };
  const sync = async (user: TestUser, since?: string): Promise<Sync> => {
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 2 } } }));
    const query = `timeout=0&filter=${filter}${since === undefined ? '' : `&since=${since}`}`;
    return (await user.request<Sync>('GET', `/sync?${query}`)).body;
  };
  const stickyIn = (answer: Sync): string[] => ids(answer.rooms?.join?.[roomId]?.msc4354_sticky?.events);
  const slide = async (
    user: TestUser,
    more: object = {},
    pos?: string,
    lists?: object,
    timeoutMs = 0,
  ): Promise<Sliding> => {
    const body = {
      lists: lists ?? { all: { ranges: [[0, 9]], timeline_limit: 1 } },
      extensions: { [extension]: { enabled: true, ...more } },
    };
    const query = `?timeout=${timeoutMs}${pos === undefined ? '' : `&pos=${pos}`}`;
    const answer = await user.request<Sliding>('POST', `${unstable}/org.matrix.simplified_msc3575/sync${query}`, body);
    expect(answer.status).toBe(200);
    return answer.body;
  };
  const slid = (answer: Sliding): string[] => ids(answer.extensions[extension]?.rooms[roomId]?.events);

  beforeAll(async () => {
    const settings = {
      presence: { enabled: false },
      max_event_delay_duration: '1h',
      experimental_features: { msc4354_enabled: true },
    };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  beforeEach(async () => {
    const made = await alice.request('POST', '/createRoom', { preset: 'public_chat' });
    roomId = String(made.body['room_id']);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
  });

  it('say how long they are sticky, and for how long yet', async () => {
    const eventId = await send(alice, 60_000);
    const event = (await bob.request<Wire>('GET', `/rooms/${roomId}/event/${eventId}`)).body;
    expect(event.msc4354_sticky).toEqual({ duration_ms: 60_000 });
    expect(event.unsigned?.msc4354_sticky_duration_ttl_ms).toBeGreaterThan(50_000);
    expect(event.unsigned?.msc4354_sticky_duration_ttl_ms).toBeLessThanOrEqual(60_000);
    const state = `/rooms/${roomId}/state/org.example.sticky/`;
    const set = `${state}?org.matrix.msc4354.sticky_duration_ms=1000`;
    const first = await alice.request('PUT', set, { n: 1 });
    // The same once more is sticky anew.
    expect((await alice.request('PUT', set, { n: 1 })).body['event_id']).not.toBe(first.body['event_id']);
    for (const wrong of ['3600001', '-1', '1.5', 'x', '1e3']) {
      const path = `/rooms/${roomId}/send/m.room.message/w${(transaction += 1)}?org.matrix.msc4354.sticky_duration_ms=`;
      expect(await alice.request('PUT', path + wrong, { body: 'x' })).toMatchObject({
        status: 400,
        body: { errcode: 'M_INVALID_PARAM' },
      });
    }
  });

  it('come with /sync once, however long the timeline is', async () => {
    const { next_batch: since } = await sync(bob);
    const early = await send(alice, 60_000);
    for (let i = 0; i < 3; i++) await send(alice);
    const late = await send(alice, 60_000);
    const answer = await sync(bob, since);
    expect(stickyIn(answer)).toEqual([early]);
    expect(ids(answer.rooms?.join?.[roomId]?.timeline.events)).toContain(late);
    await send(alice);
    expect(stickyIn(await sync(bob, answer.next_batch))).toEqual([]);
    // A first sync brings all that still are sticky.
    expect(stickyIn(await sync(bob))).toEqual([early]);
    const carol = await homeserver.registerUser(`carol${(transaction += 1)}`);
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.history_visibility`, { history_visibility: 'joined' });
    await send(alice);
    const before = (await sync(carol)).next_batch;
    await carol.request('POST', `/rooms/${roomId}/join`, {});
    expect(stickyIn(await sync(carol, before)).sort()).toEqual([early, late].sort());
    await homeserver.restart();
    expect(stickyIn(await sync(bob)).sort()).toEqual([early, late].sort());
  });

  it.each([{ event_format: 'federation' }, { event_fields: ['content'] }])('come once with %j, too', async (format) => {
    const { next_batch: since } = await sync(bob);
    for (let n = 0; n < 2; n++) await send(alice, 60_000);
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 2 } }, ...format }));
    for (const from of [`&since=${since}`, '']) {
      // Such events are not as the specification says.
      const answer = await fetch(`${homeserver.baseUrl}/_matrix/client/v3/sync?timeout=0&filter=${filter}${from}`, {
        headers: { authorization: `Bearer ${bob.accessToken}` },
      });
      const room = ((await answer.json()) as Sync).rooms?.join?.[roomId];
      expect(room?.timeline.events).toHaveLength(2);
      expect(room).not.toHaveProperty('msc4354_sticky');
    }
  });

  it('of people who are ignored, or that were redacted, do not come', async () => {
    const gone = await send(alice, 60_000);
    const kept = await send(alice, 60_000);
    for (let i = 0; i < 3; i++) await send(bob);
    await alice.request('PUT', `/rooms/${roomId}/redact/${gone}/r${(transaction += 1)}`, {});
    await send(bob);
    await send(bob);
    expect(stickyIn(await sync(bob))).toEqual([kept]);
    const ignored = `/user/${bob.userId}/account_data/m.ignored_user_list`;
    await bob.request('PUT', ignored, { ignored_users: { [alice.userId]: {} } });
    expect(stickyIn(await sync(bob))).toEqual([]);
    expect(slid(await slide(bob))).toEqual([]);
    await bob.request('PUT', ignored, {});
  });

  it('come with sliding sync page by page, from all rooms of the lists', async () => {
    const sent: string[] = [];
    for (let i = 0; i < 5; i++) sent.push(await send(alice, 60_000));
    await send(alice);
    const got: string[] = [];
    let answer = await slide(bob, { limit: 2 });
    for (let page = 0; page < 50; page++) {
      got.push(...slid(answer));
      const since = answer.extensions[extension]?.next_batch;
      if (since === undefined) break;
      answer = await slide(bob, { limit: 2, since }, answer.pos);
    }
    expect(got.slice(-5)).toEqual(sent);
    expect(answer.extensions[extension]).toBeUndefined();
    // Outside of the window, but in the list.
    const newer = await alice.request('POST', '/createRoom', { invite: [bob.userId] });
    await bob.request('POST', `/rooms/${String(newer.body['room_id'])}/join`, {});
    const narrow = { top: { ranges: [[0, 0]], timeline_limit: 1 } };
    expect(slid(await slide(bob, {}, undefined, narrow))).toEqual(sent);
    const none = { dms: { ranges: [[0, 9]], timeline_limit: 1, filters: { is_dm: true } } };
    expect(slid(await slide(bob, {}, undefined, none))).toEqual([]);
  });

  it('of a room that was joined since come whole', async () => {
    const early = await send(alice, 60_000);
    await send(alice);
    const carol = await homeserver.registerUser(`carol${(transaction += 1)}`);
    const start = await slide(carol);
    const since = start.extensions[extension]?.next_batch;
    await carol.request('POST', `/rooms/${roomId}/join`, {});
    expect(slid(await slide(carol, since === undefined ? {} : { since }, start.pos))).toEqual([early]);
  });

  it('that were left to be sent later are sticky when they are sent', async () => {
    const path = `/rooms/${roomId}/send/m.room.message/${(transaction += 1)}`;
    const query = '?org.matrix.msc4140.delay=60000&org.matrix.msc4354.sticky_duration_ms=60000';
    const delayed = await alice.request('PUT', path + query, { msgtype: 'm.text', body: 'later' });
    const act = `${unstable}/org.matrix.msc4140/delayed_events/${String(delayed.body['delay_id'])}/send`;
    expect((await alice.request('POST', act, {})).status).toBe(200);
    for (let i = 0; i < 3; i++) await send(alice);
    expect(stickyIn(await sync(bob))).toHaveLength(1);
  });

  it('come with sliding sync at once where there are more behind a page of which nothing is shown', async () => {
    const start = await slide(bob);
    const since = start.extensions[extension]?.next_batch ?? '0';
    for (const eventId of [await send(alice, 60_000), await send(alice, 60_000)])
      await alice.request('PUT', `/rooms/${roomId}/redact/${eventId}/r${(transaction += 1)}`, {});
    const kept = await send(alice, 60_000);
    await send(alice);
    // The timelines are told by then; what is sticky is asked for once more.
    const { pos } = await slide(bob, { limit: 2, since }, start.pos);
    const hidden = await slide(bob, { limit: 2, since }, pos, undefined, 600_000);
    expect(slid(hidden)).toEqual([]);
    const next = hidden.extensions[extension]!.next_batch;
    expect(slid(await slide(bob, { limit: 2, since: next }, hidden.pos, undefined, 600_000))).toEqual([kept]);
  });

  it('are the newest of each room where there are more than an answer holds', async () => {
    const crowded = roomId;
    roomId = String((await alice.request('POST', '/createRoom', { preset: 'public_chat' })).body['room_id']);
    const quiet = roomId;
    await bob.request('POST', `/rooms/${quiet}/join`, {});
    const early = await send(alice, 600_000);
    roomId = crowded;
    const late = await send(alice, 600_000);
    for (const room of [crowded, quiet]) {
      roomId = room;
      for (let i = 0; i < 3; i++) await send(alice);
    }
    // Between the two lie those of many others.
    const database = homeserver.server.service(Database);
    const last = await database.get<{ stream_id: number; expires_at: number }>(
      'SELECT stream_id, expires_at FROM sticky_events WHERE event_id = ?',
      [late],
    );
    const [count, first, expiresAt] = [5_500, last!.stream_id, last!.expires_at];
    const columns = [
      'stream_id',
      'instance_name',
      'event_id',
      'room_id',
      'event_stream_ordering',
      'sender',
      'expires_at',
    ];
    const rows = Array.from({ length: count }, (_, n) => [
      ...[first + n, 'master', `$many${n}`, crowded, 0, `@many${n % 60}:elsewhere.test`, expiresAt],
    ]);
    await database.write(async (tx) => {
      await tx.run('UPDATE sticky_events SET stream_id = ? WHERE event_id = ?', [first + count, late]);
      await tx.insertMany('sticky_events', columns, rows);
    });
    await homeserver.restart();
    const answer = await sync(bob);
    expect(ids(answer.rooms?.join?.[crowded]?.msc4354_sticky?.events)).toEqual([late]);
    expect(ids(answer.rooms?.join?.[quiet]?.msc4354_sticky?.events)).toEqual([early]);
  });
});

it('sticky events cease to be sticky', async () => {
  const clock = new FakeClock(Date.parse('2026-06-01T00:00:00Z'));
  const settings = { presence: { enabled: false }, experimental_features: { msc4354_enabled: true } };
  const homeserver = await createTestHomeserver({ settings, clock });
  try {
    const alice = await homeserver.registerUser('alice');
    const roomId = String((await alice.request('POST', '/createRoom', {})).body['room_id']);
    const path = `/rooms/${roomId}/send/m.room.message`;
    await alice.request('PUT', `${path}/1?org.matrix.msc4354.sticky_duration_ms=60000`, { body: 'x' });
    for (let i = 0; i < 3; i++) await alice.request('PUT', `${path}/more${i}`, { body: 'x' });
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 1 } } }));
    const sticky = async (): Promise<unknown> =>
      (await alice.request<Sync>('GET', `/sync?filter=${filter}`)).body.rooms?.join?.[roomId]?.msc4354_sticky;
    expect(await sticky()).toBeDefined();
    await clock.advance(60_001);
    expect(await sticky()).toBeUndefined();
  } finally {
    await homeserver.stop();
  }
});

it('nothing is sticky unless the server is set so', async () => {
  const homeserver = await createTestHomeserver({ fetch: validatedFetch });
  try {
    const alice = await homeserver.registerUser('alice');
    const roomId = String((await alice.request('POST', '/createRoom', {})).body['room_id']);
    const path = `/rooms/${roomId}/send/m.room.message/1?org.matrix.msc4354.sticky_duration_ms=1000`;
    const { body } = await alice.request('PUT', path, { msgtype: 'm.text', body: 'x' });
    const event = await alice.request<Wire>('GET', `/rooms/${roomId}/event/${String(body['event_id'])}`);
    expect(event.body.msc4354_sticky).toBeUndefined();
  } finally {
    await homeserver.stop();
  }
});
