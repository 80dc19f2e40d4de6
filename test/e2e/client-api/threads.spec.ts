import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

const unstable = '/_matrix/client/unstable';
const extension = 'io.element.msc4308.thread_subscriptions';

interface Changes {
  readonly subscribed?: Record<string, Record<string, { automatic: boolean; bump_stamp: number }>>;
  readonly unsubscribed?: Record<string, Record<string, { bump_stamp: number }>>;
  readonly prev_batch?: string;
  readonly end?: string;
}

interface Sliding {
  readonly pos: string;
  readonly extensions: { readonly [extension]?: Changes };
}

describe.each(['sqlite', 'postgres'] as const)('subscriptions to threads (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let root: string;
  let transaction = 0;

  const send = async (user: TestUser, content: object = {}): Promise<string> => {
    const path = `/rooms/${roomId}/send/m.room.message/${(transaction += 1)}`;
    const { status, body } = await user.request('PUT', path, { msgtype: 'm.text', body: 'hello', ...content });
    expect(status).toBe(200);
    return String(body['event_id']);
  };
  const reply = (user: TestUser, content: object = {}, to = root): Promise<string> =>
    send(user, { 'm.relates_to': { rel_type: 'm.thread', event_id: to }, ...content });
  const path = (thread: string, room = roomId): string =>
    `${unstable}/io.element.msc4306/rooms/${room}/thread/${encodeURIComponent(thread)}/subscription`;
  const subscribe = (user: TestUser, body: object = {}, thread = root) => user.request('PUT', path(thread), body);
  const unsubscribe = (user: TestUser, thread = root) => user.request('DELETE', path(thread));
  const get = (user: TestUser, thread = root) => user.request('GET', path(thread));
  const slide = async (user: TestUser, pos?: string, limit = 100, timeout = 0): Promise<Sliding> => {
    const query = `?timeout=${timeout}${pos === undefined ? '' : `&pos=${pos}`}`;
    const body = { lists: {}, extensions: { [extension]: { enabled: true, limit } } };
    const answer = await user.request<Sliding>('POST', `${unstable}/org.matrix.simplified_msc3575/sync${query}`, body);
    expect(answer.status).toBe(200);
    return answer.body;
  };
  const unread = async (user: TestUser): Promise<number> => {
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 1 } } }));
    const { body } = await user.request<{
      rooms: { join: Record<string, { unread_notifications: { notification_count: number } }> };
    }>('GET', `/sync?timeout=0&filter=${filter}`);
    return body.rooms.join[roomId]?.unread_notifications.notification_count ?? -1;
  };

  beforeAll(async () => {
    const settings = { presence: { enabled: false }, experimental_features: { msc4306_enabled: true } };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  beforeEach(async () => {
    const made = await alice.request('POST', '/createRoom', { preset: 'public_chat' });
    roomId = String(made.body['room_id']);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    root = await send(alice);
  });

  it('are made, read and ended', async () => {
    expect(await get(bob)).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    expect(await subscribe(bob)).toMatchObject({ status: 200, body: {} });
    expect(await get(bob)).toMatchObject({ status: 200, body: { automatic: false } });
    expect((await get(alice)).status).toBe(404);
    for (let i = 0; i < 2; i++) expect(await unsubscribe(bob)).toMatchObject({ status: 200, body: {} });
    expect((await get(bob)).status).toBe(404);
  });

  it('are for threads that one may see', async () => {
    const stranger = await homeserver.registerUser(`stranger${(transaction += 1)}`);
    for (const answer of [await subscribe(stranger), await unsubscribe(stranger), await get(stranger)])
      expect(answer).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    expect((await subscribe(bob, {}, '$nonsense')).status).toBe(404);
    expect(await subscribe(bob, { automatic: true })).toMatchObject({ status: 400 });
  });

  it('that clients make by themselves need a cause in the thread, and give way to what the user did', async () => {
    const cause = await reply(alice);
    const aside = await send(alice);
    const inThread = { errcode: 'IO.ELEMENT.MSC4306.M_NOT_IN_THREAD' };
    expect(await subscribe(bob, { automatic: aside })).toMatchObject({ status: 400, body: inThread });
    expect(await subscribe(bob, { automatic: '$gone' })).toMatchObject({ status: 400, body: inThread });
    expect((await subscribe(bob, { automatic: cause })).status).toBe(200);
    expect(await get(bob)).toMatchObject({ body: { automatic: true } });
    // What the user asks for is more than what a client did.
    await subscribe(bob);
    await subscribe(bob, { automatic: cause });
    expect(await get(bob)).toMatchObject({ body: { automatic: false } });
    await unsubscribe(bob);
    expect(await subscribe(bob, { automatic: cause })).toMatchObject({
      status: 409,
      body: { errcode: 'IO.ELEMENT.MSC4306.M_CONFLICTING_UNSUBSCRIPTION' },
    });
    expect((await subscribe(bob, { automatic: await reply(alice) })).status).toBe(200);
  });

  it('come with sliding sync, wake it, and can be paged back to', async () => {
    const carol = await homeserver.registerUser(`carol${(transaction += 1)}`);
    await carol.request('POST', `/rooms/${roomId}/join`, {});
    const threads = [root];
    for (let i = 0; i < 4; i++) threads.push(await send(alice));
    const [first = '', , third = '', fourth = '', last = ''] = threads;
    const start = await slide(carol);
    expect(start.extensions[extension]).toBeUndefined();
    const waiting = slide(carol, start.pos, 100, 20_000);
    await new Promise((resolve) => setTimeout(resolve, 100));
    for (const thread of threads) await subscribe(carol, {}, thread);
    const woken = (await waiting).extensions[extension];
    expect(woken?.subscribed?.[roomId]?.[first]).toEqual({ automatic: false, bump_stamp: expect.any(Number) });
    await unsubscribe(carol, third);

    const window = (await slide(carol, start.pos, 2)).extensions[extension];
    expect(Object.keys(window?.unsubscribed?.[roomId] ?? {})).toEqual([third]);
    expect(Object.keys(window?.subscribed?.[roomId] ?? {})).toEqual([last]);
    const list = `${unstable}/io.element.msc4308/thread_subscriptions?dir=b&limit=2&to=${start.pos}`;
    const page = await carol.request<Changes>('GET', `${list}&from=${window?.prev_batch}`);
    expect(Object.keys(page.body.subscribed?.[roomId] ?? {}).sort()).toEqual([threads[1], fourth].sort());
    const next = await carol.request<Changes>('GET', `${list}&from=${page.body.end}`);
    expect(next.body).toEqual({ subscribed: { [roomId]: { [first]: expect.anything() } } });
    const all = await carol.request<Changes>('GET', `${unstable}/io.element.msc4308/thread_subscriptions?dir=b`);
    expect(Object.keys(all.body.subscribed?.[roomId] ?? {})).toHaveLength(4);
    expect(all.body.end).toBeUndefined();
    for (const query of ['', '?dir=f', '?dir=b&from=nonsense', '?dir=b&to=1/x', '?dir=b&limit=x'])
      expect((await carol.request('GET', `${unstable}/io.element.msc4308/thread_subscriptions${query}`)).status).toBe(
        400,
      );

    await homeserver.restart();
    const again = await slide(carol, undefined, 1);
    expect(again.extensions[extension]?.prev_batch).toBeDefined();
    expect((await slide(carol, again.pos)).extensions[extension]).toBeUndefined();
  });

  it('decide what counts: nothing of other threads but mentions, everything of these even in a muted room', async () => {
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${root}`, {});
    await reply(alice);
    expect(await unread(bob)).toBe(0);
    await reply(alice, { 'm.mentions': { user_ids: [bob.userId] } });
    expect(await unread(bob)).toBe(1);
    await subscribe(bob);
    await reply(alice);
    expect(await unread(bob)).toBe(2);
    const rule = `/pushrules/global/room/${roomId}`;
    expect((await bob.request('PUT', rule, { actions: [] })).status).toBe(200);
    await send(alice);
    expect(await unread(bob)).toBe(2);
    await reply(alice);
    expect(await unread(bob)).toBe(3);
    await unsubscribe(bob);
    await bob.request('PUT', rule, { actions: ['notify'] });
    await reply(alice);
    expect(await unread(bob)).toBe(3);
    await bob.request('DELETE', rule);
  });

  it('have rules that can be changed and none that clients make', async () => {
    const kind = '/pushrules/global/postcontent';
    const rules = await bob.request<{ rule_id: string; enabled: boolean }[]>('GET', `${kind}/`);
    expect(rules.body.map((rule) => rule.rule_id)).toEqual([
      '.io.element.msc4306.rule.unsubscribed_thread',
      '.io.element.msc4306.rule.subscribed_thread',
    ]);
    expect(await bob.request('PUT', `${kind}/mine`, { actions: [], conditions: [] })).toMatchObject({
      status: 400,
      body: { errcode: 'M_INVALID_PARAM' },
    });
    const unsubscribed = `${kind}/.io.element.msc4306.rule.unsubscribed_thread`;
    expect((await bob.request('PUT', `${unsubscribed}/enabled`, { enabled: false })).status).toBe(200);
    expect((await bob.request('PUT', `${unsubscribed}/actions`, { actions: ['notify'] })).status).toBe(200);
    expect(await bob.request('GET', unsubscribed)).toMatchObject({ body: { enabled: false, actions: ['notify'] } });
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${root}`, {});
    await reply(alice);
    expect(await unread(bob)).toBe(1);
    await bob.request('PUT', `${unsubscribed}/enabled`, { enabled: true });
    await bob.request('PUT', `${unsubscribed}/actions`, { actions: [] });
  });
});

it('threads cannot be subscribed to unless the server is set so', async () => {
  const homeserver = await createTestHomeserver({ fetch: validatedFetch });
  try {
    const alice = await homeserver.registerUser('alice');
    const path = `${unstable}/io.element.msc4306/rooms/!r:rookery.test/thread/$t/subscription`;
    for (const [method, url] of [
      ['GET', path],
      ['PUT', path],
      ['DELETE', path],
      ['GET', `${unstable}/io.element.msc4308/thread_subscriptions?dir=b`],
    ] as const) {
      const answer = await alice.request(method, url, method === 'PUT' ? {} : undefined);
      expect(answer).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
    }
    const rules = await alice.request<{ global: object }>('GET', '/pushrules/');
    expect(Object.keys(rules.body.global).sort()).toEqual(['content', 'override', 'room', 'sender', 'underride']);
  } finally {
    await homeserver.stop();
  }
});
