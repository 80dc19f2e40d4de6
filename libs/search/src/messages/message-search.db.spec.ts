import { openDatabase, parseDatabaseOptions } from '@rookery/database';
import { SystemClock } from '@rookery/platform';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';

interface Result {
  readonly rank: number;
  readonly result: { readonly event_id: string; readonly content: { readonly body?: string } };
  readonly context?: {
    readonly events_before: readonly { readonly event_id: string }[];
    readonly events_after: readonly { readonly event_id: string }[];
    readonly start: string;
    readonly end: string;
    readonly profile_info?: Record<string, { displayname?: string }>;
  };
}

interface Answer {
  readonly count: number;
  readonly highlights: readonly string[];
  readonly results: readonly Result[];
  readonly next_batch?: string;
  readonly state?: Record<string, readonly { readonly type: string }[]>;
  readonly groups?: Record<string, Record<string, { results: string[]; next_batch?: string; order: number }>>;
}

let txn = 0;

describe.each(['sqlite', 'postgres'] as const)('message search (%s)', (database) => {
  let server: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;

  beforeAll(async () => {
    server = await createTestHomeserver({ database });
    alice = await server.registerUser('alice');
    bob = await server.registerUser('bob');
  });
  afterAll(() => server.stop());

  const room = async (more: object = {}): Promise<string> => {
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', {
      preset: 'public_chat',
      ...more,
    });
    return body.room_id;
  };
  const join = (user: TestUser): Promise<unknown> => user.request('POST', `/rooms/${roomId}/join`, {});
  const say = async (body: string, user = alice, where = roomId): Promise<string> => {
    const content = { msgtype: 'm.text', body };
    const answer = await user.request<{ event_id: string }>(
      'PUT',
      `/rooms/${where}/send/m.room.message/${txn++}`,
      content,
    );
    expect(answer.status).toBe(200);
    return answer.body.event_id;
  };
  const post = (user: TestUser, criteria: object, next?: string): ReturnType<typeof user.request<never>> =>
    user.request<never>('POST', `/search${next === undefined ? '' : `?next_batch=${next}`}`, {
      search_categories: { room_events: criteria },
    });
  const search = async (user: TestUser, term: string, more: object = {}, next?: string): Promise<Answer> => {
    const { status, body } = await post(user, { search_term: term, filter: { rooms: [roomId] }, ...more }, next);
    expect([status, body]).toEqual([200, expect.anything()]);
    return (body as { search_categories: { room_events: Answer } }).search_categories.room_events;
  };
  const ids = ({ results }: Answer): string[] => results.map(({ result }) => result.event_id);

  beforeEach(async () => {
    roomId = await room();
    await join(bob);
  });

  it.each([
    ['Meet me at the Café', 'cafe'],
    ['cafe', 'CAFÉ'],
    ['several messages', 'message'],
    ['今日は東京タワーへ行った', '東京タワー'],
    ['我们明天去北京大学', '北京'],
    ['我们明天去北京大学', '学'],
    ['서울에서 만나요', '서울'],
    ['Привет, мир', 'МИР'],
    ["it's -- 'quoted' & (odd) | \"text\" *", 'odd quoted'],
  ])('finds %j by %j', async (body, term) => {
    await say('something else, 何か別のこと');
    const eventId = await say(body);
    for (const order_by of ['rank', 'recent']) expect(ids(await search(bob, term, { order_by }))).toEqual([eventId]);
  });

  it('leaves out the state of a room that its reader may not read, and fails for nobody', async () => {
    const visibility = (history_visibility: string): Promise<unknown> =>
      alice.request('PUT', `/rooms/${roomId}/state/m.room.history_visibility`, { history_visibility });
    const erin = (await server.registerUser(`erin${txn++}`)) as TestUser;
    await visibility('world_readable');
    const said = await say('once upon a time');
    await visibility('joined');
    await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: erin.userId });
    expect((await erin.request('POST', `/rooms/${roomId}/leave`, {})).status).toBe(200);
    expect((await erin.request('GET', `/rooms/${roomId}/state`)).status).toBe(403);
    const answer = await search(erin, 'upon', { include_state: true });
    expect(ids(answer)).toEqual([said]);
    expect(answer.state).toEqual({});
    expect(Object.keys((await search(bob, 'upon', { include_state: true })).state ?? {})).toEqual([roomId]);
  });

  it('wants every word, and none of them alone', async () => {
    await say('one');
    const both = await say('two and one');
    expect(await search(bob, 'One two!')).toMatchObject({ count: 1, highlights: ['one', 'two'] });
    expect(ids(await search(bob, 'one two'))).toEqual([both]);
    expect(await search(bob, 'three')).toEqual({ count: 0, highlights: ['three'], results: [] });
    expect(await search(bob, '!?')).toMatchObject({ count: 0, results: [] });
  });

  it('looks into names and topics, and only where it was told to', async () => {
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.name`, { name: 'needle' });
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.topic`, { topic: 'the needle' });
    const message = await say('a needle');
    expect((await search(bob, 'needle')).count).toBe(3);
    expect(ids(await search(bob, 'needle', { keys: ['content.body'] }))).toEqual([message]);
    expect((await search(bob, 'needle', { keys: ['content.name', 'content.topic'] })).count).toBe(2);
  });

  it('shows what is closest first, or what is newest', async () => {
    const close = await say('rook rook rook');
    const far = await say('a rook among very many other words that have nothing to do with it');
    expect(ids(await search(bob, 'rook', { order_by: 'rank' }))).toEqual([close, far]);
    expect(ids(await search(bob, 'rook', { order_by: 'recent' }))).toEqual([far, close]);
  });

  it.each(['recent', 'rank'])('goes through pages in the order %s', async (order_by) => {
    const sent = [];
    for (let i = 0; i < 5; i++) sent.push(await say(`page ${i}`));
    const seen: string[] = [];
    let next: string | undefined;
    let pages = 0;
    do {
      const answer = await search(bob, 'page', { order_by, filter: { rooms: [roomId], limit: 2 } }, next);
      expect(answer.count).toBe(5);
      seen.push(...ids(answer));
      next = answer.next_batch;
      pages++;
    } while (next !== undefined && pages < 5);
    expect(pages).toBe(3);
    expect(seen.toSorted()).toEqual(sent.toSorted());
  });

  it.each(['recent', 'rank'])('groups, and goes on within a group, in the order %s', async (order_by) => {
    // All are as close: the newest come first.
    const [third, , second, , first] = [
      await say('grouped', bob),
      await say('grouped', alice),
      await say('grouped', bob),
      await say('grouped', alice),
      await say('grouped', bob),
    ];
    const grouping = { order_by, groupings: { group_by: [{ key: 'sender' }, { key: 'room_id' }] } };
    const all = await search(alice, 'grouped', grouping);
    expect(all.groups!['sender']![bob.userId]).toEqual({ order: 1, results: [first, second, third] });
    expect(all.groups!['room_id']![roomId]!.results).toHaveLength(5);
    const page = await search(alice, 'grouped', { ...grouping, filter: { rooms: [roomId], limit: 2 } });
    const narrow = { ...grouping, filter: { rooms: [roomId], limit: 1 } };
    const next = await search(alice, 'grouped', narrow, page.groups!['sender']![bob.userId]!.next_batch);
    expect([next.count, ids(next)]).toEqual([3, [second]]);
    const rest = await search(alice, 'grouped', grouping, next.groups!['sender']![bob.userId]!.next_batch);
    expect([ids(rest), rest.next_batch]).toEqual([[third], undefined]);
    const ofRoom = await search(alice, 'grouped', grouping, page.groups!['room_id']![roomId]!.next_batch);
    expect(ids(ofRoom)).toHaveLength(3);
  });

  it('shows what surrounds a result, names of that time and the state', async () => {
    const before = await say('before');
    const eventId = await say('the middle');
    await alice.request('PUT', `/profile/${alice.userId}/displayname`, { displayname: 'Other' });
    const after = await say('after');
    const answer = await search(bob, 'middle', {
      event_context: { before_limit: 1, after_limit: 5, include_profile: true },
      include_state: true,
    });
    const [{ context, result }] = answer.results as [Result];
    expect(result.event_id).toBe(eventId);
    expect(context!.events_before.map((event) => event.event_id)).toEqual([before]);
    expect(context!.events_after.map((event) => event.event_id)).toContain(after);
    expect(context!.profile_info).toEqual({ [alice.userId]: { displayname: 'alice' } });
    const more = await bob.request<{ chunk: { event_id: string }[] }>(
      'GET',
      `/rooms/${roomId}/messages?dir=f&from=${context!.end}`,
    );
    expect(more.status).toBe(200);
    expect(answer.state![roomId]!.map((event) => event.type)).toContain('m.room.create');
    await alice.request('PUT', `/profile/${alice.userId}/displayname`, { displayname: 'alice' });
  });

  it('honours history visibility, membership and filters', async () => {
    roomId = await room({
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    const early = await say('treasure before');
    expect(ids(await search(bob, 'treasure'))).toEqual([]);
    await join(bob);
    const late = await say('treasure after');
    expect(ids(await search(bob, 'treasure'))).toEqual([late]);
    expect(ids(await search(alice, 'treasure', { order_by: 'recent' }))).toEqual([late, early]);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    await say('treasure later');
    expect(ids(await search(bob, 'treasure'))).toEqual([late]);
    expect(ids(await search(alice, 'treasure', { filter: { rooms: [roomId], senders: [bob.userId] } }))).toEqual([]);
    expect(ids(await search(alice, 'treasure', { filter: { not_rooms: [roomId] } }))).toEqual([]);
  });

  it('counts what its reader may see, and tells nobody else that a word was said', async () => {
    roomId = await room({
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    const countOf = async (user: TestUser): Promise<number> =>
      (await search(user, 'secr', { order_by: 'recent' })).count;
    const guest = (await server.registerUser(`guest${txn++}`)) as TestUser;
    await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: guest.userId });
    await guest.request('POST', `/rooms/${roomId}/leave`, {});
    for (let n = 0; n < 3; n++) await say('the secret before');
    await join(bob);
    await say('the secret meanwhile');
    await say('this secret', bob);
    expect([await countOf(alice), await countOf(bob), await countOf(guest)]).toEqual([5, 2, 0]);
    await alice.request('POST', `/rooms/${roomId}/ban`, { user_id: bob.userId });
    await say('the secret after');
    expect([await countOf(alice), await countOf(bob), await countOf(guest)]).toEqual([6, 2, 0]);
    await Promise.all(Array.from({ length: 105 }, (_, n) => say(`crowded ${n}`)));
    for (const order_by of ['recent', 'rank'])
      expect(await search(guest, 'crowded', { order_by })).toEqual({ count: 0, highlights: ['crowded'], results: [] });
    // Of what everybody may see that comes later nothing is hidden from whoever comes then.
    roomId = await room();
    await say('a secret');
    expect([await countOf(alice), await countOf(bob)]).toEqual([1, 0]);
    await join(bob);
    expect(await countOf(bob)).toBe(1);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    await say('a secret more');
    expect([await countOf(alice), await countOf(bob)]).toEqual([2, 1]);
  });

  it('does not find what was redacted', async () => {
    const eventId = await say('a slip of the tongue');
    expect(ids(await search(bob, 'tongue'))).toEqual([eventId]);
    await alice.request('PUT', `/rooms/${roomId}/redact/${eventId}/${txn++}`, {});
    expect(await search(bob, 'tongue')).toMatchObject({ count: 0, results: [] });
  });

  it('finds at once what was said last, in whatever crowd and before whatever restart', async () => {
    const crowd = await Promise.all(Array.from({ length: 30 }, (_, index) => say(`crowd ${index}`)));
    const own = await say('crowd and me', bob);
    expect(ids(await search(bob, 'crowd', { filter: { rooms: [roomId], limit: 100 } })).toSorted()).toEqual(
      [...crowd, own].toSorted(),
    );
    const last = await say('before the end');
    await server.restart();
    expect(ids(await search(bob, 'end'))).toEqual([last]);
  });

  it('does not hold up what is said when the index is in trouble', async () => {
    const { config } = server.server;
    const options = parseDatabaseOptions({ name: config.get('database.name'), args: config.get('database.args') });
    // The server may be writing just now, and cannot go on while this process waits for it.
    const other = await eventually(() => openDatabase(options, new SystemClock()).catch(() => undefined));
    const before = await say('before the trouble');
    expect(ids(await search(bob, 'trouble'))).toEqual([before]);
    await other.write((tx) => tx.run('ALTER TABLE event_search RENAME TO lost'));
    const sent = await say('in the midst of trouble');
    await other.write((tx) => tx.run('ALTER TABLE lost RENAME TO event_search'));
    await other.close();
    // The next attempt may be further away than a search waits.
    await eventually(async () => (await search(bob, 'trouble')).count === 2);
    expect(ids(await search(bob, 'trouble', { order_by: 'recent' }))).toEqual([sent, before]);
  });

  it.each([
    [{}, 'M_MISSING_PARAM'],
    [{ search_term: 1 }, 'M_INVALID_PARAM'],
    [{ search_term: 'x', keys: ['content.secret'] }, 'M_INVALID_PARAM'],
    [{ search_term: 'x', order_by: 'mood' }, 'M_INVALID_PARAM'],
    [{ search_term: 'x', filter: { limit: 'many' } }, 'M_BAD_JSON'],
    [{ search_term: 'x', groupings: { group_by: [{ key: 'type' }] } }, 'M_INVALID_PARAM'],
    [{ search_term: 'x', event_context: { before_limit: -1 } }, 'M_BAD_JSON'],
  ])('refuses %j', async (criteria, errcode) => {
    expect(await post(bob, criteria)).toMatchObject({ status: 400, body: { errcode } });
  });

  it('refuses tokens that it did not give', async () => {
    for (const next of ['x', 'W10', 'bnVsbA'])
      expect(await post(bob, { search_term: 'x', order_by: 'recent' }, next)).toMatchObject({ status: 400 });
  });
});
