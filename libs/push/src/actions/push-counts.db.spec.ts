import { Database } from '@rookery/database';
import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { PushCounts } from './push-counts.js';

interface RoomAnswer {
  readonly unread_notifications: { readonly notification_count: number; readonly highlight_count: number };
  readonly unread_thread_notifications?: Record<string, { notification_count: number; highlight_count: number }>;
}

let txn = 0;

/** Sends a message; its event id. */
async function send(user: TestUser, roomId: string, content: object, type = 'm.room.message'): Promise<string> {
  const { status, body } = await user.request<{ event_id: string }>(
    'PUT',
    `/rooms/${roomId}/send/${type}/${txn++}`,
    content,
  );
  expect(status).toBe(200);
  return body.event_id;
}

const text = (body: string, more: object = {}): object => ({ msgtype: 'm.text', body, ...more });

describe.each(['sqlite', 'postgres'] as const)('unread counts (%s)', (database) => {
  let server: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;
  let root: TestUser;
  let roomId: string;

  beforeAll(async () => {
    server = await createTestHomeserver({
      database,
      settings: { max_event_delay_duration: '1h', enable_ephemeral_messages: true },
    });
    alice = await server.registerUser('alice');
    bob = await server.registerUser('bob');
    carol = await server.registerUser('carol');
    root = await server.registerAdministrator('root');
  });
  afterAll(() => server.stop());

  beforeEach(async () => {
    roomId = await roomOf(alice, [bob, carol]);
  });

  async function roomOf(owner: TestUser, others: readonly TestUser[]): Promise<string> {
    const { body } = await owner.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    for (const other of others) {
      const joined = await other.request('POST', `/rooms/${body.room_id}/join`, {});
      expect(joined.status).toBe(200);
    }
    return body.room_id;
  }

  async function unread(user: TestUser, threads = false): Promise<RoomAnswer | undefined> {
    const filter = JSON.stringify({ room: { timeline: { unread_thread_notifications: threads } } });
    const { body } = await user.request<{ rooms?: { join?: Record<string, RoomAnswer> } }>(
      'GET',
      `/sync?full_state=true&filter=${encodeURIComponent(filter)}`,
    );
    return body.rooms?.join?.[roomId];
  }
  const counts = async (user: TestUser): Promise<[number, number]> => {
    const answer = (await unread(user))!.unread_notifications;
    return [answer.notification_count, answer.highlight_count];
  };
  const read = async (user: TestUser, eventId: string, body: object = {}): Promise<void> => {
    const answer = await user.request('POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, body);
    expect([answer.status, answer.body]).toEqual([200, {}]);
  };

  it('counts messages for everybody but their sender, from memory and from the tables alike', async () => {
    expect(await counts(bob)).toEqual([0, 0]);
    await send(alice, roomId, text('one'));
    await send(carol, roomId, text('two'));
    expect(await counts(bob)).toEqual([2, 0]);
    expect(await counts(alice)).toEqual([1, 0]);
    // Who sends something has read what is before it.
    expect(await counts(carol)).toEqual([0, 0]);
    await server.restart();
    expect(await counts(carol)).toEqual([0, 0]);
    expect(await counts(bob)).toEqual([2, 0]);
    expect(await counts(alice)).toEqual([1, 0]);
  });

  it('does not count what default rules suppress', async () => {
    const eventId = await send(alice, roomId, text('hello'));
    await send(alice, roomId, { msgtype: 'm.notice', body: 'beep' });
    await send(
      alice,
      roomId,
      { 'm.relates_to': { rel_type: 'm.annotation', event_id: eventId, key: '+' } },
      'm.reaction',
    );
    await send(
      alice,
      roomId,
      text('* hi', { 'm.new_content': text('hi'), 'm.relates_to': { rel_type: 'm.replace', event_id: eventId } }),
    );
    await alice.request('PUT', `/rooms/${roomId}/state/m.room.topic`, { topic: 'quiet' });
    expect(await counts(bob)).toEqual([1, 0]);
  });

  it('highlights whom a message mentions, and a room mention only from who may', async () => {
    await send(alice, roomId, text('bob', { 'm.mentions': { user_ids: [bob.userId] } }));
    await send(alice, roomId, text('all', { 'm.mentions': { room: true } }));
    expect(await counts(bob)).toEqual([2, 2]);
    await send(bob, roomId, text('all', { 'm.mentions': { room: true } }));
    // What he had not read he has read by sending something.
    expect(await counts(bob)).toEqual([0, 0]);
    expect(await counts(carol)).toEqual([3, 1]);
    expect(await counts(alice)).toEqual([1, 0]);
  });

  it.each([
    ['9', '"20"', 1],
    ['9', '" +020 "', 1],
    ['9', '"60"', 0],
    ['5', '20.9', 1],
    ['12', '20', 1],
  ])('reads the level of a room mention as room version %s writes it: %s', async (version, level, highlights) => {
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', {
      ...{ preset: 'public_chat', room_version: version },
    });
    roomId = body.room_id;
    for (const user of [bob, carol]) await user.request('POST', `/rooms/${roomId}/join`, {});
    const path = `/rooms/${roomId}/state/m.room.power_levels`;
    const before = (await alice.request('GET', path)).body;
    const levels = { ...before, users: { ...(before['users'] as object), [carol.userId]: 30 } };
    const set = await alice.request('PUT', path, { ...levels, notifications: { room: JSON.parse(level) as unknown } });
    expect(set.status).toBe(200);
    await send(carol, roomId, text('all', { 'm.mentions': { room: true } }));
    expect(await counts(bob)).toEqual([1, highlights]);
  });

  it('goes by what users changed, and leaves the others alone', async () => {
    const path = `/pushrules/global/room/${encodeURIComponent(roomId)}`;
    expect((await bob.request('PUT', path, { actions: [] })).status).toBe(200);
    const word = '/pushrules/global/content/lunch';
    const actions = ['notify', { set_tweak: 'highlight' }];
    expect((await carol.request('PUT', word, { pattern: 'lunch', actions })).status).toBe(200);
    await send(alice, roomId, text('one'));
    await send(alice, roomId, text('time for Lunch!'));
    expect(await counts(bob)).toEqual([0, 0]);
    expect(await counts(carol)).toEqual([2, 1]);
    expect((await bob.request('DELETE', path)).status).toBe(200);
    await send(alice, roomId, text('three'));
    expect(await counts(bob)).toEqual([1, 0]);
    await server.restart();
    expect(await counts(bob)).toEqual([1, 0]);
    expect(await counts(carol)).toEqual([3, 1]);
    await carol.request('DELETE', word);
  });

  it('goes by rules about a room in that room, whatever was sent elsewhere before', async () => {
    const other = await roomOf(alice, [bob, carol]);
    const override = `/pushrules/global/override/${encodeURIComponent(other)}`;
    const conditions = [{ kind: 'event_match', key: 'room_id', pattern: other }];
    expect((await bob.request('PUT', override, { actions: [], conditions })).status).toBe(200);
    const sender = `/pushrules/global/sender/${encodeURIComponent(alice.userId)}`;
    expect((await carol.request('PUT', sender, { actions: [] })).status).toBe(200);
    for (const name of ['first', 'second']) {
      // Not last: by sending he has read what is before it.
      await send(bob, roomId, text(name));
      await send(alice, roomId, text(name));
      await send(alice, other, text(name));
    }
    const all = roomId;
    expect(await counts(bob)).toEqual([1, 0]);
    expect(await counts(carol)).toEqual([2, 0]);
    roomId = other;
    expect(await counts(bob)).toEqual([0, 0]);
    expect(await counts(carol)).toEqual([0, 0]);
    expect((await bob.request('DELETE', override)).status).toBe(200);
    expect((await carol.request('DELETE', sender)).status).toBe(200);
    await send(alice, other, text('third'));
    expect(await counts(bob)).toEqual([1, 0]);
    expect(await counts(carol)).toEqual([1, 0]);
    roomId = all;
  });

  it('a receipt takes what was read away, a private one too', async () => {
    const first = await send(alice, roomId, text('one'));
    const second = await send(alice, roomId, text('two', { 'm.mentions': { user_ids: [bob.userId] } }));
    expect(await counts(bob)).toEqual([2, 1]);
    await read(bob, first);
    expect(await counts(bob)).toEqual([1, 1]);
    await bob.request('POST', `/rooms/${roomId}/receipt/m.read.private/${second}`, {});
    expect(await counts(bob)).toEqual([0, 0]);
    await read(bob, first);
    expect(await counts(bob)).toEqual([0, 0]);
    expect(await counts(carol)).toEqual([2, 0]);
  });

  it.each(['m.read', 'm.read.private'])('a sync tells the new count after a receipt of the type %s', async (type) => {
    interface Sync {
      readonly next_batch: string;
      readonly rooms?: { readonly join?: Record<string, RoomAnswer> };
    }
    const sync = async (since: string): Promise<Sync> =>
      (await bob.request<Sync>('GET', `/sync?timeout=0&since=${since}`)).body;
    const { body: first } = await bob.request<Sync>('GET', '/sync?timeout=0');
    const eventId = await send(alice, roomId, text('one'));
    const second = await sync(first.next_batch);
    expect(second.rooms?.join?.[roomId]?.unread_notifications).toEqual({ notification_count: 1, highlight_count: 0 });
    await bob.request('POST', `/rooms/${roomId}/receipt/${type}/${eventId}`, {});
    const third = await sync(second.next_batch);
    expect(third.rooms?.join?.[roomId]?.unread_notifications).toEqual({ notification_count: 0, highlight_count: 0 });
  });

  it('counts threads by themselves', async () => {
    const root = await send(alice, roomId, text('root'));
    const thread = { 'm.relates_to': { rel_type: 'm.thread', event_id: root } };
    const inThread = await send(alice, roomId, text('in thread', thread));
    await send(alice, roomId, text('again', { ...thread, 'm.mentions': { user_ids: [bob.userId] } }));
    expect(await unread(bob, true)).toMatchObject({
      unread_notifications: { notification_count: 1, highlight_count: 0 },
      unread_thread_notifications: { [root]: { notification_count: 2, highlight_count: 1 } },
    });
    expect(await counts(bob)).toEqual([3, 1]);
    await read(bob, inThread, { thread_id: root });
    expect(await unread(bob, true)).toMatchObject({
      unread_notifications: { notification_count: 1 },
      unread_thread_notifications: { [root]: { notification_count: 1, highlight_count: 1 } },
    });
    await read(bob, root, { thread_id: 'main' });
    expect(await unread(bob, true)).toMatchObject({ unread_notifications: { notification_count: 0 } });
    await server.restart();
    expect(await counts(bob)).toEqual([1, 1]);
    const last = await send(carol, roomId, text('bye'));
    await read(bob, last);
    expect(await unread(bob, true)).not.toHaveProperty('unread_thread_notifications');
    expect(await counts(bob)).toEqual([0, 0]);
  });

  it.each([true, false])(
    'who sends something has read its thread up to there (counts known before: %s)',
    async (known) => {
      const root = await send(alice, roomId, text('root'));
      const thread = { 'm.relates_to': { rel_type: 'm.thread', event_id: root } };
      const inThread = await send(alice, roomId, text('in thread', thread));
      const second = await send(alice, roomId, text('two', { 'm.mentions': { user_ids: [bob.userId] } }));
      if (known) expect(await counts(bob)).toEqual([3, 1]);
      const annotates = (eventId: string): object => ({
        'm.relates_to': { rel_type: 'm.annotation', event_id: eventId, key: '+' },
      });
      await send(bob, roomId, annotates(inThread), 'm.reaction');
      expect(await unread(bob, true)).toMatchObject({
        unread_notifications: { notification_count: 2, highlight_count: 1 },
      });
      expect(await unread(bob, true)).not.toHaveProperty('unread_thread_notifications');
      await send(alice, roomId, text('again', thread));
      await send(bob, roomId, text('mine'));
      await send(alice, roomId, text('three'));
      const left = {
        unread_notifications: { notification_count: 1, highlight_count: 0 },
        unread_thread_notifications: { [root]: { notification_count: 1, highlight_count: 0 } },
      };
      expect(await unread(bob, true)).toMatchObject(left);
      // With others' counts in memory, and their own.
      expect(await counts(carol)).toEqual([6, 0]);
      const { body: page } = await bob.request<{ notifications: { event: { event_id: string }; read: boolean }[] }>(
        'GET',
        '/notifications?limit=5',
      );
      const told = new Map(page.notifications.map(({ event, read: isRead }) => [event.event_id, isRead]));
      expect([told.get(root), told.get(inThread), told.get(second)]).toEqual([true, true, true]);
      expect([...told.values()].slice(0, 2)).toEqual([false, false]);
      await server.restart();
      expect(await unread(bob, true)).toMatchObject(left);
    },
  );

  it('what comes while somebody sends stays unread, and only that', async () => {
    await counts(bob);
    for (let round = 0; round < 5; round++) {
      const order: string[] = [];
      const sent = async (user: TestUser, name: string): Promise<void> => {
        order.push(await send(user, roomId, text(name)));
      };
      await Promise.all([sent(alice, 'a'), sent(bob, 'own'), sent(carol, 'b'), sent(alice, 'c')]);
      const { body } = await bob.request<{ chunk: { event_id: string; sender: string }[] }>(
        'GET',
        `/rooms/${roomId}/messages?dir=b&limit=4`,
      );
      const after = body.chunk.findIndex(({ sender }) => sender === bob.userId);
      expect([order.length, after >= 0]).toEqual([4, true]);
      expect(await counts(bob)).toEqual([after, 0]);
    }
  });

  it('state and what was left to be sent later tell nothing of who has read', async () => {
    await send(carol, roomId, text('one'));
    const topic = await alice.request('PUT', `/rooms/${roomId}/state/m.room.topic`, { topic: 'quiet' });
    expect(topic.status).toBe(200);
    expect(await counts(alice)).toEqual([1, 0]);
    const query = 'org.matrix.msc4140.delay=1';
    const path = `/rooms/${roomId}/send/m.room.message/${txn++}?${query}`;
    expect((await alice.request('PUT', path, text('when I am away'))).status).toBe(200);
    await eventually(async () => (await counts(bob))[0] >= 2);
    expect(await counts(bob)).toEqual([2, 0]);
    expect(await counts(alice)).toEqual([1, 0]);
  });

  it('finds the thread of what refers to a message in it, also by way of another', async () => {
    const root = await send(alice, roomId, text('root'));
    await read(bob, root);
    const inThread = await send(
      alice,
      roomId,
      text('in it', { 'm.relates_to': { rel_type: 'm.thread', event_id: root } }),
    );
    const refersTo = (eventId: string): object => ({
      'm.relates_to': { rel_type: 'm.reference', event_id: eventId },
    });
    const second = await send(alice, roomId, text('two', refersTo(inThread)));
    const third = await send(alice, roomId, text('three', refersTo(second)));
    await send(alice, roomId, text('four', refersTo(third)));
    expect(await unread(bob, true)).toMatchObject({
      unread_notifications: { notification_count: 1 },
      unread_thread_notifications: { [root]: { notification_count: 3, highlight_count: 0 } },
    });
  });

  it('begins anew after a rejoin, but not after a change of name', async () => {
    await send(alice, roomId, text('before'));
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    await send(alice, roomId, text('meanwhile'));
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    expect(await counts(bob)).toEqual([0, 0]);
    await send(alice, roomId, text('after'));
    await bob.request('PUT', `/profile/${bob.userId}/displayname`, { displayname: 'Bobby' });
    expect(await counts(bob)).toEqual([1, 0]);
  });

  it('hears nothing from ignored users', async () => {
    const ignore = (ids: string[]): Promise<unknown> =>
      carol.request('PUT', `/user/${carol.userId}/account_data/m.ignored_user_list`, {
        ignored_users: Object.fromEntries(ids.map((id) => [id, {}])),
      });
    await send(alice, roomId, text('one'));
    await ignore([alice.userId]);
    await send(alice, roomId, text('two', { 'm.mentions': { user_ids: [carol.userId] } }));
    expect(await counts(carol)).toEqual([1, 0]);
    expect(await counts(bob)).toEqual([2, 0]);
    await ignore([]);
    await send(alice, roomId, text('three'));
    expect(await counts(carol)).toEqual([2, 0]);
  });

  it('a redacted message is not unread', async () => {
    const eventId = await send(alice, roomId, text('oops', { 'm.mentions': { user_ids: [bob.userId] } }));
    await send(alice, roomId, text('fine'));
    expect(await counts(bob)).toEqual([2, 1]);
    await alice.request('PUT', `/rooms/${roomId}/redact/${eventId}/${txn++}`, {});
    expect(await counts(bob)).toEqual([1, 0]);
  });

  it('nor is one that was purged, or destroyed itself', async () => {
    const mention = { 'm.mentions': { user_ids: [bob.userId] } };
    await send(alice, roomId, text('one', mention));
    const last = await send(alice, roomId, text('two'));
    expect(await counts(bob)).toEqual([2, 1]);
    // What users of this server said stays in the database.
    const purge = await root.request('POST', `/_synapse/admin/v1/purge_history/${roomId}/${last}`, {});
    expect(purge.status).toBe(200);
    const isOnlyLast = ([notify, highlight]: [number, number]): boolean => notify === 1 && highlight === 0;
    await eventually(async () => isOnlyLast(await counts(bob)));
    await send(alice, roomId, text('three', { ...mention, 'org.matrix.self_destruct_after': Date.now() + 1 }));
    await eventually(async () => isOnlyLast(await counts(bob)));
    // From the tables, too.
    expect(await counts(carol)).toEqual([1, 0]);
  });

  it('lists nothing of a room that was forgotten', async () => {
    const eventId = await send(alice, roomId, text('a secret', { 'm.mentions': { user_ids: [bob.userId] } }));
    const isListed = async (): Promise<boolean> => {
      const { body } = await bob.request<{ notifications: { event: { event_id: string } }[] }>('GET', '/notifications');
      return body.notifications.some(({ event }) => event.event_id === eventId);
    };
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
    expect(await isListed()).toBe(true);
    await bob.request('POST', `/rooms/${roomId}/forget`, {});
    expect(await isListed()).toBe(false);
    await bob.request('POST', `/rooms/${roomId}/join`, {});
    expect(await isListed()).toBe(true);
  });

  it('tells badges of the invites that their target is shown', async () => {
    const dan = await server.registerUser(`dan${txn++}`);
    const invite = async (user: TestUser): Promise<void> =>
      void (await user.request('POST', '/createRoom', { invite: [dan.userId] }));
    const set = async (type: string, content: object): Promise<void> => {
      const { status } = await dan.request('PUT', `/user/${dan.userId}/account_data/${type}`, content);
      expect(status).toBe(200);
    };
    const badge = (): Promise<unknown> => server.server.service(PushCounts).badge(dan.userId);
    await invite(alice);
    await invite(alice);
    await invite(bob);
    expect(await badge()).toEqual({ messages: 3, rooms: 3 });
    const asked = (['query', 'get'] as const).map((kind) => jest.spyOn(server.server.service(Database), kind));
    await badge();
    const ofDan = (call: readonly unknown[]): boolean =>
      (call[1] as readonly unknown[] | undefined)?.[0] === dan.userId;
    expect(asked.flatMap((spy) => spy.mock.calls.filter(ofDan))).toHaveLength(2);
    for (const spy of asked) spy.mockRestore();
    await set('m.ignored_user_list', { ignored_users: { [alice.userId]: {} } });
    expect(await badge()).toEqual({ messages: 1, rooms: 1 });
    await set('m.invite_permission_config', { default_action: 'block' });
    expect(await badge()).toEqual({ messages: 0, rooms: 0 });
    await set('m.invite_permission_config', {});
    await set('m.ignored_user_list', { ignored_users: {} });
    expect(await badge()).toEqual({ messages: 3, rooms: 3 });
  });

  it('lists notifications, newest first, in pages', async () => {
    await send(bob, roomId, text('own'));
    const first = await send(alice, roomId, text('one'));
    const second = await send(alice, roomId, text('two', { 'm.mentions': { user_ids: [bob.userId] } }));
    await read(bob, first);
    interface Page {
      readonly next_token?: string;
      readonly notifications: readonly {
        event: { event_id: string };
        read: boolean;
        room_id: string;
        actions: unknown;
      }[];
    }
    const { body: page } = await bob.request<Page>('GET', '/notifications?limit=1');
    expect(page.notifications).toMatchObject([
      {
        room_id: roomId,
        read: false,
        event: { event_id: second },
        actions: ['notify', { set_tweak: 'sound', value: 'default' }, { set_tweak: 'highlight' }],
      },
    ]);
    const { body: next } = await bob.request<Page>('GET', `/notifications?limit=1&from=${page.next_token}`);
    expect(next.notifications).toMatchObject([
      { room_id: roomId, read: true, event: { event_id: first }, actions: ['notify'] },
    ]);
    const { body: highlights } = await bob.request<Page>('GET', '/notifications?only=highlight&limit=1');
    expect(highlights.notifications.map((one) => one.event.event_id)).toEqual([second]);
    expect((await bob.request('GET', '/notifications?from=x')).status).toBe(400);
  });

  it('an invite notifies whom it invites', async () => {
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', { invite: [carol.userId] });
    const { body: page } = await carol.request<{ notifications: { room_id: string; actions: unknown[] }[] }>(
      'GET',
      '/notifications?limit=1',
    );
    expect(page.notifications).toMatchObject([{ room_id: body.room_id, actions: ['notify', { set_tweak: 'sound' }] }]);
    expect(
      (await bob.request<{ notifications: { room_id: string }[] }>('GET', '/notifications')).body.notifications,
    ).not.toContainEqual(expect.objectContaining({ room_id: body.room_id }));
  });
});
